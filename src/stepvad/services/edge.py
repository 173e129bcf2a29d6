"""The process of an edge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.services.page import serve_page
from stepvad.services.process import Service

if TYPE_CHECKING:
    from stepvad.fleet.settings import EdgeSite


def send(path: Path) -> int:
    """Run an edge until SIGTERM or Ctrl-C; return the exit code."""
    from stepvad.fleet.broker.login import login
    from stepvad.fleet.settings import load_edge
    from stepvad.supervision.logs import set_up

    settings = load_edge(path)
    set_up(settings.logs)
    login(settings.fleet.bus)  # report errors before any camera is opened
    return Service().run(lambda service: _run(service, settings))


def _run(service: Service, settings: EdgeSite) -> list[str]:
    from stepvad.site.app import alone

    with alone(settings.data):
        if settings.fleet.publish == "poses":
            return _send_poses(service, settings)
        return _send_events(service, settings)


def _send_poses(service: Service, settings: EdgeSite) -> list[str]:
    from stepvad.fleet.edge.edge import Edge, page_of
    from stepvad.settings.token import token_of
    from stepvad.supervision.stages import Page

    def open_page(edge: Edge) -> Page:
        return page_of(edge, serve_page, token_of(settings))

    return Edge(settings).run(
        service.stop, service.beat, open_page if settings.web.enabled else None
    )


def _send_events(service: Service, settings: EdgeSite) -> list[str]:
    from stepvad.fleet.broker.bus_thread import BusThread
    from stepvad.fleet.edge.sink import FleetSink
    from stepvad.site.app import Site

    bus_thread = BusThread(settings.fleet.bus, f"edge-{settings.name}")
    fleet = settings.fleet
    sink = FleetSink(
        bus_thread, site=settings.name, subjects=fleet.bus.subjects, tenant=fleet.tenant
    )
    serve = serve_page if settings.web.enabled else None
    return Site(settings, serve=serve, more=[sink]).run(service.stop, service.beat)
