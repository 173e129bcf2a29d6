"""stepvad fleet edge: a site that is part of a fleet."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import check_fleet

if TYPE_CHECKING:
    from stepvad.fleet.settings import EdgeSite


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
    from stepvad.live.site import alone

    told = load_edge(settings)
    set_up(told.logs)
    login(told.fleet.bus)  # what is wrong with it is said before any camera is opened
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with alone(told.data):
        if told.fleet.publish == "poses":
            _send_poses(told, stop)
        else:
            _send_events(told, stop)


def _send_poses(settings: EdgeSite, stop: threading.Event) -> None:
    from stepvad.cli.site import serve_page
    from stepvad.fleet.edge import Edge, page_of
    from stepvad.live.site import Page, token_of

    def open_page(edge: Edge) -> Page:
        return page_of(edge, serve_page, token_of(settings))

    Edge(settings).run(stop, open_page if settings.web.enabled else None)


def _send_events(settings: EdgeSite, stop: threading.Event) -> None:
    from stepvad.cli.site import serve_page
    from stepvad.fleet.line import Line
    from stepvad.fleet.sink import FleetSink
    from stepvad.live.site import Site

    line = Line(settings.fleet.bus, f"edge-{settings.name}")
    sink = FleetSink(line, site=settings.name, subjects=settings.fleet.bus.subjects)
    serve = serve_page if settings.web.enabled else None
    Site(settings, serve=serve, more=[sink]).run(stop)
