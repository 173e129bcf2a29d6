"""stepvad fleet: many sites on one bus, one role per process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.options import Yes, ask
from stepvad.cli.terminal import AsJson, check_fleet, print_json, print_table, say
from stepvad.errors import ConfigError

if TYPE_CHECKING:
    from stepvad.fleet.settings import EdgeSite, FleetSettings
    from stepvad.site.service import Service
    from stepvad.site.settings.editing import KeyValue
    from stepvad.site.stages import Page

fleet = typer.Typer(
    name="fleet", no_args_is_help=True, help="Run many sites on one bus, one role per process."
)
tenant = typer.Typer(no_args_is_help=True, help="Manage tenants: isolated owners of sites.")
fleet.add_typer(tenant, name="tenant")

File = Annotated[Path, typer.Argument(metavar="FLEET.toml", help="Settings file of the role.")]
FleetFile = Annotated[
    Path, typer.Argument(metavar="FLEET.toml", help="Settings file, with [bus] and [events].")
]
Admin = Annotated[
    Path, typer.Argument(metavar="FLEET.toml", help="Settings file of the administrator.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant.")]
Offline = Annotated[
    bool, typer.Option("--offline", help="Change only the files; run stepvad fleet setup later.")
]
Cameras = Annotated[int | None, typer.Option(help="Maximum cameras over all its sites.")]
Messages = Annotated[float | None, typer.Option(help="Maximum messages per second of one camera.")]
MessageKb = Annotated[float | None, typer.Option(help="Largest message, in kB.")]
PosesMb = Annotated[float | None, typer.Option(help="Size limit of poses in one partition, in MB.")]
EventsMb = Annotated[
    float | None, typer.Option(help="Size limit of events from sites that score, in MB.")
]
Connections = Annotated[int | None, typer.Option(help="Maximum connections to one broker.")]
LIMITS = (
    *("cameras", "messages_s", "message_kb", "poses_mb", "events_mb", "connections"),
    "partitions",
)
Partitions = Annotated[
    int | None, typer.Option(help="Number of streams for its poses; it can only grow.")
]


@fleet.command(no_args_is_help=True)
def edge(
    settings: Annotated[
        Path, typer.Argument(metavar="SITE.toml", help="Settings file of the site, with [fleet].")
    ],
) -> None:
    """Send a site's poses or events to a fleet.

    The settings are those of a site, plus a [fleet] section with the address of the broker:

        stepvad fleet edge site.toml

    With publish = "poses" nothing is scored here; with "events" everything is.
    """
    check_fleet()
    from stepvad.fleet.broker.login import login
    from stepvad.fleet.settings import load_edge
    from stepvad.site.service import Service
    from stepvad.site.stages import set_up

    told = load_edge(settings)
    set_up(told.logs)
    login(told.fleet.bus)  # report errors before any camera is opened
    raise typer.Exit(Service().run(lambda service: _run_edge(service, told)))


@fleet.command(no_args_is_help=True)
def events(
    settings: FleetFile,
    *,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Create or upgrade the tables, then exit.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the web page instead of writing events.")
    ] = False,
) -> None:
    """Store the events of a fleet in PostgreSQL.

    Migrate once as the role that owns the tables, then run as the role that writes:

        stepvad fleet events fleet.toml --migrate

        stepvad fleet events fleet.toml

    Serve the web page, which needs a token under [web]:

        stepvad fleet events fleet.toml --serve
    """
    check_fleet()
    import asyncio

    from stepvad.fleet.events import service
    from stepvad.fleet.settings import load
    from stepvad.site.stages import set_up

    if migrate and serve:
        raise ConfigError("events: expected --migrate or --serve, got both")
    told = load(settings)
    set_up(told.logs)
    if migrate:
        steps = asyncio.run(service.migrate(told))
        say(f"the database is up to date, after {steps} {'step' if steps == 1 else 'steps'}")
    elif serve:
        _serve_page(told)
    else:
        asyncio.run(service.write(told))


@fleet.command()
def setup(settings: File) -> None:
    """Create the streams and buckets on the broker, or change them to match the settings.

        stepvad fleet setup fleet.toml

    Workers create missing ones but change nothing. The number of shards is fixed. To lower lease_s,
    change it in the settings of all workers first; to raise it, change it there last.
    """
    import asyncio

    told = _load(settings)
    from stepvad.fleet.broker.administration import set_up

    for change in asyncio.run(set_up(told)):
        say(f"changed: {change}")
    say("the bus is ready")


@fleet.command()
def worker(settings: File) -> None:
    """Score this worker's share of the cameras until SIGTERM or Ctrl-C.

        stepvad fleet worker fleet.toml

    Start one per core; when a worker stops or dies, the others take over its cameras.
    """
    import asyncio
    import os

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core per worker; start more workers instead
    _load(settings)
    from stepvad.fleet.settings import load_worker

    told = load_worker(settings)  # fail early: the next import takes seconds
    from stepvad.fleet.worker.service import work

    asyncio.run(work(told))


@fleet.command()
def lag(
    settings: File,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the messages waiting to be scored, by shard.

    stepvad fleet lag fleet.toml
    """
    import asyncio

    told = _load(settings)
    from stepvad.fleet.broker.administration import lags

    found = asyncio.run(lags(told.bus))
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, waiting in sorted(found.items()):
        typer.echo(f"{name}\t{waiting}")
    typer.echo(f"all\t{sum(found.values())}")


