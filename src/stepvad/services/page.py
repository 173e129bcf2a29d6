"""The page of a running site or edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.site.app import PageParts
    from stepvad.supervision.stages import Page, Supervisor

SESSIONS = "sessions"
"""Name of the session file in the data directory."""


def serve_page(shown: PageParts, token: str, supervisor: Supervisor) -> Page:
    """Bind the page of a running site or edge."""
    from stepvad.web import Running, bind, create_app

    settings = shown.settings
    site = Running(settings, shown.store, shown.status, shown.explain, shown.mark)
    app = create_app(site, token, health=supervisor, session_file=settings.data / SESSIONS)
    web = settings.web
    return bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
