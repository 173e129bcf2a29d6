"""stepvad events: what a site has stored."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from stepvad.cli.terminal import AsJson, check_output, print_json, print_table, say
from stepvad.cli.undelivered import resend, undelivered
from stepvad.errors import ConfigError, DataError

if TYPE_CHECKING:
    from stepvad.incidents.record import Record
    from stepvad.site.store.eventstore import Store

events = typer.Typer(no_args_is_help=True, help="What a site has stored: look, export, delete.")

AGO = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of a time before now."""

Data = Annotated[Path, typer.Option("--data", "-d", help="The data directory of the site.")]
Here = Path("site-data")
Camera = Annotated[str | None, typer.Option(help="Only of this camera.")]
Since = Annotated[
    str | None,
    typer.Option(help="Only from this time on: 2026-05-01T14:00, or 2d, 3h, 10m, 30s before now."),
]
Until = Annotated[str | None, typer.Option(help="Only before this time, written as for --since.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Id = Annotated[str, typer.Argument(help="The id of an event.")]


@events.callback()
def _group() -> None:
    """What a site has stored: look, export, delete. All of it works while the site runs."""


@events.command("list")
def list_(
    *,
    data: Data = Here,
    camera: Camera = None,
    since: Since = None,
    until: Until = None,
    open: Annotated[bool, typer.Option("--open", help="Only those that go on.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List events, the newest first.

    Those of one camera in the last two days:

        stepvad events list --camera yard --since 2d
    """
    with open_store(data) as store:
        found = store.events(
            camera=camera,
            since=time_of(since, "--since"),
            until=time_of(until, "--until"),
            open=True if open else None,
            limit=limit,
        )
        marked = store.marked()
    if as_json:
        print_json([_facts(one, marked) for one in found])
        return
    columns = ("start", "lasts", "camera", "top score", "marked", "id", "why")
    rows = [
        (
            _clock(one.start_time),
            "goes on" if one.end_time is None else f"{one.end_time - one.start_time:.1f} s",
            one.camera,
            f"{one.top_score:.2f}",
            "normal" if one.id in marked else "",
            one.id,
            _shortened(one.why or ""),
        )
        for one in found
    ]
    print_table(f"events: {len(found)}", columns, rows)


@events.command()
def show(id: Id, *, data: Data = Here, as_json: AsJson = False) -> None:
    """Show everything about one event."""
    with open_store(data) as store:
        record = store.event(id)
        if record is None:
            raise _unknown(id)
        facts = _facts(record, store.marked())
        poses, explanation = store.poses(id), store.explained(id)
    if as_json:
        print_json(facts | {"explanation": None if explanation is None else explanation.to_json()})
        return
    for name in ("start_time", "end_time", "marked"):
        facts[name] = facts[name] and _clock(facts[name])
    facts["poses"] = f"{len(poses)} bytes" if poses else None
    facts["explanation"] = None if explanation is None else explanation.summary
    rows = [(name, _word(value)) for name, value in facts.items()]
    print_table(f"event {id}", ("field", "value"), rows)


@events.command()
def export(
    *,
    data: Data = Here,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; stdout if none is named.")
    ] = None,
    format: Annotated[
        Literal["jsonl", "csv"], typer.Option(help="A line of JSON or of CSV for each event.")
    ] = "jsonl",
    camera: Camera = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Write all events, or some, the oldest first.

    As lines of JSON, and a week of one camera as CSV:

        stepvad events export -o events.jsonl

        stepvad events export --format csv --camera yard --since 7d -o week.csv
    """
    if output is not None:
        check_output(output)
    begin, end = time_of(since, "--since"), time_of(until, "--until")
    with open_store(data) as store:
        found = store.events(camera=camera, since=begin, until=end, limit=None)
        marked = store.marked()
    facts = [_facts(one, marked) for one in reversed(found)]
    if output is None:
        _write(facts, format, sys.stdout)
        return
    from stepvad.files.atomic import replacing

    with replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        _write(facts, format, file)
    say(f"events written to {output}: {len(facts)}")


@events.command()
def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of events.")] = None,
    *,
    data: Data = Here,
    camera: Camera = None,
    since: Since = None,
    until: Until = None,
    all: Annotated[bool, typer.Option("--all", help="All events of all cameras.")] = False,
    include_open: Annotated[
        bool, typer.Option("--include-open", help="Those that go on as well.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete events with their poses, explanations and waiting messages, for good.

    An event goes if any part of it lies between --since and --until. The files of the store keep
    no trace of what was deleted. Backups, exports and what was sent elsewhere are not touched.

    An hour of one camera, and everything without a question:

        stepvad events delete --camera yard --since 2026-05-01T14:00 --until 2026-05-01T15:00

        stepvad events delete --all --yes
    """
    if not (ids or camera or since or until or all):
        raise ConfigError(
            "delete: expected ids, --camera, --since, --until or --all, got none of them",
            hint="say which events to delete",
        )
    begin, end = time_of(since, "--since"), time_of(until, "--until")
    with open_store(data) as store:
        known = store.stored().cameras
        if camera is not None and camera not in known:
            raise DataError(
                f"camera {camera}: expected one that has events, got another name",
                hint=f"these have: {', '.join(known) or 'none'}",
            )
        if not yes and not as_json:
            _ask("Delete these events, their poses and their messages for good?")
        done = store.delete(
            camera=camera, after=begin, before=end, ids=ids or None, include_open=include_open
        )
    if as_json:
        print_json({"deleted": done.events, "kept_open": done.kept_open})
        return
    say(f"events deleted: {done.events}")
    if done.kept_open:
        say(f"{done.kept_open} go on and stay; --include-open deletes them too")


@events.command()
def stored(*, data: Data = Here, as_json: AsJson = False) -> None:
    """List everything that the site stores about people, with its size. It holds no pixels."""
    with open_store(data) as store:
        found = store.stored()
    others = {path: _size(path) for path in sorted(data.iterdir()) if path not in found.files}
    if as_json:
        kept = [
            {name: getattr(one, name) for name in ("what", "holds", "count", "first", "last")}
            | {"bytes": one.bytes}
            for one in found.kept
        ]
        files = {str(path): size for path, size in (found.files | others).items()}
        print_json({"kept": kept, "cameras": found.cameras, "files": files, "pixels": False})
        return
    rows = [
        (one.what, f"{one.count}", _day(one.first), _day(one.last), f"{one.bytes}", one.holds)
        for one in found.kept
    ]
    columns = ("what", "count", "from", "to", "bytes", "holds")
    print_table(f"Stored in {data}", columns, rows)
    cameras = [(camera, f"{count}") for camera, count in found.cameras.items()]
    print_table("\nCameras", ("camera", "events"), cameras)
    sizes = [(path.name, f"{size}") for path, size in (found.files | others).items()]
    print_table("\nFiles", ("file", "bytes"), sizes)
    typer.echo("\nNo pixels are stored. Joint coordinates can identify people: they are not")
    typer.echo("anonymous, and go after the days that the settings say.")


@events.command()
def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the copy.")], *, data: Data = Here
) -> None:
    """Copy the event store to one file, while the site goes on.

    To another disk:

        stepvad events backup /mnt/backup/events.db
    """
    check_output(file)
    with open_store(data) as store:
        store.backup(file)
    say(f"{file.stat().st_size} bytes written to {file}")


@events.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that backup wrote.")],
    *,
    data: Data = Here,
    yes: Yes = False,
) -> None:
    """Put a backup in the place of the event store. Stop the site first.

    The backup is checked before anything changes. What the store holds now is kept beside it in
    one file, events.db.before-restore, which takes the place of an earlier one. Events deleted
    since the backup was made are there again.
    """
    from stepvad.site.store.eventstore import FILE_NAME
    from stepvad.site.store.restore import restore as put_back

    if (data / FILE_NAME).exists() and not yes:
        _ask(f"Replace all events in {data} by those of {file}?")
    before = put_back(file, data / FILE_NAME)
    say(f"{data} holds what {file} held")
    if before is not None:
        say(f"the store before that is kept as {before}; delete it when you no longer need it")


@events.command()
def mark(
    id: Id,
    *,
    normal: Annotated[
        bool, typer.Option("--normal/--not-normal", help="Normal, or not after all.")
    ] = True,
    data: Data = Here,
) -> None:
    """Say that an event was normal, or take that back."""
    with open_store(data) as store:
        store.mark(id, "normal" if normal else None, time.time())
    say(f"{id} is {'' if normal else 'no longer '}marked as normal")


for verb in (undelivered, resend):
    events.command(no_args_is_help=True)(verb)


@contextmanager
def open_store(data: Path) -> Iterator[Store]:
    """The store of a site that has run."""
    from stepvad.site.store.eventstore import FILE_NAME, Store

    store = Store(data / FILE_NAME, create=False)
    try:
        yield store
    finally:
        store.close()


def time_of(text: str | None, option: str) -> float | None:
    """A time in unix seconds, from a date or from how long ago it is."""
    if text is None:
        return None
    amount, unit = text[:-1], text[-1:]
    if unit in AGO and amount.replace(".", "", 1).isdecimal():
        return (datetime.now(UTC) - timedelta(seconds=float(amount) * AGO[unit])).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigError(
            f"{option}: expected a time, got {text!r}",
            hint="2026-05-01, 2026-05-01T14:00, or 2d, 3h, 10m, 30s before now",
        ) from None


def _facts(record: Record, marked: dict[str, float]) -> dict[str, Any]:
    """All that is known of an event, with the time at which it was marked as normal."""
    return record.to_json() | {"marked": marked.get(record.id)}


def _write(facts: list[dict[str, Any]], format: str, file: TextIO) -> None:
    if format == "jsonl":
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in facts)
        return
    from dataclasses import fields

    from stepvad.incidents.record import Record

    names = [field.name for field in fields(Record)]
    writer = csv.DictWriter(file, [*names, "marked"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in one.items()} for one in facts)


def _cell(value: Any) -> Any:
    """A value for one cell; a spreadsheet must not take a text for a formula."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in "=+-@\t\r":
        return f"'{value}"
    return value


def _ask(question: str) -> None:
    if not typer.confirm(question, err=True):
        raise typer.Abort


def _unknown(id: str) -> DataError:
    return DataError(
        f"event {id}: expected the id of a stored event, got none like it",
        hint="stepvad events list shows the ids",
    )


def _size(path: Path) -> int:
    """The bytes of a file, or of all files in a directory."""
    inside = [path] if path.is_file() else path.rglob("*")
    return sum(one.stat().st_size for one in inside if one.is_file())


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")


def _day(seconds: float | None) -> str:
    return "-" if seconds is None else _clock(seconds)[:16]


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_word, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
