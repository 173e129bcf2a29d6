"""stepvad fleet: many sites on one bus, one role per process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, Typer

from stepvad.cli import options, terminal
from stepvad.errors import ConfigError
from stepvad.site import stages
from stepvad.site.service import Service

if TYPE_CHECKING:
    from stepvad.fleet.settings import EdgeSite, FleetSettings

fleet = Typer(
    name="fleet", no_args_is_help=True, help="Run many sites on one bus, one role per process."
)

File = Annotated[Path, Argument(metavar="FLEET.toml", help="Settings file of the role.")]
FleetFile = Annotated[
    Path, Argument(metavar="FLEET.toml", help="Settings file, with [bus] and [events].")
]


@fleet.command(no_args_is_help=True)
def edge(
    settings: Annotated[
        Path, Argument(metavar="SITE.toml", help="Settings file of the site, with [fleet].")
    ],
) -> None:
    """Send a site's poses or events to a fleet.

    The settings are those of a site, plus a [fleet] section with the address of the broker:

        stepvad fleet edge site.toml

    With publish = "poses" nothing is scored here; with "events" everything is.
    """
    terminal.check_fleet()
    from stepvad.fleet.broker.login import login
    from stepvad.fleet.settings import load_edge

    loaded = load_edge(settings)
    stages.set_up(loaded.logs)
    login(loaded.fleet.bus)  # report errors before any camera is opened
    raise Exit(Service().run(lambda running: _run_edge(running, loaded)))


@fleet.command(no_args_is_help=True)
def events(
    settings: FleetFile,
    *,
    migrate: Annotated[
        bool, Option("--migrate", help="Create or upgrade the tables, then exit.")
    ] = False,
    serve: Annotated[
        bool, Option("--serve", help="Serve the web page instead of writing events.")
    ] = False,
) -> None:
    """Store the events of a fleet in PostgreSQL.

    Migrate once as the role that owns the tables, then run as the role that writes:

        stepvad fleet events fleet.toml --migrate

        stepvad fleet events fleet.toml

    Serve the web page, which needs a token under [web]:

        stepvad fleet events fleet.toml --serve
    """
    if migrate and serve:
        raise ConfigError("events: expected --migrate or --serve, got both")
    loaded = _load(settings)
    from stepvad.fleet.events import service

    if migrate:
        steps = asyncio.run(service.migrate(loaded))
        terminal.say(
            f"the database is up to date, after {steps} {'step' if steps == 1 else 'steps'}"
        )
    elif serve:
        _serve_page(loaded)
    else:
        asyncio.run(service.write(loaded))


@fleet.command()
def setup(settings: File) -> None:
    """Create the streams and buckets on the broker, or change them to match the settings.

        stepvad fleet setup fleet.toml

    Workers create missing ones but change nothing. The number of shards is fixed. To lower lease_s,
    change it in the settings of all workers first; to raise it, change it there last.
    """
    loaded = _load(settings)
    from stepvad.fleet.broker.administration import set_up

    for change in asyncio.run(set_up(loaded)):
        terminal.say(f"changed: {change}")
    terminal.say("the bus is ready")


@fleet.command()
def worker(settings: File) -> None:
    """Score this worker's share of the cameras until SIGTERM or Ctrl-C.

        stepvad fleet worker fleet.toml

    Start one per core; when a worker stops or dies, the others take over its cameras.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core per worker; start more workers instead
    _load(settings)
    from stepvad.fleet.settings import load_worker

    loaded = load_worker(settings)  # fail early: the next import takes seconds
    from stepvad.fleet.worker.service import work

    asyncio.run(work(loaded))


def _load(path: Path) -> FleetSettings:
    """The settings of a role, whose log they set up."""
    settings = options.load_fleet(path)
    stages.set_up(settings.logs)
    return settings


def _run_edge(running: Service, settings: EdgeSite) -> list[str]:
    """Run an edge until its process stops."""
    from stepvad.fleet.broker.bus_thread import BusThread
    from stepvad.fleet.edge import edge, sink
    from stepvad.site.app import Site, exclusive_lock
    from stepvad.site.settings.sections import token_of
    from stepvad.web.app import serve_page

    def open_page(poses: edge.Edge) -> stages.Page:
        return edge.page_of(poses, serve_page, token_of(settings))

    fleet, enabled = settings.fleet, settings.web.enabled
    with exclusive_lock(settings.data):
        # poses go to the workers: nothing is scored here
        if fleet.publish == "poses":
            page = open_page if enabled else None
            return edge.Edge(settings).run(running.stop, running.beat, page)
        # a whole site, whose events go to the fleet, too
        events = sink.FleetSink(
            BusThread(fleet.bus, f"edge-{settings.name}"),
            site=settings.name,
            subjects=fleet.bus.subjects,
        )
        site = Site(settings, serve=serve_page if enabled else None, more=[events])
        return site.run(running.stop, running.beat)


def _serve_page(settings: FleetSettings) -> None:
    """Serve the page of a fleet's events until SIGTERM or Ctrl-C."""
    token = settings.web.token
    if token is None:
        raise ConfigError(
            "web.token: expected env:NAME or file:PATH, got none",
            hint="create a token of at least 16 characters and name where it is stored",
        )
    Service().run(lambda running: _run_page(running, settings, token))


def _run_page(running: Service, settings: FleetSettings, token: str) -> list[str]:
    from stepvad.files import secret
    from stepvad.fleet.events.reader import EventReader
    from stepvad.site.status import LiveStatus
    from stepvad.web import STOP_S, PageContext, bind, create_app
    from stepvad.web.app import open_accounts, tell_first_link

    # the page reads the database; nothing is watched in this process
    shelf, web = EventReader(secret(settings.events.dsn)), settings.web
    supervisor = stages.Supervisor()
    try:
        shelf.check()
        site = PageContext(settings, shelf, LiveStatus(), shelf.explanation, shelf.mark)
        accounts = open_accounts(web, None)
        app = create_app(site, secret(token), health=supervisor.health, accounts=accounts)
        page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
        tell_first_link(accounts, web, page.url)
        supervisor.start(page)
        terminal.say(f"the page is at {page.url}")
        stages.watch_over(supervisor, running.stop, running.beat)
        return supervisor.stop([page], STOP_S)
    finally:
        shelf.close()
