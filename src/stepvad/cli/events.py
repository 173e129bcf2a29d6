"""stepvad events: list, export and back up a site's events; mark or delete a site's or fleet's."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stepvad.cli.event_deletion import delete
from stepvad.cli.event_options import (
    CameraOption,
    EventIdArgument,
    Fleet,
    Here,
    Since,
    SiteDataOption,
    Until,
    Yes,
    ask,
    time_of,
)
from stepvad.cli.terminal import AsJson, check_fleet, check_output, print_json, print_table, say
from stepvad.cli.undelivered import resend, undelivered
from stepvad.errors import DataError

events = typer.Typer(no_args_is_help=True, help="What a site has stored: look, export, delete.")


@events.callback()
def _group() -> None:
    """What a site has stored: look, export, delete. All of it works while the site runs."""


@events.command("list")
def list_(
    *,
    data: SiteDataOption = Here,
    camera: CameraOption = None,
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
    from stepvad.formats.eventtable import facts
    from stepvad.site.store.access import open_store

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
        print_json([facts(one, marked.get(one.id)) for one in found])
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
def show(id: EventIdArgument, *, data: SiteDataOption = Here, as_json: AsJson = False) -> None:
    """Show everything about one event."""
    from stepvad.formats import eventtable
    from stepvad.site.store.access import open_store

    with open_store(data) as store:
        record = store.event(id)
        if record is None:
            raise DataError(
                f"event {id}: expected the id of a stored event, got none like it",
                hint="stepvad events list shows the ids",
            )
        facts = eventtable.facts(record, store.marked().get(id))
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
    data: SiteDataOption = Here,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; stdout if none is named.")
    ] = None,
    format: Annotated[
        Literal["jsonl", "csv"], typer.Option(help="A line of JSON or of CSV for each event.")
    ] = "jsonl",
    camera: CameraOption = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Write all events, or some, the oldest first.

    As lines of JSON, and a week of one camera as CSV:

        stepvad events export -o events.jsonl

        stepvad events export --format csv --camera yard --since 7d -o week.csv
    """
    from stepvad.files.atomic import replacing
    from stepvad.formats import eventtable
    from stepvad.site.store.access import open_store

    if output is not None:
        check_output(output)
    begin, end = time_of(since, "--since"), time_of(until, "--until")
    with open_store(data) as store:
        found = store.events(camera=camera, since=begin, until=end, limit=None)
        marked = store.marked()
    facts = [eventtable.facts(one, marked.get(one.id)) for one in reversed(found)]
    if output is None:
        eventtable.write(facts, format, sys.stdout)
        return
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        eventtable.write(facts, format, file)
    say(f"events written to {output}: {len(facts)}")


events.command()(delete)


@events.command()
def stored(*, data: SiteDataOption = Here, as_json: AsJson = False) -> None:
    """List everything that the site stores about people, with its size. It holds no pixels."""
    from stepvad.site.store.access import file_sizes, open_store

    with open_store(data) as store:
        found = store.stored()
    files = found.files | {p: n for p, n in file_sizes(data).items() if p not in found.files}
    if as_json:
        kept = [
            {name: getattr(one, name) for name in ("what", "holds", "count", "first", "last")}
            | {"bytes": one.bytes}
            for one in found.kept
        ]
        sizes = {str(path): size for path, size in files.items()}
        print_json({"kept": kept, "cameras": found.cameras, "files": sizes, "pixels": False})
        return
    rows = [
        (one.what, f"{one.count}", _day(one.first), _day(one.last), f"{one.bytes}", one.holds)
        for one in found.kept
    ]
    columns = ("what", "count", "from", "to", "bytes", "holds")
    print_table(f"Stored in {data}", columns, rows)
    cameras = [(camera, f"{count}") for camera, count in found.cameras.items()]
    print_table("\nCameras", ("camera", "events"), cameras)
    rows_of_files = [(path.name, f"{size}") for path, size in files.items()]
    print_table("\nFiles", ("file", "bytes"), rows_of_files)
    typer.echo("\nNo pixels are stored. Joint coordinates can identify people: they are not")
    typer.echo("anonymous, and go after the days that the settings say.")


@events.command()
def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the copy.")],
    *,
    data: SiteDataOption = Here,
) -> None:
    """Copy the event store to one file, while the site goes on.

    To another disk:

        stepvad events backup /mnt/backup/events.db
    """
    from stepvad.site.store.access import open_store

    check_output(file)
    with open_store(data) as store:
        store.backup(file)
    say(f"{file.stat().st_size} bytes written to {file}")


@events.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that backup wrote.")],
    *,
    data: SiteDataOption = Here,
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
        ask(f"Replace all events in {data} by those of {file}?")
    before = put_back(file, data / FILE_NAME)
    say(f"{data} holds what {file} held")
    if before is not None:
        say(f"the store before that is kept as {before}; delete it when you no longer need it")


@events.command()
def mark(
    id: EventIdArgument,
    *,
    normal: Annotated[
        bool, typer.Option("--normal/--not-normal", help="Normal, or not after all.")
    ] = True,
    data: SiteDataOption = Here,
    fleet: Fleet = None,
) -> None:
    """Say that an event was normal, or take that back; `stepvad recalibrate` heeds it.

    At a site, and in the database of a fleet:

        stepvad events mark yard-1777644000-4

        stepvad events mark yard-1777644000-4 --not-normal --fleet fleet.toml
    """
    if fleet is None:
        from stepvad.site.store.access import open_store

        with open_store(data) as store:
            store.mark(id, "normal" if normal else None, time.time())
    else:
        check_fleet()
        from stepvad.fleet.events import service
        from stepvad.fleet.settings import load

        asyncio.run(service.mark(load(fleet), id, normal=normal))
    say(f"{id} is {'' if normal else 'no longer '}marked as normal")


for verb in (undelivered, resend):
    events.command(no_args_is_help=True)(verb)


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
