"""stepvad fleet edge: a site that is part of a fleet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import check_fleet


def edge(
    settings: Annotated[
        Path, typer.Argument(metavar="SITE.toml", help="The settings of the site, with [fleet].")
    ],
) -> None:
    """Send the poses of a site to a fleet, or its events.

    The settings are those of a site, with a section [fleet] that says where the broker is:

        stepvad fleet edge site.toml

    With publish = "poses" nothing is scored here; with "events" everything is.
    """
    check_fleet()
    from stepvad.fleet.broker.login import login
    from stepvad.fleet.settings import load_edge
    from stepvad.supervision.logs import set_up
    from stepvad.supervision.supervisor import supervise

    found = load_edge(settings)
    set_up(found.logs)
    login(found.fleet.bus)  # what is wrong with it is said before any camera is opened
    raise typer.Exit(supervise([sys.executable, "-m", "stepvad.cli.edge", str(settings)]))
