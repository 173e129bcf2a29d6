"""stepvad fleet events: store the events of a fleet in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    import asyncio

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
