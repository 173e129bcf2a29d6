"""stepvad events: list, export, back up, mark and delete the events of a site."""

from __future__ import annotations

import getpass
import time
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from stepvad.cli import options, terminal
from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.site import accounts

if TYPE_CHECKING:
    from stepvad.events.record import Mark
    from stepvad.site.store import events as stores

COMMAND = "command line"
"""User who marks an event with a command."""
LISTED = 20
"""Events that a table lists if nothing else is asked for."""
LONGEST = 60
"""Characters of a description in a table."""

events = Typer(
    name="events",
    no_args_is_help=True,
    help="Manage the events of a site: list, export, mark, delete.",
)

SiteData = Annotated[Path, Option("--data", "-d", help="Data directory of the site.")]
Since = Annotated[
    str | None,
    Option(help="Only events since this time: 2026-05-01T14:00, or 2d, 3h, 10m, 30s ago."),
]
Until = Annotated[str | None, Option(help="Only events before this time, written as for --since.")]


@events.command("list")
def list_(
    *,
    data: SiteData = options.SITE_DATA,
    camera: Annotated[str | None, Option(help="Only events of this camera.")] = None,
    since: Since = None,
    until: Until = None,
    open: Annotated[bool, Option("--open", help="Only ongoing events.")] = False,
    limit: Annotated[
        int | None, Option(min=1, help="Number of events; defaults to 20, with --output to all.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Write the events to a .jsonl or .csv file.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List events, newest first, or export them, oldest first.

    Events of one camera in the last two days:

        stepvad events list --camera yard --since 2d

    Everything as JSON lines, and a week of one camera as CSV:

        stepvad events list -o events.jsonl

        stepvad events list --camera yard --since 7d -o week.csv
    """
    from stepvad.events.record import event_facts

    if output is not None:
        terminal.check_output(output, ".jsonl", ".csv")
    with open_store(data) as store:
        found = store.events(
            camera=camera,
            since=options.parse_time(since, "--since"),
            until=options.parse_time(until, "--until"),
            open=True if open else None,
            limit=limit or (LISTED if output is None else None),
        )
        reviews = store.reviews()
    # exported oldest first, listed newest first
    facts = [event_facts(one, reviews.get(one.id)) for one in found]
    if output is not None:
        _export(facts[::-1], output)
        audit(data, "exported events", f"{len(found)} events")
        return
    audit(data, "looked at the list of events")
    if as_json:
        terminal.print_json(facts)
        return
    rows = []
    for one in found:
        review, why = reviews.get(one.id), one.why or ""
        start = terminal.local_time(one.start_time)
        lasts = "goes on" if one.end_time is None else f"{one.end_time - one.start_time:.1f} s"
        said = "" if review is None else review.mark or "seen"
        short = why if len(why) <= LONGEST else f"{why[: LONGEST - 1]}…"
        rows.append((start, lasts, one.camera, f"{one.top_score:.2f}", said, one.id, short))
    columns = ("start", "lasts", "camera", "top score", "said", "id", "why")
    terminal.print_table(f"events: {len(found)}", columns, rows)


def _export(facts: list[dict[str, Any]], output: Path) -> None:
    from stepvad.events import record
    from stepvad.files import replacing

    format: record.TableFormat = "csv" if output.suffix == ".csv" else "jsonl"
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        record.write_events(facts, format, file)
    terminal.say(f"events written to {output}: {len(facts)}")


@events.command()
def delete(
    *,
    data: SiteData = options.SITE_DATA,
    ids: Annotated[list[str] | None, Argument(help="Event ids.")] = None,
    camera: Annotated[str | None, Option(help="Only events of this camera.")] = None,
    since: Since = None,
    until: Until = None,
    all: Annotated[bool, Option("--all", help="All events of all cameras.")] = False,
    yes: options.Yes = False,
) -> None:
    """Permanently delete events with their poses, explanations and pending messages.

    An event is deleted if any part of it falls between --since and --until; one that goes on only
    by its id. The files of the store keep no trace of it. Backups, exports and messages already
    sent are not affected.

    An hour of one camera, and everything without confirmation:

        stepvad events delete --camera yard --since 2026-05-01T14:00 --until 2026-05-01T15:00

        stepvad events delete --all --yes
    """
    if not (ids or camera or since or until or all):
        raise ConfigError(
            "delete: expected ids, --camera, --since, --until or --all, got none of them",
            hint="choose the events, for example: --camera yard --since 2d",
        )
    # ages count from now, and not from the answer
    after, before = options.parse_time(since, "--since"), options.parse_time(until, "--until")
    if not yes:
        options.confirm("Permanently delete these events, their poses and their messages?")
    with open_store(data) as store:
        # a misspelt camera would delete nothing and say nothing
        known = store.stored().cameras
        if camera is not None and camera not in known:
            raise DataError(
                f"camera {camera}: expected a camera that has events, got an unknown name",
                hint=f"these have: {', '.join(known) or 'none'}",
            )
        done = store.delete(
            camera=camera, after=after, before=before, ids=ids or None, include_open=bool(ids)
        )
    audit(data, "deleted events", f"{done.events} events")
    terminal.say(f"events deleted: {done.events}")
    if done.kept_open:
        terminal.say(f"ongoing events kept: {done.kept_open}; delete them by their ids")


@events.command()
def backup(
    file: Annotated[Path, Argument(help="Backup file to write.")],
    *,
    data: SiteData = options.SITE_DATA,
) -> None:
    """Back up the event store to one file, while the site runs.

    To another disk:

        stepvad events backup /mnt/backup/events.db
    """
    terminal.check_output(file)
    with open_store(data) as store:
        store.backup(file)
    audit(data, "backed up events")
    terminal.say(f"{file.stat().st_size} bytes written to {file}")


@events.command()
def restore(
    file: Annotated[Path, Argument(help="Backup file, written by `events backup`.")],
    *,
    data: SiteData = options.SITE_DATA,
    yes: options.Yes = False,
) -> None:
    """Replace the event store with a backup. Stop the site first.

    The backup is checked before anything changes. Events deleted since it was made come back.
    """
    from stepvad.site.store.backup import restore as put_back
    from stepvad.site.store.events import FILE_NAME

    if (data / FILE_NAME).exists() and not yes:
        options.confirm(f"Replace all events in {data} with those of {file}?")
    put_back(file, data / FILE_NAME)
    audit(data, "restored events")
    terminal.say(f"restored {data} from {file}")


@events.command()
def mark(
    id: Annotated[str, Argument(help="Event id.")],
    *,
    normal: Annotated[
        bool, Option("--normal/--not-normal", help="Mark as normal, or remove the mark.")
    ] = True,
    right: Annotated[
        bool,
        Option("--right", help="Mark as a right alert instead; the site never learns from it."),
    ] = False,
    data: SiteData = options.SITE_DATA,
) -> None:
    """Mark an event as normal or as a right alert, or remove the mark.

    A running site passes over motion like that of a normal event, at its place, unless that would
    hide a right alert. No mark moves a limit.

        stepvad events mark yard-1777644000-4

        stepvad events mark yard-1777644000-4 --right

        stepvad events mark yard-1777644000-4 --not-normal
    """
    # None takes a mark back
    judged: Mark | None = "right" if right else "normal" if normal else None
    with open_store(data) as store:
        store.mark(id, judged, time.time(), COMMAND)
    audit(data, "marked event", f"{id}: {judged or 'taken back'}")
    words = {"normal": "marked as normal", "right": "marked as a right alert"}
    terminal.say(f"{id} is {'no longer marked' if judged is None else words[judged]}")


def open_store(data: Path) -> AbstractContextManager[stores.Store]:
    """The events of a site, opened; imported here to keep --help fast."""
    from stepvad.site.store import events

    return events.open_store(data)


def unix_user() -> str:
    """User who runs the command, for the audit log; no account can have this name."""
    try:
        return f"command line ({getpass.getuser()})"
    except (OSError, KeyError):  # a container's user without a name
        return "command line"


def audit(data: Path, action: str, subject: str = "") -> None:
    """Write a line into the audit log in a data directory, if its site has one."""
    if not (data / accounts.FILE_NAME).is_file():
        return
    try:
        with closing(accounts.Accounts(data / accounts.FILE_NAME)) as opened:
            opened.audit.record(unix_user(), action, subject)
    except StepvadError as error:  # what was asked for is done
        terminal.say(f"warning: the audit log misses this command: {error.problem}")
