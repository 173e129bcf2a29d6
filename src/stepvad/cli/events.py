"""stepvad events: list, export and back up a site's events; mark or delete a site's or fleet's."""

from __future__ import annotations

import getpass
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepvad.cli.options import (
    AnyCamera,
    CameraOption,
    EventIdArgument,
    Fleet,
    Here,
    Scrub,
    Since,
    SiteDataOption,
    Until,
    Yes,
    ask,
    time_of,
)
from stepvad.cli.terminal import AsJson, check_fleet, check_output, print_json, print_table, say
from stepvad.errors import ConfigError, DataError, StepvadError

if TYPE_CHECKING:
    from stepvad.events.record import Deleted, Mark, Review
    from stepvad.site.store.outbox import DeadLetter, OutboxMessage

COMMAND = "command line"
"""Who marks an event with a command."""
MOST = 1000
"""Most queued messages listed; a sink that is down for days has more."""
SHOWN = 20
"""Events that a table lists if nothing else is asked for."""

events = typer.Typer(
    name="events",
    no_args_is_help=True,
    help="Manage the events of a site: list, export, mark, delete.",
)


@events.callback()
def _group() -> None:
    """Manage the events of a site: list, export, mark, delete. All of it works while it runs."""


@events.command("list")
def list_(
    *,
    data: SiteDataOption = Here,
    camera: CameraOption = None,
    since: Since = None,
    until: Until = None,
    open: Annotated[bool, typer.Option("--open", help="Only ongoing events.")] = False,
    id: Annotated[str | None, typer.Option(help="Show everything about this event.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Number of events; defaults to 20, with --output to all."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the events to a .jsonl or .csv file."),
    ] = None,
    as_json: AsJson = False,
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
    from stepvad.site.store.events import open_store

    if id is not None:
        _show(data, id, as_json=as_json)
        return
    if output is not None:
        _check_export(output)
    with open_store(data) as store:
        found = store.events(
            camera=camera,
            since=time_of(since, "--since"),
            until=time_of(until, "--until"),
            open=True if open else None,
            limit=limit or (SHOWN if output is None else None),
        )
        said = store.reviews()
    facts = [event_facts(one, said.get(one.id)) for one in found]
    if output is not None:
        _export(facts[::-1], output)
        note(data, "exported events", f"{len(found)} events")
        return
    note(data, "looked at the list of events")
    if as_json:
        print_json(facts)
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


def _check_export(output: Path) -> None:
    """Before the work starts, reject a file that cannot be written."""
    check_output(output)
    if output.suffix not in (".jsonl", ".csv"):
        raise ConfigError(
            f"{output}: expected a name that ends in .jsonl or .csv",
            hint="choose a name such as events.jsonl",
        )


def _export(facts: list[dict[str, Any]], output: Path) -> None:
    from stepvad.events.record import TableFormat, write_events
    from stepvad.files import replacing

    format: TableFormat = "csv" if output.suffix == ".csv" else "jsonl"
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        write_events(facts, format, file)
    say(f"events written to {output}: {len(facts)}")


def _show(data: Path, id: str, *, as_json: bool) -> None:
    """Print everything about one event."""
    from stepvad.codec import to_plain
    from stepvad.events.record import event_facts
    from stepvad.site.store.events import open_store

    with open_store(data) as store:
        record = store.event(id)
        if record is None:
            raise DataError(
                f"event {id}: expected the id of a stored event, got an unknown id",
                hint="run stepvad events list to see the ids",
            )
        facts = event_facts(record, store.reviews([id]).get(id))
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
def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Event ids.")] = None,
    *,
    data: SiteDataOption = Here,
    fleet: Fleet = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Only events of this tenant; defaults to the fleet's own sites."),
    ] = None,
    camera: AnyCamera = None,
    since: Since = None,
    until: Until = None,
    all: Annotated[bool, typer.Option("--all", help="All events of all cameras.")] = False,
    scrub: Scrub = False,
    yes: Yes = False,
) -> None:
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
    if not (ids or camera or since or until or all):
        raise ConfigError(
            "delete: expected ids, --camera, --since, --until or --all, got none of them",
            hint="choose the events, for example: --camera yard --since 2d",
        )
    if scrub and fleet is None:
        raise ConfigError(
            "--scrub: expected --fleet with it, got a site",
            hint="leave it out: the files of a site keep no trace anyway",
        )
    if tenant is not None and fleet is None:
        raise ConfigError("--tenant: expected --fleet with it, got a site")
    begin, end = time_of(since, "--since"), time_of(until, "--until")
    if not yes:
        ask("Permanently delete these events, their poses and their messages?")
    if fleet is None:
        done = _delete_from_site(data, ids, camera, begin, end)
        note(data, "deleted events", f"{done.events} events")
    else:
        whose = tenant if tenant is not None or ids else ""
        done = _delete_from_fleet(fleet, whose, ids, camera, begin, end, scrub=scrub)
    say(f"events deleted: {done.events}")
    if done.kept_open:
        say(f"ongoing events kept: {done.kept_open}; delete them by their ids")


def _delete_from_site(
    data: Path, ids: list[str] | None, camera: str | None, since: float | None, until: float | None
) -> Deleted:
    from stepvad.site.store.events import open_store

    with open_store(data) as store:
        known = store.stored().cameras
        if camera is not None and camera not in known:
            raise DataError(
                f"camera {camera}: expected a camera that has events, got an unknown name",
                hint=f"these have: {', '.join(known) or 'none'}",
            )
        return store.delete(
            camera=camera, after=since, before=until, ids=ids or None, include_open=bool(ids)
        )


