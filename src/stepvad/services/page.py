"""The page of a running site or edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepvad.site.app import PageParts
    from stepvad.site.editor import SettingsEditor
    from stepvad.supervision.stages import Page, Supervisor

SESSIONS = "sessions"
"""Name of the session file in the data directory."""


def serve_page(
    shown: PageParts, token: str, supervisor: Supervisor, *, editor: SettingsEditor | None = None
) -> Page:
    """Bind the page of a running site or edge; with an `editor` it can change the settings."""
    from stepvad.services.accounts import open_accounts, tell_first_link
    from stepvad.web import Running, bind, create_app

    settings = shown.settings
    parts = settings, shown.store, shown.status, shown.explain, shown.mark
    recorders = {one.name: one.recorder for one in settings.cameras if one.recorder}
    site = Running(
        *parts,
        editor=editor,
        learner=shown.learner,
        replays=shown.replays,
        drawings=shown.drawings,
        recorders=recorders,
    )
    web = settings.web
    accounts = open_accounts(web, settings.data)
    app = create_app(
        site,
        token,
        health=supervisor.health,
        session_file=settings.data / SESSIONS,
        accounts=accounts,
    )
    page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
    tell_first_link(accounts, web, page.url)
    return page
