"""stepvad fleet edge: a site that is part of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import check_fleet


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
    from stepvad.services.edge import send

    raise typer.Exit(send(settings))
