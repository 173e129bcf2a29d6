"""stepvad fleet: many sites on one bus, one role per process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.fleet_edge import edge
from stepvad.cli.fleet_events import events
from stepvad.cli.fleet_tenants import tenant
from stepvad.cli.terminal import AsJson, check_fleet, say

if TYPE_CHECKING:
    from stepvad.fleet.settings import FleetSettings

fleet = typer.Typer(
    name="fleet", no_args_is_help=True, help="Run many sites on one bus, one role per process."
)

for verb in (edge, events):
    fleet.command(verb.__name__, no_args_is_help=True)(verb)
fleet.add_typer(tenant, name="tenant")

File = Annotated[Path, typer.Argument(metavar="FLEET.toml", help="Settings file of the role.")]


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


def _load(path: Path) -> FleetSettings:
    check_fleet()
    from stepvad.fleet.settings import load
    from stepvad.supervision.logs import set_up

    settings = load(path)
    set_up(settings.logs)
    return settings
