"""stepvad fleet tenant: owners of sites who share a fleet and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.options import Yes, ask
from stepvad.cli.terminal import AsJson, check_fleet, print_json, print_table, say
from stepvad.errors import ConfigError

if TYPE_CHECKING:
    from stepvad.fleet.settings import FleetSettings
    from stepvad.settings.edits import KeyValue

tenant = typer.Typer(no_args_is_help=True, help="Manage tenants: isolated owners of sites.")

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
