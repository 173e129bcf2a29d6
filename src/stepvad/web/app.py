"""The web app of a running site: page, API, live wall and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, HTTPException, WebSocket
from fastapi.responses import Response
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from stepvad.report.page import house_style, player
from stepvad.web.attempts import Attempts
from stepvad.web.failures import ErrorLog, add_error_answers
from stepvad.web.health import AlwaysHealthy, HealthSource
from stepvad.web.live import Live
from stepvad.web.login import add_login
from stepvad.web.operations import add_operations
from stepvad.web.routes import Running, add_routes
from stepvad.web.security import Guard, own_names
from stepvad.web.sessions import Sessions
from stepvad.web.shown import Address
from stepvad.web.token import Token

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def create_app(
    site: Running,
    token: str,
    *,
    health: HealthSource | None = None,
    session_file: Path | None = None,
) -> FastAPI:
    """Create the app; everything except the login form and /healthz requires the token.

    `health` reports whether the process behind the page hangs. Sessions survive a restart if
    `session_file` is set.
    """
    number, settings = version("stepvad"), site.settings
    app = FastAPI(
        title=f"stepvad: {settings.name}",
        version=number,
        description="Cameras, events and why they are events. Every route needs the token.",
        docs_url=None,
        redoc_url=None,
    )
    sessions, errors = Sessions(token, session_file), ErrorLog()
    add_routes(app, site, number)
    _add_page(app)
    add_operations(app, site, number, health or AlwaysHealthy(), errors)
    live = Live(site.status, site.store)

    @app.websocket("/ws/live")
    async def wall(socket: WebSocket) -> None:
        session = socket.scope.get("state", {}).get("session")
        await live.watch(socket, lambda: session is None or sessions.holds(session))

    add_error_answers(app, errors)
    _add_guard(app, settings.web, Token(token), sessions)
    return app


def _add_guard(app: FastAPI, web: Address, token: Token, sessions: Sessions) -> None:
    """Add the login form and the guard that redirects to it."""
    attempts = Attempts(token)
    add_login(app, attempts, sessions, token.cookie_name)
    app.add_middleware(
        Guard,
        attempts=attempts,
        sessions=sessions,
        cookie=token.cookie_name,
        names=own_names(web.host),
        public_url=web.public_url,
    )
    if web.trusted_proxies:
        # outermost, so the guard sees the client and scheme reported by the proxy
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[*web.trusted_proxies])


def _add_page(app: FastAPI) -> None:
    parts = _static()

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _file(parts, "page.html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return _file(parts, name)


def _static() -> Mapping[str, str]:
    """The static files of the page by name, including those shared with the report."""
    parts = {
        part.name: part.read_text(encoding="utf-8")
        for part in files("stepvad.web").joinpath("static").iterdir()
        if part.name.endswith(tuple(KINDS))
    }
    return parts | {"house.css": house_style(), "player.js": player()}


def _file(parts: Mapping[str, str], name: str) -> Response:
    if name not in parts:
        raise HTTPException(404, "there is no such file")
    return Response(parts[name], media_type=KINDS[name[name.rindex(".") :]])