@tenant.command(no_args_is_help=True)
def add(
    context: typer.Context,
    settings: Admin,
    name: NameArgument,
    site: Annotated[list[str], typer.Option(help="A site of the tenant; repeat for more.")],
    *,
    cameras: Cameras = None,
    messages_s: Messages = None,
    message_kb: MessageKb = None,
    poses_mb: PosesMb = None,
    events_mb: EventsMb = None,
    connections: Connections = None,
    partitions: Partitions = None,
    offline: Offline = False,
) -> None:
    """Add a tenant: its account, its streams and its limits.

        stepvad fleet tenant add admin.toml north --site north --cameras 40

    Each of its sites needs a certificate edge-SITE; reload the brokers afterwards.
    """
    check_fleet()
    from stepvad.fleet.tenant_file import add_tenant

    _apply(add_tenant(settings, name, site, _given(context)), settings, offline=offline)
    say(f"tenant {name} may send as {', '.join(site)}")


@tenant.command(no_args_is_help=True)
def limits(
    context: typer.Context,
    settings: Admin,
    name: NameArgument,
    *,
    cameras: Cameras = None,
    messages_s: Messages = None,
    message_kb: MessageKb = None,
    poses_mb: PosesMb = None,
    events_mb: EventsMb = None,
    connections: Connections = None,
    partitions: Partitions = None,
    offline: Offline = False,
) -> None:
    """Change a tenant's limits at the broker, while everything runs.

    stepvad fleet tenant limits admin.toml north --cameras 80 --partitions 2
    """
    check_fleet()
    from stepvad.fleet.settings import load
    from stepvad.fleet.tenant_file import change_tenant, tenant_named

    keys = _given(context)
    tenant_named(load(settings), name)
    if not keys:
        raise ConfigError("limits: expected at least one, got none", hint="such as --cameras 80")
    _apply(change_tenant(settings, name, keys), settings, offline=offline)
    say(f"tenant {name}: {', '.join(f'{key} = {value}' for key, value in keys.items())}")


@tenant.command(no_args_is_help=True)
def revoke(settings: Admin, name: NameArgument, *, yes: Yes = False) -> None:
    """Reject the certificates of a tenant's sites, for example after one was stolen.

        stepvad fleet tenant revoke admin.toml north

    Its data stays. Reload the brokers to cut its connections, and create new certificates for its
    sites: make-certificates writes them if you pass SITE:GENERATION.
    """
    check_fleet()
    from stepvad.fleet.settings import load
    from stepvad.fleet.tenant_file import change_tenant, tenant_named, write_accounts

    known = tenant_named(load(settings), name)
    if not yes:
        ask(f"Refuse all certificates of the sites {', '.join(known.sites)}?")
    following = known.generation + 1
    _told(write_accounts(change_tenant(settings, name, {"generation": following})))
    sites = " ".join(f"{site}:{following}" for site in known.sites)
    say(f"new certificates: make-certificates DIRECTORY -- {sites}")


@tenant.command(no_args_is_help=True)
def remove(
    settings: Admin, name: NameArgument, *, yes: Yes = False, offline: Offline = False
) -> None:
    """Remove a tenant: its account, its streams and their contents.

        stepvad fleet tenant remove admin.toml north

    Its events in the database stay until they expire.
    """
    import asyncio

    check_fleet()
    from stepvad.fleet.tenant_file import remove_tenant, write_accounts

    if not yes:
        ask(f"Remove tenant {name} and all poses and events that the broker keeps of it?")
    told = remove_tenant(settings, name)
    _told(write_accounts(told))
    if not offline:
        from stepvad.fleet.broker.administration import remove

        asyncio.run(remove(told.bus, name))
    say(f"tenant {name} is removed")


@tenant.command("list", no_args_is_help=True)
def list_(settings: Admin, *, as_json: AsJson = False) -> None:
    """Show the tenants, and how much of their limits they use.

    stepvad fleet tenant list admin.toml
    """
    import asyncio

    check_fleet()
    from stepvad.fleet.broker.administration import usage
    from stepvad.fleet.settings import load

    found = asyncio.run(usage(load(settings)))
    if as_json:
        print_json([one._asdict() for one in found])
        return
    print_table(
        "tenants",
        ("tenant", "sites", "partitions", "cameras", "messages", "MB of poses", "MB of events"),
        [
            (
                one.tenant or "(default)",
                ", ".join(one.sites),
                f"{one.partitions}",
                f"{one.cameras} of {one.most_cameras}",
                f"{one.messages}",
                f"{one.poses_mb:.1f} of {one.most_poses_mb:g}",
                f"{one.events_mb:.1f} of {one.most_events_mb:g}",
            )
            for one in found
        ],
    )


