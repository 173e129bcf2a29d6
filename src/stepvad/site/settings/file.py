"""Load and validate the settings file of a site; errors name the line."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stepvad.errors import ConfigError, StepvadError, os_reason
from stepvad.files import read_bounded
from stepvad.site.settings.editing import statements
from stepvad.site.settings.sections import SiteSettings

logger = logging.getLogger(__name__)
KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)
GUIDE = "the guide on watching cameras has an example"
SECRET_FIELDS = ("url", "credentials", "password", "secret", "token", "to")
"""Fields that may hold a secret by mistake; error messages never show their values."""
ROLLED_OUT = Path("fleet", "rollout.json")
"""File in the data directory with what its fleet has a site run: tables laid over its settings."""
LAID = ("learning", "model", "pose", "retention")
MAX_BYTES = 1 << 20
MAX_DOTS = 256
"""Most dots of a line, not counting decimal points in lists: `tomllib` takes memory and time that
grow with the square of a key's parts, 4 GB for a key of 64 kB."""
MAX_WORD = 3500
"""Longest word: Python writes no integer of more than 4,300 digits."""
_DECIMAL = re.compile(r"\d\.\d+(?=\s*[,\]])")
_LONG = re.compile(rf"\w{{{MAX_WORD + 1}}}")
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_KEYS = re.compile(rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*=")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*\]")


class SettingsError(ConfigError):
    """Settings that are refused: `what` is wrong, in which line of the file."""

    def __init__(self, problem: str, *, hint: str = "", what: str = "", line: int = 1) -> None:
        super().__init__(problem, hint=hint)
        self.what, self.line = what or problem, line


def load(path: Path | str) -> SiteSettings:
    """Load the settings of a site from a TOML file; paths are relative to the file."""
    path, hint = Path(path), f"stepvad watch --demo needs none; {GUIDE}"
    return site_settings(read_text(path, hint), path, hint)


def site_settings(text: str, path: Path, hint: str = GUIDE) -> SiteSettings:
    """The settings of a site in a text, and over them what its fleet has rolled out."""
    own = validate(text, path, SiteSettings, hint)
    rolled_out = own.data / ROLLED_OUT
    if own.fleet is None or not rolled_out.exists():
        return own
    try:
        return lay_over(text, path, json.loads(read_bounded(rolled_out, most=MAX_BYTES))["lay"])
    except (StepvadError, OSError, ValueError, LookupError, TypeError) as error:
        logger.warning("%s is ignored: %s", rolled_out, error)
        return own


def lay_over(text: str, path: Path, tables: Mapping[str, Any]) -> SiteSettings:
    """The settings in a text with tables of its fleet over them; raise if they do not fit."""
    facts: dict[str, Any] = parse(text)
    for name, table in tables.items():
        if name not in LAID:
            raise ConfigError(f"{name}: expected {', '.join(LAID)} from the fleet, got {name!r}")
        is_table = isinstance(table, dict)
        facts[name] = {**facts.get(name, {}), **table} if is_table else table
    try:
        return SiteSettings.model_validate(facts, context={"directory": path.absolute().parent})
    except ValidationError as error:
        problem, remedy = _explained(error.errors(include_url=False)[0], SiteSettings)
        raise ConfigError(problem, hint=remedy) from None


def data_of(site: Path) -> Path:
    """The data directory of a site, named by itself or by the settings."""
    return load(site).data if site.suffix == ".toml" else site


def read(path: Path | str, model: type[Model], hint: str) -> Model:
    """Load settings of any kind from a TOML file; `hint` says where to find an example."""
    path = Path(path)
    return validate(read_text(path, hint), path, model, hint)


