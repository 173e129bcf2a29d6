"""stepvad fleet: many sites on a bus."""

from __future__ import annotations

import typer

from stepvad.cli.fleet_edge import edge
from stepvad.cli.fleet_events import events, forget

fleet = typer.Typer(no_args_is_help=True, help="Many sites: edges, workers, events.")
for verb in (edge, events, forget):
    fleet.command(verb.__name__, no_args_is_help=True)(verb)
