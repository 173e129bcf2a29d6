"""The page of a running site or edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.intake.status import Board
    from stepvad.settings.sections import Settings
    from stepvad.site.app import Explain, Mark
    from stepvad.site.store.eventstore import Store
    from stepvad.supervision.stages import Page, Supervisor

SESSIONS = "sessions"
"""The file beside the data that keeps who is logged in."""


def serve_page(
    settings: Settings,
    store: Store,
    board: Board,
    token: str,
    explain: Explain,
    mark: Mark,
    supervisor: Supervisor,
) -> Page:
    """The page of a running site."""
    from stepvad.web import bind, create_app

    web = settings.web
    app = create_app(
        settings,
        store,
        board,
        token,
        explain=explain,
        mark=mark,
        health=supervisor,
        session_file=settings.data / SESSIONS,
    )
    return bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
