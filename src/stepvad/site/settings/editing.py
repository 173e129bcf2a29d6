"""Edits of the text of a settings file; comments, order and form of everything else are kept."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field

from stepvad.errors import ConfigError, MissingExtraError
from stepvad.site.settings.page import NAME, Section

if TYPE_CHECKING:
    from tomlkit.container import Container
    from tomlkit.items import Array, InlineTable, Item, Table


Name = Annotated[str, Field(pattern=NAME)]
Corner = tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]]
Corners = Annotated[list[Corner], Field(min_length=3, max_length=200)]
Spans = Annotated[list[Annotated[str, Field(max_length=20)]], Field(max_length=24)]
KeyValue = (
    bool
    | int
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=2000)]
    | Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=100)]
)
KeyChanges = Annotated[dict[Name, KeyValue | None], Field(max_length=50)]
"""New values by key; None removes a key, so its default counts."""

KeyTable: TypeAlias = "Container | Table | InlineTable"
CAMERAS: TablePath = ("cameras",)
DIGITS = 4
"""Digits of a corner: a tenth of a pixel in a picture of 1000."""

TablePath = tuple[str, ...]
TOKENS = re.compile(
    r"""
    (?P<text> \"\"\"(?:\\.|[^\\])*?\"\"\""{0,2} | '''.*?''''{0,2}
            | (?!\"\"\")"(?:\\.|[^"\\\n])*" | (?!''')'[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<space> [ \t]+ )
    | (?P<other> [^\[\]{}"'\#\s]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after some edits; the loader decides whether they make sense.

    Raises `ConfigError` if there is no such camera, zone or section, or if the file has it in a
    form that cannot be edited piece by piece.
    """
    # edited with one kind of line end, and given back with its own
    is_crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    for edit in edits:
        text = _applied(text, edit)
    return text.replace("\n", "\r\n") if is_crlf else text


class AddCamera(Section):
    """Add a camera after the others."""

    edit: Literal["add camera"]
    keys: KeyChanges
    zones: Annotated[dict[Name, Corners], Field(max_length=50)] = Field(default_factory=dict)
    zone_hours: Annotated[dict[Name, Spans], Field(max_length=50)] = Field(default_factory=dict)


class ChangeCamera(Section):
    """Change the settings of a camera, its name among them."""

    edit: Literal["change camera"]
    camera: Name
    keys: KeyChanges


class RemoveCamera(Section):
    """Remove a camera with the comment above it."""

    edit: Literal["remove camera"]
    camera: Name


class SetZones(Section):
    """Draw the zones of a camera; those not named are deleted.

    `zone_hours` is when people in a zone raise events; without an entry always.
    """

    edit: Literal["set zones"]
    camera: Name
    zones: Annotated[dict[Name, Corners], Field(max_length=50)]
    zone_hours: Annotated[dict[Name, Spans], Field(max_length=50)] = Field(default_factory=dict)


class ChangeSection(Section):
    """Change the keys of a section, which is made if there is none."""

    edit: Literal["change section"]
    section: Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z_]+)?$", max_length=60)]
    name: Name | None = None
    """Name of the item, if the section is a list, such as sinks.webhooks."""
    keys: KeyChanges


Edit = Annotated[
    AddCamera | ChangeCamera | RemoveCamera | SetZones | ChangeSection,
    Field(discriminator="edit"),
]


@dataclass(frozen=True, slots=True)
class TextTable:
    """The lines of one table: the comment above its header, the header and keys, what follows."""

    path: TablePath
    is_item: bool
    """True if its header has two brackets: one item of a list of tables."""
    lead: str
    body: str
    tail: str
    """Blank lines and comments after its last key."""

    @property
    def text(self) -> str:
        """All of its lines."""
        return f"{self.lead}{self.body}{self.tail}"


def split_tables(text: str) -> list[TextTable]:
    """The tables of a valid TOML text in order; the first holds the keys above all headers."""
    # cut before each header; the comment right above a header goes with it
    starts = [0, *(at for at, _, line in statements(text) if line.lstrip().startswith("["))]
    parts = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    found: list[TextTable] = []
    lead = ""
    for number, part in enumerate(parts):
        # blank lines and comments after the last key; a comment right above the next header is its
        body, tail = _cut(part, lambda line: re.fullmatch(r"\s*(#.*)?\s*", line) is not None)
        is_last = number == len(parts) - 1
        rest, above = (tail, "") if is_last else _cut(tail, lambda line: bool(line.strip()))
        header = body.partition("\n")[0] if number else ""
        found.append(TextTable(_path(header), header.lstrip().startswith("[["), lead, body, rest))
        lead = above
    return found


def join_tables(tables: Iterable[TextTable]) -> str:
    """The text of all tables."""
    return "".join(table.text for table in tables)


def _applied(text: str, edit: Edit) -> str:
    file = _EditedFile(text)
    match edit:
        case AddCamera():
            file.add_table(CAMERAS, edit.keys)
            file.set_zones(file.latest, edit.zones, edit.zone_hours)
        case ChangeCamera():
            file.change(file.camera(edit.camera), edit.keys)
        case RemoveCamera():
            file.remove(file.camera(edit.camera))
        case SetZones():
            file.set_zones(file.camera(edit.camera), edit.zones, edit.zone_hours)
        case ChangeSection():
            path = tuple(edit.section.split("."))
            at = file.section(path, edit.name)
            if at is not None:
                file.change(at, edit.keys)
            else:
                keys = edit.keys if edit.name is None else {"name": edit.name, **edit.keys}
                file.add_table(path, keys, is_item=edit.name is not None)
    return file.text


class _EditedFile:
    """The tables of a file while one edit is applied.

    A table is known by its index; sub-tables such as `[cameras.zones]` follow that of their camera.
    """

    def __init__(self, text: str) -> None:
        self.tables = split_tables(text if text.endswith("\n") or not text else f"{text}\n")

    @property
    def text(self) -> str:
        """The text now."""
        return join_tables(self.tables)

    @property
    def latest(self) -> int:
        """The camera that was added last."""
        return max(at for at, table in enumerate(self.tables) if table.path == CAMERAS)

    def camera(self, name: str) -> int:
        """The table of a camera; raises if there is none."""
        at = self.section(CAMERAS, name)
        if at is None:
            raise ConfigError(
                f"cameras: expected one of the file, got {name!r}",
                hint="someone may have changed the file: load it again",
            )
        return at

    def section(self, path: TablePath, name: str | None) -> int | None:
        """The table of a section, or of the item of this name in a list of tables."""
        for at, table in enumerate(self.tables):
            if table.path != path or table.is_item != (name is not None):
                continue
            if name is None or self._facts(at).get("name", path[-1].rstrip("s")) == name:
                return at
        self._refuse_inline(path)
        return None

    def change(self, at: int, keys: KeyChanges) -> None:
        """Set and remove keys of a table."""
        document, table = self._opened(at)
        for key, value in keys.items():
            if value is None:
                table.pop(key, None)
            else:
                _put(table, key, value)
        self._close(at, document)

    def add_table(self, path: TablePath, keys: KeyChanges, *, is_item: bool = True) -> None:
        """Add a table after the last one of its kind."""
        self._refuse_inline(path)
        brackets = ("[[", "]]") if is_item else ("[", "]")
        given = [(key, value) for key, value in keys.items() if value is not None]
        lines = [f"{key} = {_item(value).as_string()}" for key, value in given]
        header = ".".join(path).join(brackets)
        # after the last table of its kind, or of its family, or at the end
        same = [n for n, table in enumerate(self.tables) if table.path[: len(path)] == path]
        near = [n for n, table in enumerate(self.tables) if table.path[:1] == path[:1]]
        after = max(same or near or range(len(self.tables)))
        before, is_last = self.tables[after], after == len(self.tables) - 1
        if before.text and (is_last or not before.tail):
            self.tables[after] = replace(before, tail=f"{before.tail}\n")
        # one blank line on each side
        body = "".join(f"{line}\n" for line in [header, *lines])
        new = TextTable(path, is_item, "", body, "" if is_last else "\n")
        self.tables.insert(after + 1, new)

    def remove(self, at: int) -> None:
        """Remove a camera with its sub-tables; a blank line at the end of the file goes too."""
        if len([table for table in self.tables if table.path == CAMERAS]) == 1:
            raise ConfigError(
                "cameras: expected at least one camera, got the last one to remove",
                hint="add another one first",
            )
        del self.tables[at : self._end(at)]
        if at == len(self.tables):
            last = self.tables[-1]
            self.tables[-1] = replace(last, tail=last.tail.rstrip() and last.tail)

    def set_zones(
        self, at: int, zones: Mapping[str, Sequence[Corner]], hours: Mapping[str, Sequence[str]]
    ) -> None:
        """Make the zones of a camera these; one that is the same stays as it is."""
        self._set_inner(at, "zones", {name: _polygon(zone) for name, zone in zones.items()})
        self._set_inner(at, "zone_hours", {name: _item([*spans]) for name, spans in hours.items()})

    def _set_inner(self, at: int, key: str, values: Mapping[str, Item]) -> None:
        """Make the table `key` of a camera these values, in the form that the file has."""
        found = self._inner(at, key)
        gone = [] if found is None else [name for name in found[2] if name not in values]
        for name, value in [*values.items(), *((name, None) for name in gone)]:
            # opened for each name: tomlkit loses count of dotted keys that stand apart
            opened = self._inner(at, key)
            if opened is None:
                line = "" if value is None else f"{key}.{name} = {value.as_string()}\n"
                self.tables[at] = replace(self.tables[at], body=self.tables[at].body + line)
                continue
            where, document, inner = opened
            if value is not None:
                _put(inner, name, value)
            else:
                del inner[name]
                if not len(inner) and where == at:
                    self._opened_of(document, where).pop(key)
            self._close(where, document)

    def _inner(self, at: int, key: str) -> tuple[int, Container, Any] | None:
        """The table of a camera's zones: where it is, the document around it, and itself."""
        path = (*self.tables[at].path, key)
        for where in range(at + 1, self._end(at)):
            if self.tables[where].path == path:
                return where, *self._opened(where)
        document, table = self._opened(at)
        inner = table.get(key)
        return None if inner is None else (at, document, inner)

    def _end(self, at: int) -> int:
        """The index after the sub-tables of a table."""
        path, end = self.tables[at].path, at + 1
        while (
            end < len(self.tables)
            and self.tables[end].path[: len(path)] == path
            and len(self.tables[end].path) > len(path)
        ):
            end += 1
        return end

    def _facts(self, at: int) -> Mapping[str, object]:
        facts: Any = tomllib.loads(self.tables[at].body)
        for part in self.tables[at].path:
            facts = facts[part]
        return facts[0] if self.tables[at].is_item else facts

    def _opened(self, at: int) -> tuple[Container, KeyTable]:
        """A table as a document of its own, and the table in it."""
        document = _tomlkit().parse(self.tables[at].body)
        return document, self._opened_of(document, at)

    def _opened_of(self, document: Container, at: int) -> KeyTable:
        found: Any = document
        for part in self.tables[at].path:
            found = found[part]
        return found[0] if self.tables[at].is_item else found

    def _close(self, at: int, document: Container) -> None:
        self.tables[at] = replace(self.tables[at], body=document.as_string())

    def _refuse_inline(self, path: TablePath) -> None:
        """Raise if the file has a section as a value of another table."""
        for at, table in enumerate(self.tables):
            rest = path[len(table.path) :]
            if rest and path[: len(table.path)] == table.path and rest[0] in self._facts(at):
                raise ConfigError(
                    f"{'.'.join(path)}: expected a separate table, got a value in another",
                    hint="edit the text of the file",
                )


def _put(table: KeyTable, key: str, value: Item | KeyValue) -> None:
    """Set a key unless it has that value already; the comment after it stays."""
    before = table.get(key)
    if before == value and isinstance(before, bool) == isinstance(value, bool):
        return
    item, is_new = _item(value), key not in table
    table[key] = item
    if is_new and type(table).__name__ == "InlineTable":
        item.trivia.trail = " "  # before the closing brace


def _item(value: Item | KeyValue) -> Item:
    return _tomlkit().item(value)


def _polygon(corners: Sequence[Corner]) -> Array:
    """Corners on one line, as people write them."""
    rounded = ([round(float(value), DIGITS) for value in corner] for corner in corners)
    pairs = ", ".join(f"[{x!r}, {y!r}]" for x, y in rounded)
    return _tomlkit().array(f"[{pairs}]")


def _tomlkit() -> Any:
    try:
        import tomlkit
    except ImportError:
        raise MissingExtraError("editing settings", "web") from None
    return tomlkit


def statements(text: str) -> Iterator[tuple[int, int, str]]:
    """The lines of a TOML text that begin outside of its lists and texts: offset, number, text."""
    depth, line, number, is_first = 0, 0, 1, True
    for token in TOKENS.finditer(text):
        if is_first and not depth and token.lastgroup != "space" and token[0] != "\n":
            end = text.find("\n", line)
            yield line, number, text[line : end if end >= 0 else len(text)]
        depth += {"open": 1, "close": -1}.get(token.lastgroup or "", 0)
        is_first = token[0] == "\n" or (is_first and token.lastgroup == "space")
        line = token.end() if token[0] == "\n" else line
        number += token[0].count("\n")


def _cut(text: str, belongs: Callable[[str], bool]) -> tuple[str, str]:
    """The lines before, and the last lines, which all belong together."""
    lines = text.splitlines(keepends=True)
    start = len(lines)
    while start and belongs(lines[start - 1]):
        start -= 1
    return "".join(lines[:start]), "".join(lines[start:])


def _path(header: str) -> TablePath:
    if not header:
        return ()
    path: TablePath = ()
    facts: object = tomllib.loads(header)
    while isinstance(facts, Mapping) and facts:
        (name, facts), *_ = facts.items()
        path += (str(name),)
        if isinstance(facts, list):
            facts = facts[0]
    return path
