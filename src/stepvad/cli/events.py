"""stepvad events: list, export and back up a site's events; mark or delete a site's or fleet's."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stepvad.cli.audited import note
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
from stepvad.codec import to_plain
from stepvad.errors import DataError
from stepvad.incidents.review import Mark, Review

COMMAND = "command line"
"""Who marks an event with a command."""

events = typer.Typer(
    no_args_is_help=True, help="Manage the events of a site: list, export, delete."
)


@events.callback()
def _group() -> None:
    """Manage the events of a site: list, export, delete. All of it works while the site runs."""


@events.command("list")
def list_(
    *,
    data: SiteDataOption = Here,
    camera: CameraOption = None,
    since: Since = None,
    until: Until = None,
    open: Annotated[bool, typer.Option("--open", help="Only ongoing events.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List events, newest first.

    Events of one camera in the last two days:

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
        said = store.reviews()
    note(data, "looked at the list of events")
    if as_json:
        print_json([facts(one, said.get(one.id)) for one in found])
        return
    columns = ("start", "lasts", "camera", "top score", "said", "id", "why")
    rows = [
        (
            _clock(one.start_time),
            "goes on" if one.end_time is None else f"{one.end_time - one.start_time:.1f} s",
            one.camera,
            f"{one.top_score:.2f}",
            _said(said.get(one.id)),
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
                f"event {id}: expected the id of a stored event, got an unknown id",
                hint="run stepvad events list to see the ids",
            )
        facts = eventtable.facts(record, store.reviews([id]).get(id))
        poses, explanation = store.poses(id), store.explained(id)
    note(data, "looked at event", id)
    if as_json:
        print_json(facts | {"explanation": None if explanation is None else to_plain(explanation)})
        return
    for name in ("start_time", "end_time", "marked", "reviewed"):
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
        Path | None, typer.Option("--output", "-o", help="Output file; defaults to stdout.")
    ] = None,
    format: Annotated[
        Literal["jsonl", "csv"], typer.Option(help="One line of JSON or CSV per event.")
    ] = "jsonl",
    camera: CameraOption = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Export all events or a selection, oldest first.

    Everything as JSON lines, and a week of one camera as CSV:

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
        said = store.reviews()
    note(data, "exported events", f"{len(found)} events")
    facts = [eventtable.facts(one, said.get(one.id)) for one in reversed(found)]
    if output is None:
        eventtable.write(facts, format, sys.stdout)
        return
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        eventtable.write(facts, format, file)
    say(f"events written to {output}: {len(facts)}")


events.command()(delete)


@events.command()
def stored(*, data: SiteDataOption = Here, as_json: AsJson = False) -> None:
    """List everything the site stores about people, with sizes.

    It stores no pixels; a camera with `draw_place` has one drawing of edges, made when nobody was
    in view.
    """
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
        facts = {"kept": kept, "cameras": found.cameras, "files": sizes}
        print_json(facts | {"pixels": found.has_drawings})
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
    but = " except edges, in the drawings of places" if found.has_drawings else ""
    typer.echo(f"\nNo pixels are stored{but}. Joint coordinates can identify people: they are not")
    typer.echo("anonymous, and are deleted after the days in the settings.")


@events.command()
def backup(
    file: Annotated[Path, typer.Argument(help="Backup file to write.")],
    *,
    data: SiteDataOption = Here,
) -> None:
    """Back up the event store to one file, while the site runs.

    To another disk:

        stepvad events backup /mnt/backup/events.db
    """
    from stepvad.site.store.access import open_store

    check_output(file)
    with open_store(data) as store:
        store.backup(file)
    note(data, "backed up events")
    say(f"{file.stat().st_size} bytes written to {file}")


@events.command()
def restore(
    file: Annotated[Path, typer.Argument(help="Backup file, written by `events backup`.")],
    *,
    data: SiteDataOption = Here,
    yes: Yes = False,
) -> None:
    """Replace the event store with a backup. Stop the site first.

    The backup is checked before anything changes. The current store is kept next to it in one file,
    events.db.before-restore, which replaces an earlier one. Events deleted since the backup was
    made come back.
    """
    from stepvad.site.store.eventstore import FILE_NAME
    from stepvad.site.store.restore import restore as put_back

    if (data / FILE_NAME).exists() and not yes:
        ask(f"Replace all events in {data} with those of {file}?")
    before = put_back(file, data / FILE_NAME)
    note(data, "restored events")
    say(f"restored {data} from {file}")
    if before is not None:
        say(f"the previous store is kept as {before}; delete it when you no longer need it")


@events.command()
def mark(
    id: EventIdArgument,
    *,
    normal: Annotated[
        bool, typer.Option("--normal/--not-normal", help="Mark as normal, or remove the mark.")
    ] = True,
    right: Annotated[
        bool,
        typer.Option(
            "--right", help="Mark as a right alert instead; the site never learns from it."
        ),
    ] = False,
    data: SiteDataOption = Here,
    fleet: Fleet = None,
) -> None:
    """Mark an event as normal or as a right alert, or remove the mark.

    A running site raises its threshold after marks of false alerts, and learns from them at its
    next fit; `stepvad calibrate --marks` does so for pose files and fleets.

    At a site, and in the database of a fleet:

        stepvad events mark yard-1777644000-4

        stepvad events mark yard-1777644000-4 --right

        stepvad events mark yard-1777644000-4 --not-normal --fleet fleet.toml
    """
    judged: Mark | None = "right" if right else "normal" if normal else None
    if fleet is None:
        from stepvad.site.store.access import open_store

        with open_store(data) as store:
            store.mark(id, judged, time.time(), COMMAND)
        note(data, "marked event", f"{id}: {judged or 'taken back'}")
    else:
        check_fleet()
        from stepvad.fleet.events import service
        from stepvad.fleet.settings import load

        asyncio.run(service.mark(load(fleet), id, judged, COMMAND))
    words = {"normal": "marked as normal", "right": "marked as a right alert"}
    say(f"{id} is {'no longer marked' if judged is None else words[judged]}")


for verb in (undelivered, resend):
    events.command(no_args_is_help=True)(verb)


def _said(review: Review | None) -> str:
    return "" if review is None else review.mark or "seen"


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
