"""stepvad fleet events and forget: the events of a fleet in PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.events import Since, Until, Yes, time_of
from stepvad.cli.terminal import check_fleet, say
from stepvad.errors import ConfigError

if TYPE_CHECKING:
    from stepvad.fleet.events.postgres import Wanted
    from stepvad.fleet.settings import Settings

FleetFile = Annotated[
    Path, typer.Argument(metavar="FLEET.toml", help="The settings, with [bus] and [events].")
]


def events(
    settings: FleetFile,
    *,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Make the tables or bring them up to date, and end.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the page of the events instead of writing them.")
    ] = False,
) -> None:
    """Keep the events of a fleet in PostgreSQL.

    Once, as the role that owns the tables; then for ever, as the one that writes:

        stepvad fleet events fleet.toml --migrate

        stepvad fleet events fleet.toml

    The page, which needs a token under [web]:

        stepvad fleet events fleet.toml --serve
    """
    check_fleet()
    from stepvad.fleet.settings import load
    from stepvad.supervision.logs import set_up

    if migrate and serve:
        raise ConfigError("events: expected --migrate or --serve, got both")
    told = load(settings)
    set_up(told.logs)
    if migrate:
        asyncio.run(_migrate(told))
    elif serve:
        _serve(told)
    else:
        asyncio.run(_write(told))


def forget(
    settings: FleetFile,
    *,
    site: Annotated[str | None, typer.Option(help="Only of this site.")] = None,
    camera: Annotated[str | None, typer.Option(help="Only of this camera: SITE/CAMERA.")] = None,
    since: Since = None,
    until: Until = None,
    scrub: Annotated[
        bool,
        typer.Option(
            "--scrub", help="Write the table anew as well: no trace is left in its files."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete events of a fleet that are over, by site, camera and time.

    Everything of one camera:

        stepvad fleet forget fleet.toml --camera north/yard --scrub
    """
    check_fleet()
    from stepvad.fleet.events.postgres import Wanted
    from stepvad.fleet.settings import load

    wanted = Wanted(
        site=site,
        camera=camera,
        until=time_of(until, "--until"),
        ends_after=time_of(since, "--since"),
    )
    if wanted == Wanted():
        raise ConfigError("forget: expected --site, --camera, --since or --until, got none of them")
    told = load(settings)
    if not yes:
        typer.confirm("Delete these events for good?", abort=True, err=True)
    asyncio.run(_forget(told, wanted, scrub=scrub))


async def _migrate(settings: Settings) -> None:
    from stepvad.files.secrets import secret
    from stepvad.fleet.events.postgres import connect

    async with connect(secret(settings.events.dsn)) as kept:
        steps = await kept.migrate()
    say(f"the database is up to date, after {steps} {'step' if steps == 1 else 'steps'}")


async def _forget(settings: Settings, wanted: Wanted, *, scrub: bool) -> None:
    from stepvad.files.secrets import secret
    from stepvad.fleet.events.postgres import connect

    async with connect(secret(settings.events.dsn)) as kept:
        done = await kept.delete(wanted)
        if scrub:
            await kept.scrub()
    say(f"{done.events} events deleted, {done.kept_open} stay because they go on")


async def _write(settings: Settings) -> None:
    from stepvad.files.secrets import secret
    from stepvad.fleet.broker.connection import connected_until
    from stepvad.fleet.events.postgres import connect
    from stepvad.fleet.events.writer import Writer, checked
    from stepvad.fleet.events.writer_metrics import serve

    told = settings.events
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with (
        connect(secret(told.dsn)) as kept,
        connected_until(settings.bus, "stepvad-events", stopping) as bus,
    ):
        if bus is None or not await checked(kept, stopping):
            return
        writer = Writer(bus, kept, told, settings.bus.subjects, stopping)
        if told.metrics is not None:
            serve(writer.counts, told.metrics)
        await writer.run()


def _serve(settings: Settings) -> None:
    from stepvad.files.secrets import secret
    from stepvad.fleet.events.reader import EventReader
    from stepvad.intake.status import Board
    from stepvad.supervision.limits import raise_file_limit
    from stepvad.supervision.stages import Supervisor
    from stepvad.web import STOP_S, bind, create_app

    if settings.web.token is None:
        raise ConfigError(
            "web.token: expected env:NAME or file:PATH, got none",
            hint="make a token of at least 16 characters and name where it is",
        )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    raise_file_limit()
    shelf, supervisor, web = EventReader(secret(settings.events.dsn)), Supervisor(), settings.web
    try:
        shelf.check()
        app = create_app(
            settings,
            shelf,
            Board(),
            secret(settings.web.token),
            explain=shelf.explanation,
            mark=shelf.mark,
            health=supervisor,
        )
        page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
        supervisor.start(page)
        say(f"the page is at {page.url}")
        while not stop.wait(1.0):
            supervisor.check()
        supervisor.stop([page], STOP_S)
    finally:
        shelf.close()
