"""stepvad events undelivered and resend: messages that did not reach a sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepvad.cli.audited import note
from stepvad.cli.terminal import AsJson, print_json, print_table, say
from stepvad.errors import ConfigError, DataError

if TYPE_CHECKING:
    from stepvad.site.store.outbox import DeadLetter, OutboxMessage

MOST = 1000
"""Most queued messages listed; a sink that is down for days has more."""

SiteArgument = Annotated[
    Path, typer.Argument(metavar="SITE.toml|DATA", help="The site, given by its settings or data.")
]
SinkName = Annotated[str | None, typer.Option("--sink", help="Only messages to this sink.")]


def undelivered(site: SiteArgument, *, sink: SinkName = None, as_json: AsJson = False) -> None:
    """List dead letters, refused permanently by a sink, and pending messages, with the last error.

    Pending messages are retried automatically. Dead letters are not; resend them yourself:

        stepvad events undelivered site.toml

        stepvad events resend site.toml --all
    """
    from stepvad.settings.file import data_of
    from stepvad.site.store.access import open_store

    with open_store(data_of(site)) as store:
        refused = store.dead_letters(sink)
        waiting = store.outbox.waiting(sink, MOST)
        counts = {
            name: {"waiting": waits, "refused": gone}
            for name, (waits, gone) in store.outbox.counts().items()
            if sink in (None, name)
        }
    messages: list[OutboxMessage | DeadLetter] = [*refused, *waiting]
    if as_json:
        print_json({"sinks": counts, "messages": [_facts(one) for one in messages]})
        return
    rows = [(name, str(one["waiting"]), str(one["refused"])) for name, one in counts.items()]
    print_table("messages that did not arrive", ("sink", "waiting", "refused"), rows)
    if messages:
        columns = ("id", "sink", "state", "event", "change", "tries", "last error")
        facts = [_facts(one) for one in messages]
        names = ("id", "sink", "state", "event_id", "kind", "tries", "error")
        print_table("", columns, [[_word(one[name]) for name in names] for one in facts])


def resend(
    site: SiteArgument,
    ids: Annotated[
        list[int] | None, typer.Argument(help="Ids of dead letters, from `undelivered`.")
    ] = None,
    *,
    sink: SinkName = None,
    all: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
) -> None:
    """Requeue dead letters, at their original place among the pending messages.

    A running site sends them within seconds, a stopped one when it starts. All of one sink:

        stepvad events resend site.toml --sink webhook:pager --all
    """
    from stepvad.settings.file import data_of
    from stepvad.site.store.access import open_store

    if bool(ids) == all:
        raise ConfigError(
            "resend: expected ids of messages or --all, got " + ("both" if all else "neither"),
            hint="run stepvad events undelivered to see the ids",
        )
    data = data_of(site)
    with open_store(data) as store:
        known = {one.seq for one in store.dead_letters(sink)}
        for id in ids or ():
            if id not in known:
                raise DataError(
                    f"message {id}: expected the id of a dead letter, got an unknown id",
                    hint="run stepvad events undelivered to see the ids",
                )
        count = store.outbox.resend(sink=sink, seqs=ids or None)
    note(data, "sent messages again", f"{count} messages")
    say(f"messages requeued: {count}")


def _facts(one: OutboxMessage | DeadLetter) -> dict[str, Any]:
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


def _word(value: object) -> str:
    return "-" if value is None else str(value)
