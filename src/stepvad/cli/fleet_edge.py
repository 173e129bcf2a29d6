"""stepvad fleet edge: a site that is part of a fleet."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import check_fleet

if TYPE_CHECKING:
    from stepvad.fleet.settings import EdgeSite
    from stepvad.live.supervisor import HeartbeatPipe


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
    from stepvad.fleet.login import login
    from stepvad.fleet.settings import load_edge
    from stepvad.live.logs import set_up
    from stepvad.live.supervisor import supervise

    found = load_edge(settings)
    set_up(found.logs)
    login(found.fleet.bus)  # what is wrong with it is said before any camera is opened
    raise typer.Exit(supervise([sys.executable, "-m", "stepvad.cli.fleet_edge", str(settings)]))


def main() -> None:
    """What the process of an edge runs, which `stepvad fleet edge` starts."""
    from stepvad.cli.site import run_process

    parser = argparse.ArgumentParser(prog="stepvad.cli.fleet_edge")
    parser.add_argument("--heartbeat-fd", type=int)
    parser.add_argument("place", type=Path, help="settings")
    run_process(_run, parser.parse_args())


def _run(
    options: argparse.Namespace, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.fleet.settings import load_edge
    from stepvad.live.logs import set_up
    from stepvad.live.site import alone

    settings = load_edge(options.place)
    set_up(settings.logs)
    with alone(settings.data):
        send = _send_poses if settings.fleet.publish == "poses" else _send_events
        return send(settings, stop, parent)


def _send_poses(
    settings: EdgeSite, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.cli.site import serve_page
    from stepvad.fleet.edge import Edge, page_of
    from stepvad.live.site import Page
    from stepvad.live.token import token_of

    def open_page(edge: Edge) -> Page:
        return page_of(edge, serve_page, token_of(settings))

    return Edge(settings).run(stop, parent, open_page if settings.web.enabled else None)


def _send_events(
    settings: EdgeSite, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.cli.site import serve_page
    from stepvad.fleet.line import Line
    from stepvad.fleet.sink import FleetSink
    from stepvad.live.site import Site

    line = Line(settings.fleet.bus, f"edge-{settings.name}")
    sink = FleetSink(line, site=settings.name, subjects=settings.fleet.bus.subjects)
    serve = serve_page if settings.web.enabled else None
    return Site(settings, serve=serve, more=[sink]).run(stop, parent)


if __name__ == "__main__":
    main()
