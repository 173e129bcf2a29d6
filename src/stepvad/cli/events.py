"""stepvad events: list, export and back up a site's events; mark or delete a site's or fleet's."""

from __future__ import annotations

import asyncio
import getpass
import time
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from stepvad.cli import options, terminal
from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.site import accounts

if TYPE_CHECKING:
    from stepvad.events.record import Deleted, Mark
    from stepvad.site.store import events as stores
    from stepvad.site.store import outbox

COMMAND = "command line"
"""User who marks an event with a command."""
MOST = 1000
"""Most queued messages listed; a sink that is down for days has more."""
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


@events.callback()
def _group() -> None:
    """Manage the events of a site: list, export, mark, delete. All of it works while it runs."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Events of a site to list."""

    camera: Annotated[str | None, Option(help="Only events of this camera.")] = None
    since: Since = None
    until: Until = None
    open: Annotated[bool, Option("--open", help="Only ongoing events.")] = False


@events.command("list")
@options.grouped
def list_(
    *,
    data: SiteData = options.SITE_DATA,
    wanted: EventFilter,
    id: Annotated[str | None, Option(help="Show everything about this event.")] = None,
    limit: Annotated[
        int | None, Option(min=1, help="Number of events; defaults to 20, with --output to all.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Write the events to a .jsonl or .csv file.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List events, newest first, show one, or export them, oldest first.

    Events of one camera in the last two days, and one of them:

        stepvad events list --camera yard --since 2d

        stepvad events list --id yard-1777644000-4

    Everything as JSON lines, and a week of one camera as CSV:

        stepvad events list -o events.jsonl

        stepvad events list --camera yard --since 7d -o week.csv
    """
    from stepvad.events.record import event_facts

    if id is not None:
        _show(data, id, as_json=as_json)
        return
    if output is not None:
        terminal.check_output(output, ".jsonl", ".csv")
    with open_store(data) as store:
        found = store.events(
            camera=wanted.camera,
            since=options.parse_time(wanted.since, "--since"),
            until=options.parse_time(wanted.until, "--until"),
            open=True if wanted.open else None,
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


def _show(data: Path, id: str, *, as_json: bool) -> None:
    """Print everything about one event."""
    from stepvad.codec import to_plain
    from stepvad.events.record import event_facts

    with open_store(data) as store:
        record = store.event(id)
        if record is None:
            raise DataError(
                f"event {id}: expected the id of a stored event, got an unknown id",
                hint="run stepvad events list to see the ids",
            )
        facts = event_facts(record, store.reviews([id]).get(id))
        poses, explanation = store.poses(id), store.explained(id)
    audit(data, "looked at event", id)
    if as_json:
        plain = None if explanation is None else to_plain(explanation)
        terminal.print_json(facts | {"explanation": plain})
        return
    # for people: times instead of seconds, and words instead of bytes
    for name in ("start_time", "end_time", "marked", "reviewed"):
        facts[name] = facts[name] and terminal.local_time(facts[name])
    facts["poses"] = f"{len(poses)} bytes" if poses else None
    facts["explanation"] = None if explanation is None else explanation.summary
    rows = [(name, _word(value)) for name, value in facts.items()]
    terminal.print_table(f"event {id}", ("field", "value"), rows)


@dataclass(frozen=True, slots=True)
class EventPlace:
    """A site or fleet that stores events."""

    data: SiteData = options.SITE_DATA
    fleet: Annotated[
        Path | None,
        Option("--fleet", metavar="FLEET.toml", help="Use the database of a fleet instead."),
    ] = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """Events to delete."""

    ids: Annotated[list[str] | None, Argument(help="Event ids.")] = None
    camera: Annotated[
        str | None,
        Option(help="Only events of this camera; in a fleet SITE/CAMERA, or SITE/ for all of it."),
    ] = None
    since: Since = None
    until: Until = None
    all: Annotated[bool, Option("--all", help="All events of all cameras.")] = False
    scrub: Annotated[
        bool,
        Option("--scrub", help="In a fleet: rewrite the table, to leave no trace in its files."),
    ] = False

    def span(self) -> tuple[float | None, float | None]:
        """Unix times of --since and --until."""
        since = options.parse_time(self.since, "--since")
        return since, options.parse_time(self.until, "--until")


@events.command()
@options.grouped
def delete(*, place: EventPlace, wanted: Deletion, yes: options.Yes = False) -> None:
    """Permanently delete events with their poses, explanations and pending messages.

    An event is deleted if any part of it falls between --since and --until; one that goes on only
    by its id. The files of the store keep no trace of it. Backups, exports and messages already
    sent are not affected.

    An hour of one camera, and everything without confirmation:

        stepvad events delete --camera yard --since 2026-05-01T14:00 --until 2026-05-01T15:00

        stepvad events delete --all --yes

    All events of one fleet camera, from the fleet's database:

        stepvad events delete --fleet fleet.toml --camera north/yard --scrub
    """
    if not (wanted.ids or wanted.camera or wanted.since or wanted.until or wanted.all):
        raise ConfigError(
            "delete: expected ids, --camera, --since, --until or --all, got none of them",
            hint="choose the events, for example: --camera yard --since 2d",
        )
    if wanted.scrub and place.fleet is None:
        raise ConfigError(
            "--scrub: expected --fleet with it, got a site",
            hint="leave it out: the files of a site keep no trace anyway",
        )
    span = wanted.span()  # ages count from now, and not from the answer
    if not yes:
        options.confirm("Permanently delete these events, their poses and their messages?")
    if place.fleet is None:
        done = _delete_from_site(place.data, wanted, *span)
        audit(place.data, "deleted events", f"{done.events} events")
    else:
        done = _delete_from_fleet(place.fleet, wanted, *span)
    terminal.say(f"events deleted: {done.events}")
    if done.kept_open:
        terminal.say(f"ongoing events kept: {done.kept_open}; delete them by their ids")


def _delete_from_site(
    data: Path, wanted: Deletion, since: float | None, until: float | None
) -> Deleted:
    with open_store(data) as store:
        # a misspelt camera would delete nothing and say nothing
        known = store.stored().cameras
        if wanted.camera is not None and wanted.camera not in known:
            raise DataError(
                f"camera {wanted.camera}: expected a camera that has events, got an unknown name",
                hint=f"these have: {', '.join(known) or 'none'}",
            )
        return store.delete(
            camera=wanted.camera,
            after=since,
            before=until,
            ids=wanted.ids or None,
            include_open=bool(wanted.ids),
        )


def _delete_from_fleet(
    fleet: Path, wanted: Deletion, since: float | None, until: float | None
) -> Deleted:
    settings = options.load_fleet(fleet)
    from stepvad.fleet.events import service
    from stepvad.fleet.events.postgres import Wanted

    # site/camera, or site/ for all of its cameras
    site, camera = Wanted.parts(wanted.camera)
    chosen = Wanted(
        site=site,
        camera=camera,
        until=until,
        ends_after=since,
        ids=wanted.ids or None,
    )
    deleting = service.delete(settings, chosen, include_open=bool(wanted.ids), scrub=wanted.scrub)
    return asyncio.run(deleting)


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

    The backup is checked before anything changes. The current store is kept next to it in one file,
    events.db.before-restore, which replaces an earlier one. Events deleted since the backup was
    made come back.
    """
    from stepvad.site.store.backup import restore as put_back
    from stepvad.site.store.events import FILE_NAME

    if (data / FILE_NAME).exists() and not yes:
        options.confirm(f"Replace all events in {data} with those of {file}?")
    before = put_back(file, data / FILE_NAME)
    audit(data, "restored events")
    terminal.say(f"restored {data} from {file}")
    if before is not None:
        terminal.say(
            f"the previous store is kept as {before}; delete it when you no longer need it"
        )


@events.command()
@options.grouped
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
    place: EventPlace,
) -> None:
    """Mark an event as normal or as a right alert, or remove the mark.

    A running site raises its threshold after marks of false alerts, and learns from them at its
    next fit; `stepvad calibrate --marks` does so for pose files and fleets.

    At a site, and in the database of a fleet:

        stepvad events mark yard-1777644000-4

        stepvad events mark yard-1777644000-4 --right

        stepvad events mark yard-1777644000-4 --not-normal --fleet fleet.toml
    """
    # None takes a mark back
    judged: Mark | None = "right" if right else "normal" if normal else None
    if place.fleet is None:
        with open_store(place.data) as store:
            store.mark(id, judged, time.time(), COMMAND)
        audit(place.data, "marked event", f"{id}: {judged or 'taken back'}")
    else:
        settings = options.load_fleet(place.fleet)
        from stepvad.fleet.events import service

        asyncio.run(service.mark(settings, id, judged, COMMAND))
    words = {"normal": "marked as normal", "right": "marked as a right alert"}
    terminal.say(f"{id} is {'no longer marked' if judged is None else words[judged]}")


@events.command(no_args_is_help=True)
def resend(
    site: Annotated[
        Path, Argument(metavar="SITE.toml|DATA", help="The site, given by its settings or data.")
    ],
    ids: Annotated[list[int] | None, Argument(help="Ids of messages to requeue.")] = None,
    *,
    sink: Annotated[str | None, Option("--sink", help="Only messages to this sink.")] = None,
    all: Annotated[bool, Option("--all", help="Requeue all dead letters.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List messages that did not arrive, with the last error, or requeue those that were refused.

    Pending messages are retried automatically. Dead letters, which a sink refused permanently, are
    not. List both, then requeue the dead letters, each at its original place:

        stepvad events resend site.toml

        stepvad events resend site.toml --sink webhook:pager --all

    A running site sends them within seconds, a stopped one when it starts.
    """
    from stepvad.site.settings.file import data_of

    if ids and all:
        raise ConfigError("resend: expected ids of messages or --all, got both")
    data = data_of(site)
    if not ids and not all:
        _print_undelivered(data, sink, as_json=as_json)
        return
    with open_store(data) as store:
        # all ids are known before any message is queued again
        known = {one.seq for one in store.outbox.dead_letters(sink)}
        for id in ids or ():
            if id not in known:
                raise DataError(
                    f"message {id}: expected the id of a dead letter, got an unknown id",
                    hint=f"run stepvad events resend {site} to see the ids",
                )
        count = store.outbox.resend(sink=sink, seqs=ids or None)
    audit(data, "sent messages again", f"{count} messages")
    terminal.say(f"messages requeued: {count}")


def _print_undelivered(data: Path, sink: str | None, *, as_json: bool) -> None:
    with open_store(data) as store:
        # dead letters first: only they need somebody
        messages = store.outbox.dead_letters(sink) + store.outbox.waiting(sink, MOST)
        counts = {
            name: {"waiting": waits, "refused": gone}
            for name, (waits, gone) in store.outbox.counts().items()
            if sink in (None, name)
        }
    facts = [_message_facts(one) for one in messages]
    if as_json:
        terminal.print_json({"sinks": counts, "messages": facts})
        return
    rows = [(name, str(one["waiting"]), str(one["refused"])) for name, one in counts.items()]
    terminal.print_table("messages that did not arrive", ("sink", "waiting", "refused"), rows)
    if facts:
        columns = ("id", "sink", "state", "event", "change", "tries", "last error")
        names = ("id", "sink", "state", "event_id", "kind", "tries", "error")
        terminal.print_table("", columns, [[_word(one[name]) for name in names] for one in facts])


def _message_facts(one: outbox.OutboxMessage) -> dict[str, Any]:
    """Fields listed for a message; `tries` is only set for queued ones."""
    return {
        "id": one.seq,
        "sink": one.sink,
        "state": "waiting" if one.refused is None else "refused",
        "event_id": one.event_id,
        "kind": one.kind,
        "created": one.created,
        "tries": one.tries if one.refused is None else None,
        "error": one.error,
    }


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


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_word, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)
