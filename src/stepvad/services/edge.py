"""The edge process, supervised by `stepvad fleet edge`."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.services.page import serve_page
from stepvad.services.process import run_process

if TYPE_CHECKING:
    from stepvad.fleet.settings import EdgeSite
    from stepvad.supervision.parent_process import HeartbeatPipe


def send(settings: Path) -> int:
    """Run an edge until SIGTERM or Ctrl-C; return the exit code."""
    from stepvad.fleet.broker.login import login
    from stepvad.fleet.settings import load_edge
    from stepvad.supervision.logs import set_up
    from stepvad.supervision.parent_process import supervise

    found = load_edge(settings)
    set_up(found.logs)
    login(found.fleet.bus)  # report errors before any camera is opened
    return supervise([sys.executable, "-m", "stepvad.services.edge", str(settings)])


def main() -> None:
    """Run an edge until SIGTERM; the exit code tells the supervisor how it ended."""
    parser = argparse.ArgumentParser(prog="stepvad.services.edge")
    parser.add_argument("--heartbeat-fd", type=int)
    parser.add_argument("place", type=Path, help="settings")
    run_process(_run, parser.parse_args())


def _run(
    options: argparse.Namespace, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.fleet.settings import load_edge
    from stepvad.site.app import alone
    from stepvad.supervision.logs import set_up

    settings = load_edge(options.place)
    set_up(settings.logs)
    with alone(settings.data):
        send = _send_poses if settings.fleet.publish == "poses" else _send_events
        return send(settings, stop, parent)


def _send_poses(
    settings: EdgeSite, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.fleet.edge.edge import Edge, page_of
    from stepvad.settings.token import token_of
    from stepvad.supervision.stages import Page

    def open_page(edge: Edge) -> Page:
        return page_of(edge, serve_page, token_of(settings))

    return Edge(settings).run(stop, parent, open_page if settings.web.enabled else None)


def _send_events(
    settings: EdgeSite, stop: threading.Event, parent: HeartbeatPipe | None
) -> list[str]:
    from stepvad.fleet.broker.bus_thread import BusThread
    from stepvad.fleet.edge.sink import FleetSink
    from stepvad.site.app import Site

    bus_thread = BusThread(settings.fleet.bus, f"edge-{settings.name}")
    fleet = settings.fleet
    sink = FleetSink(
        bus_thread, site=settings.name, subjects=fleet.bus.subjects, tenant=fleet.tenant
    )
    serve = serve_page if settings.web.enabled else None
    return Site(settings, serve=serve, more=[sink]).run(stop, parent)


if __name__ == "__main__":
    main()