def validate(text: str, path: Path, model: type[Model], hint: str = GUIDE) -> Model:
    """The settings in the text of a file at `path`, which need not have that text yet."""
    try:
        facts = parse(text)
    except tomllib.TOMLDecodeError as error:
        what = f"expected TOML, got: {str(error)[:1].lower()}{str(error)[1:]}"
        found = re.search(r"\(at line (\d+)", str(error))  # it names none at the end of the text
        raise SettingsError(
            f"{path}: {what}",
            hint=f"strings need quotes; {hint.rpartition('; ')[2]}",
            what=what,
            line=int(found[1]) if found else max(len(text.splitlines()), 1),
        ) from None
    try:
        return model.model_validate(facts, context={"directory": path.absolute().parent})
    except ValidationError as error:
        errors = error.errors(include_url=False)
    # report the first error, at the line of the innermost key that the text has
    first, lines = errors[0], _lines(text)
    more = f" ({len(errors) - 1} more after this)" if len(errors) > 1 else ""
    problem, remedy = _explained(first, model)
    place = first["loc"]
    if first["type"] == "missing":
        place = place[:-1]
    while place and place not in lines:
        place = place[:-1]
    line, what = lines.get(place, 1), f"{problem}{more}"
    raise SettingsError(f"{path}, line {line}: {what}", hint=remedy, what=what, line=line)


def parse(text: str) -> dict[str, object]:
    """The value of an untrusted TOML text; raises `tomllib.TOMLDecodeError`."""
    for number, line in enumerate(text.split("\n"), start=1):
        if _DECIMAL.sub("", line).count(".") > MAX_DOTS:
            raise tomllib.TOMLDecodeError(f"More than {MAX_DOTS} dots (at line {number})")
        if _LONG.search(line):
            problem = f"A word of more than {MAX_WORD:,} characters (at line {number})"
            raise tomllib.TOMLDecodeError(problem)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("Values nested too deeply") from None


def read_text(path: Path, hint: str) -> str:
    """Read the text of a settings file as it is, its ends of lines included."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"{path}: expected settings, got a file of more than {MAX_BYTES} bytes",
                hint="name the TOML file with the settings",
            )
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{path}: expected a settings file, got: {reason}",
            hint=hint,
        ) from None


def _explained(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """Message and hint for a validation error."""
    place = error["loc"]
    name = ".".join(str(part) for part in place if isinstance(part, str))
    section = _section(place[:-1], model)
    match error["type"]:
        case "extra_forbidden":
            known = ", ".join(section.model_fields)
            return f"{name}: expected a known key, got {place[-1]!r}", f"the keys here: {known}"
        case "missing":
            missing = section.model_fields.get(str(place[-1]))
            hint = f"{place[-1]}: {missing.description}" if missing else "give all of its values"
            return f"{name}: expected a value, got none", hint
        case "value_error":
            message = str(error["ctx"]["error"]) if "ctx" in error else error["msg"]
            problem, _, hint = message.partition(" | ")
            return f"{name}: {problem}" if name else problem, hint
    # any other check of pydantic, in our words; a value that may be a secret is not repeated
    wanted = error["msg"].removeprefix("Input should ").removeprefix("be ")
    if "pattern" in error.get("ctx", {}):
        wanted = f"the form {error['ctx']['pattern']}"
    secret = not {str(part) for part in place}.isdisjoint(SECRET_FIELDS)
    got = "something else" if secret else f"{error['input']!r}"[:80]
    field = section.model_fields.get(str(place[-1]))
    hint = f"{place[-1]}: {field.description}" if field else ""
    return f"{name}: expected {wanted[:1].lower()}{wanted[1:]}, got {got}", hint


def _section(place: KeyPath, model: type[BaseModel]) -> type[BaseModel]:
    """The pydantic model of a location in the settings."""
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = _inner(model.model_fields[part].annotation) or model
    return model


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X`, `X | None` or `list[X]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in getattr(annotation, "__args__", ()) if (m := _inner(a))), None)


def _lines(text: str) -> dict[KeyPath, int]:
    """The line of every table and key of a valid TOML text, counted from 1."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for _, number, line in statements(text):
        if header := _HEADER.match(line):
            table = place = _table(_parts(header[2]), header[1] == "[[", counts)
        elif key := _KEYS.match(line):
            place = table + _parts(key[1])
        else:
            continue
        # a dotted key opens each of its parts
        for end in range(1, len(place) + 1):
            lines.setdefault(place[:end], number)
    return lines


def _parts(keys: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_KEY, keys))


def _table(parts: KeyPath, is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """The location that a header opens, with indices for arrays of tables."""
    place: KeyPath = ()
    for at, part in enumerate(parts):
        place += (part,)
        if is_array and at == len(parts) - 1:
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place += (counts[place],)
    return place