@tenant.command(no_args_is_help=True)
def role(
    name: NameArgument,
    *,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the role instead.")] = False,
) -> None:
    """Print the SQL with which a superuser creates a tenant's role in the database.

        stepvad fleet tenant role north | psql stepvad

    The role can read and review the tenant's events, and no others.
    """
    check_fleet()
    from stepvad.fleet.events.tenant_tables import drop_role_sql, role_sql

    typer.echo((drop_role_sql if drop else role_sql)(name), nl=False)


def _load(path: Path) -> FleetSettings:
    check_fleet()
    from stepvad.fleet.settings import load
    from stepvad.site.stages import set_up

    settings = load(path)
    set_up(settings.logs)
    return settings


def _run_edge(service: Service, settings: EdgeSite) -> list[str]:
    """Run an edge until its process is told to stop."""
    from stepvad.site.app import exclusive_lock

    with exclusive_lock(settings.data):
        if settings.fleet.publish == "poses":
            return _send_poses(service, settings)
        return _send_events(service, settings)


def _send_poses(service: Service, settings: EdgeSite) -> list[str]:
    """Send poses to the workers; nothing is scored here."""
    from stepvad.fleet.edge.edge import Edge, page_of
    from stepvad.site.settings.sections import token_of
    from stepvad.web.app import serve_page

    def open_page(edge: Edge) -> Page:
        return page_of(edge, serve_page, token_of(settings))

    return Edge(settings).run(
        service.stop, service.beat, open_page if settings.web.enabled else None
    )


def _send_events(service: Service, settings: EdgeSite) -> list[str]:
    """Run a site whose events go to the fleet, too."""
    from stepvad.fleet.broker.bus_thread import BusThread
    from stepvad.fleet.edge.sink import FleetSink
    from stepvad.site.app import Site
    from stepvad.web.app import serve_page

    fleet = settings.fleet
    sink = FleetSink(
        BusThread(fleet.bus, f"edge-{settings.name}"),
        site=settings.name,
        subjects=fleet.bus.subjects,
        tenant=fleet.tenant,
    )
    serve = serve_page if settings.web.enabled else None
    return Site(settings, serve=serve, more=[sink]).run(service.stop, service.beat)


def _serve_page(settings: FleetSettings) -> None:
    """Serve the page of a fleet's events until SIGTERM or Ctrl-C."""
    from stepvad.site.service import Service

    token = settings.web.token
    if token is None:
        raise ConfigError(
            "web.token: expected env:NAME or file:PATH, got none",
            hint="create a token of at least 16 characters and name where it is stored",
        )
    Service().run(lambda service: _run_page(service, settings, token))


def _run_page(service: Service, settings: FleetSettings, token: str) -> list[str]:
    from stepvad.files import secret
    from stepvad.fleet.events.reader import EventReader
    from stepvad.site.intake.status import LiveStatus
    from stepvad.site.stages import Supervisor, watch_over
    from stepvad.web import STOP_S, Running, bind, create_app
    from stepvad.web.app import open_accounts, tell_first_link

    shelf, supervisor, web = EventReader(secret(settings.events.dsn)), Supervisor(), settings.web
    try:
        shelf.check()
        site = Running(settings, shelf, LiveStatus(), shelf.explanation, shelf.mark)
        accounts = open_accounts(web, None)
        app = create_app(site, secret(token), health=supervisor.health, accounts=accounts)
        page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
        tell_first_link(accounts, web, page.url)
        supervisor.start(page)
        say(f"the page is at {page.url}")
        watch_over(supervisor, service.stop, service.beat)
        return supervisor.stop([page], STOP_S)
    finally:
        shelf.close()


def _given(context: typer.Context) -> dict[str, KeyValue]:
    """The limits that the command line names, by their keys in the file."""
    return {key: context.params[key] for key in LIMITS if context.params[key] is not None}


def _apply(told: FleetSettings, path: Path, *, offline: bool) -> None:
    """Write the accounts, and make what the broker needs."""
    import asyncio

    from stepvad.fleet.broker.administration import set_up
    from stepvad.fleet.broker.bus import UnavailableError
    from stepvad.fleet.tenant_file import write_accounts

    _told(write_accounts(told))
    if offline:
        return
    try:
        asyncio.run(set_up(told))
    except UnavailableError as error:
        raise ConfigError(
            f"{path} is changed, but the broker is not: {error.problem}",
            hint="run stepvad fleet setup when it answers",
        ) from None


def _told(accounts: Path | None) -> None:
    if accounts is not None:
        say(f"reload the brokers, which include {accounts}: nats-server --signal reload")