def _delete_from_fleet(
    fleet: Path,
    tenant: str | None,
    ids: list[str] | None,
    place: str | None,
    since: float | None,
    until: float | None,
    *,
    scrub: bool,
) -> Deleted:
    check_fleet()
    import asyncio

    from stepvad.fleet.events import service
    from stepvad.fleet.events.wanted import Wanted
    from stepvad.fleet.settings import load

    site, camera = Wanted.parts(place)
    wanted = Wanted(
        tenant=tenant, site=site, camera=camera, until=until, ends_after=since, ids=ids or None
    )
    return asyncio.run(service.delete(load(fleet), wanted, include_open=bool(ids), scrub=scrub))


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
    from stepvad.site.store.events import open_store

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
    from stepvad.site.store.backup import restore as put_back
    from stepvad.site.store.events import FILE_NAME

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
        from stepvad.site.store.events import open_store

        with open_store(data) as store:
            store.mark(id, judged, time.time(), COMMAND)
        note(data, "marked event", f"{id}: {judged or 'taken back'}")
    else:
        check_fleet()
        import asyncio

        from stepvad.fleet.events import service
        from stepvad.fleet.settings import load

        asyncio.run(service.mark(load(fleet), id, judged, COMMAND))
    words = {"normal": "marked as normal", "right": "marked as a right alert"}
    say(f"{id} is {'no longer marked' if judged is None else words[judged]}")


SinkName = Annotated[str | None, typer.Option("--sink", help="Only messages to this sink.")]


@events.command(no_args_is_help=True)
def resend(
    site: Annotated[
        Path,
        typer.Argument(metavar="SITE.toml|DATA", help="The site, given by its settings or data."),
    ],
    ids: Annotated[list[int] | None, typer.Argument(help="Ids of messages to requeue.")] = None,
    *,
    sink: SinkName = None,
    all: Annotated[bool, typer.Option("--all", help="Requeue all dead letters.")] = False,
    as_json: AsJson = False,
) -> None:
    """List messages that did not arrive, with the last error, or requeue those that were refused.

    Pending messages are retried automatically. Dead letters, which a sink refused permanently, are
    not. List both, then requeue the dead letters, each at its original place:

        stepvad events resend site.toml

        stepvad events resend site.toml --sink webhook:pager --all

    A running site sends them within seconds, a stopped one when it starts.
    """
    from stepvad.site.settings.file import data_of
    from stepvad.site.store.events import open_store

    if ids and all:
        raise ConfigError("resend: expected ids of messages or --all, got both")
    data = data_of(site)
    if not ids and not all:
        _print_undelivered(data, sink, as_json=as_json)
        return
    with open_store(data) as store:
        known = {one.seq for one in store.outbox.dead_letters(sink)}
        for id in ids or ():
            if id not in known:
                raise DataError(
                    f"message {id}: expected the id of a dead letter, got an unknown id",
                    hint=f"run stepvad events resend {site} to see the ids",
                )
        count = store.outbox.resend(sink=sink, seqs=ids or None)
    note(data, "sent messages again", f"{count} messages")
    say(f"messages requeued: {count}")


def _print_undelivered(data: Path, sink: str | None, *, as_json: bool) -> None:
    from stepvad.site.store.events import open_store

    with open_store(data) as store:
        messages: list[OutboxMessage | DeadLetter] = [*store.outbox.dead_letters(sink)]
        messages += store.outbox.waiting(sink, MOST)
        counts = {
            name: {"waiting": waits, "refused": gone}
            for name, (waits, gone) in store.outbox.counts().items()
            if sink in (None, name)
        }
    facts = [_message_facts(one) for one in messages]
    if as_json:
        print_json({"sinks": counts, "messages": facts})
        return
    rows = [(name, str(one["waiting"]), str(one["refused"])) for name, one in counts.items()]
    print_table("messages that did not arrive", ("sink", "waiting", "refused"), rows)
    if facts:
        columns = ("id", "sink", "state", "event", "change", "tries", "last error")
        names = ("id", "sink", "state", "event_id", "kind", "tries", "error")
        print_table("", columns, [[_word(one[name]) for name in names] for one in facts])


def _message_facts(one: OutboxMessage | DeadLetter) -> dict[str, Any]:
    """Fields listed for a message; `tries` is only set for queued ones."""
    tries = getattr(one, "tries", None)
    return {
        "id": one.seq,
        "sink": one.sink,
        "state": "refused" if tries is None else "waiting",
        "event_id": one.event_id,
        "kind": one.kind,
        "created": one.created,
        "tries": tries,
        "error": one.error,
    }


def unix_user() -> str:
    """Who runs the command, for the audit log; no account can have this name."""
    try:
        return f"command line ({getpass.getuser()})"
    except (OSError, KeyError):  # a container's user without a name
        return "command line"


def note(data: Path, action: str, subject: str = "") -> None:
    """Write a line into the audit log in a data directory, if its site has one."""
    from stepvad.site.accounts import FILE_NAME, Accounts

    if not (data / FILE_NAME).is_file():
        return
    try:
        accounts = Accounts(data / FILE_NAME)
        try:
            accounts.audit.record(unix_user(), action, subject)
        finally:
            accounts.close()
    except StepvadError as error:  # what was asked for is done
        say(f"warning: the audit log misses this command: {error.problem}")


def _said(review: Review | None) -> str:
    return "" if review is None else review.mark or "seen"


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_word, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
