"""stepvad fleet events: store the events of a fleet in PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.event_deletion import delete
from stepvad.cli.event_options import AnyCamera, Scrub, Since, Until, Yes
from stepvad.cli.terminal import check_fleet, say
from stepvad.errors import ConfigError

FleetFile = Annotated[
    Path, typer.Argument(metavar="FLEET.toml", help="Settings file, with [bus] and [events].")
]


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
    from stepvad.fleet.events import service
    from stepvad.fleet.settings import load
    from stepvad.supervision.logs import set_up

    if migrate and serve:
        raise ConfigError("events: expected --migrate or --serve, got both")
    told = load(settings)
    set_up(told.logs)
    if migrate:
        steps = asyncio.run(service.migrate(told))
        say(f"the database is up to date, after {steps} {'step' if steps == 1 else 'steps'}")
    elif serve:
        from stepvad.services import fleet_page

        fleet_page.serve(told, lambda url: say(f"the page is at {url}"))
    else:
        asyncio.run(service.write(told))


def forget(
    settings: FleetFile,
    *,
    site: Annotated[str | None, typer.Option(help="Only of this site.")] = None,
    camera: AnyCamera = None,
    since: Since = None,
    until: Until = None,
    scrub: Scrub = False,
    yes: Yes = False,
) -> None:
    """Deprecated: use stepvad events delete --fleet."""
    say(
        "warning: `fleet forget` is deprecated since 0.1, removed in 0.3; "
        "use `events delete --fleet FLEET.toml`, with --camera SITE/ for --site SITE"
    )
    if site is not None and camera is not None and not camera.startswith(f"{site}/"):
        raise ConfigError(f"--camera: expected one of site {site}, got {camera}")
    whose = camera if camera is not None or site is None else f"{site}/"
    delete(fleet=settings, camera=whose, since=since, until=until, scrub=scrub, yes=yes)
