"""The web app of a running site: page, API, live wall and metrics."""

from __future__ import annotations

import json
import logging
import math
import socket
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from stepvad.errors import ConfigError, StepvadError
from stepvad.report.page import house_style, player
from stepvad.site.accounts import FILE_NAME, Accounts, Passwords, link_path
from stepvad.site.app import PageParts
from stepvad.site.settings.live import SettingsEditor
from stepvad.site.settings.page import Web
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.stages import FailureLog, Health, Page, Repeats, Supervisor
from stepvad.site.store.database import SlowQueryError, StoreError
from stepvad.web import metrics, site_routes
from stepvad.web.guard import AuditTrail, Guard, Rules
from stepvad.web.identity import EndedSessions, Identities, SignOn
from stepvad.web.live import Live
from stepvad.web.login import LogIn, add_links, add_login, add_own_password
from stepvad.web.routes import PageContext, add_routes
from stepvad.web.server import bind
from stepvad.web.user_routes import add_user_routes

logger = logging.getLogger(__name__)
PROXY_S = 50.0
"""How long a wall stays open on the word of a proxy."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
METRICS = "text/plain; version=0.0.4; charset=utf-8"
PAGES = {
    "/": "page.html",
    "/settings": "settings.html",
    "/users": "users.html",
    "/static/{name}": "",
}
"""Files of the page by path; without one, the path names it."""
NOTIFICATIONS = {"/notifications": "notifications.html", "/sw.js": "sw.js"}
"""Page of a site alone, and its service worker, at the root: it may open any page of the site."""


def create_app(
    site: PageContext,
    token: str,
    *,
    health: Callable[[], Health] = Health,
    accounts: Accounts | None = None,
    ended: EndedSessions | None = None,
) -> FastAPI:
    """Create the app; `web/guard.py` says which role each route needs. The token has all of them.

    `health` reports whether the process behind the page hangs; by default it has no stages.
    Without `accounts` the token is the only way to log in. Several processes that serve one page
    share the token and the log-outs in `ended`, by default with the accounts.
    """
    number, settings = version("stepvad"), site.settings
    app = FastAPI(
        title=f"stepvad: {settings.name}",
        version=number,
        description="Cameras, events and why they are events. Every route needs the token, or a "
        "log-in whose role may do it.",
        docs_url=None,
        redoc_url=None,
    )
    # every route stands before the guard, which checks that each has a rule
    errors, accounts = FailureLog(logger), accounts or Accounts()
    add_routes(app, site, number)
    site_routes.add_settings_routes(app, site.editor)
    site_routes.add_learning_routes(app, site.status, site.learner)
    site_routes.add_precision_route(app, site.store)
    pages = PAGES
    if isinstance(settings, SiteSettings):
        editor = site.editor
        site_routes.add_notification_routes(
            app, lambda: settings if editor is None else editor.running
        )
        pages = PAGES | NOTIFICATIONS
    _add_pages(app, pages)
    add_operations(app, site, number, health, errors)
    add_user_routes(app, accounts)
    identities = Identities(settings.web, token, accounts, ended)
    live = Live(site.status, site.store)

    @app.websocket("/ws/live")
    async def wall(socket: WebSocket) -> None:
        # whom a proxy has logged out is found out when it is asked again
        lasts_s = PROXY_S if socket.state.identity.known_by == "proxy" else math.inf
        await live.watch(socket, lambda: identities.is_still(socket.scope), lasts_s)

    add_error_answers(app, errors)
    _add_guard(app, settings.web, identities)
    return app


def add_operations(
    app: FastAPI, site: PageContext, number: str, health: Callable[[], Health], errors: FailureLog
) -> None:
    """Add health, readiness and metrics."""
    lines = Repeats()

    @app.get(
        "/healthz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "A part of the process hangs."}},
    )
    async def healthz() -> Response:  # async, since all worker threads may be busy
        """Whether every part of the process makes progress."""
        now = health()
        if now.is_ok:
            return PlainTextResponse("ok\n")
        late = ", ".join(now.late)
        lines.log(logger.error, late, "stages hang: %s", late)
        return PlainTextResponse("hanging\n", 503)

    @app.get(
        "/readyz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "No camera is online, or events cannot be stored."}},
    )
    def readyz() -> Response:
        """Whether the site does its work: a camera is online and events can be stored."""
        cameras = site.status.snapshot().cameras
        if cameras and not any(one.state == "online" for one in cameras):
            return PlainTextResponse("no camera is online\n", 503)
        if trouble := getattr(site.store, "trouble", ""):  # a fleet has none
            return PlainTextResponse(f"events cannot be stored: {trouble}\n", 503)
        try:
            site.store.events(limit=1)
        except (sqlite3.Error, StepvadError) as error:
            errors.log("GET /readyz failed", error)
            return PlainTextResponse("the store cannot be read\n", 503)
        return PlainTextResponse("ready\n")

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    def prometheus() -> Response:
        """All counts for Prometheus."""
        body = metrics.render(site.status, number, health())
        return Response(body, media_type=METRICS)


def add_error_answers(app: FastAPI, errors: FailureLog) -> None:
    """Respond with 503 if the event store fails, 403 if the page may not do something."""

    async def unavailable(request: Request | WebSocket, error: Exception) -> Response:
        """503: the store may be available again later."""
        errors.log(f"{_name(request)} failed", error)
        problem = {"detail": "the event store cannot be used now; try again"}
        return JSONResponse(problem, 503, {"Retry-After": "5"})

    async def forbidden(request: Request | WebSocket, error: Exception) -> Response:
        """403: not permitted by the configuration."""
        errors.log(f"{_name(request)} failed", error)
        return JSONResponse({"detail": "this page may not do that"}, 403)

    async def too_slow(request: Request | WebSocket, error: Exception) -> Response:
        """422: another search may be faster."""
        return JSONResponse({"detail": str(error)}, 422)

    async def invalid(request: Request | WebSocket, error: Exception) -> Response:
        """422: where and why; the value is not repeated, as JSON has none for NaN and the like."""
        found = error.errors() if isinstance(error, RequestValidationError) else []
        problems = [{key: one[key] for key in ("loc", "msg", "type")} for one in found]
        return Response(json.dumps({"detail": problems}), 422, media_type="application/json")

    app.add_exception_handler(RequestValidationError, invalid)
    # the most special class wins: ConfigError is a StepvadError
    app.add_exception_handler(SlowQueryError, too_slow)
    for kind in (sqlite3.Error, StepvadError):
        app.add_exception_handler(kind, unavailable)
    app.add_exception_handler(ConfigError, forbidden)


def _add_guard(app: FastAPI, web: Web, identities: Identities) -> None:
    """Add the ways to log in, and the guard in front of all routes; no route may come after."""
    trail = AuditTrail(identities.accounts, identities.background)
    login = LogIn(identities, Passwords(), trail)
    for add in (add_login, add_links, add_own_password):
        add(app, login)
    app.add_middleware(
        Guard,
        identities=identities,
        rules=Rules(app.routes),
        trail=trail,
        host=web.host,
        public_url=web.public_url,
    )
    if web.trusted_proxies:
        # so the guard sees the client and scheme reported by the proxy
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[*web.trusted_proxies])
    if web.user_header is not None:
        app.add_middleware(SignOn, web=web)  # outermost, to see the address of the proxy


def _add_pages(app: FastAPI, pages: Mapping[str, str]) -> None:
    """Add static files at the paths of pages."""
    parts = _static()

    def answer(name: str) -> Response:
        if name not in parts:
            raise HTTPException(404, "there is no such file")
        return Response(parts[name], media_type=KINDS[name[name.rindex(".") :]])

    for path, name in pages.items():
        app.get(path, include_in_schema=False)(partial(answer, name) if name else answer)


def _static() -> Mapping[str, str]:
    """The static files of the page by name, including those shared with the report."""
    parts = {
        part.name: part.read_text(encoding="utf-8")
        for part in files("stepvad.web").joinpath("static").iterdir()
        if part.name.endswith(tuple(KINDS))
    }
    return parts | {"house.css": house_style(), "player.js": player()}


def _name(request: Request | WebSocket) -> str:
    """Method and route, without the client's path parameters."""
    route = request.scope.get("route")
    path = getattr(route, "path", request.url.path)
    return f"{request.scope.get('method', 'WEBSOCKET')} {path}"


def serve_page(
    parts: PageParts, token: str, supervisor: Supervisor, *, editor: SettingsEditor | None = None
) -> Page:
    """Bind the page of a running site or edge; with an `editor` it can change the settings."""
    settings, web = parts.settings, parts.settings.web
    stored = {one.name: getattr(parts, one.name) for one in fields(parts)}
    site = PageContext(**stored, editor=editor)
    accounts = open_accounts(web, settings.data)
    app = create_app(
        site,
        token,
        health=supervisor.health,
        accounts=accounts,
    )
    # it listens before the site starts its cameras: a taken port is found at once
    page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
    tell_first_link(accounts, web, page.url)
    return page


def open_accounts(web: Web, data: Path | None) -> Accounts:
    """The accounts that the settings name, or those beside the data; else there are none."""
    beside = None if data is None else data / FILE_NAME
    return Accounts(web.accounts or beside, audit_days=web.audit_days, later=True)


def tell_first_link(accounts: Accounts, web: Web, url: str) -> None:
    """Remember the address of the page for log-in links, and log the first one if it is needed."""
    address = web.public_url or url
    if accounts.path is None:
        return  # nothing would tell the next start that it is not the first
    try:
        accounts.set_fact("url", web.public_url or _from_elsewhere(web, url))
        key = accounts.first_link()
    except StoreError as error:  # a disk that fails keeps no site from watching
        logger.warning("nobody can log in but with the token: %s", error)
        return
    if key is not None:
        link = address.rstrip("/") + link_path(key)
        logger.info("open %s to log in; it works once, within an hour", link)


def _from_elsewhere(web: Web, url: str) -> str:
    """The URL by the machine's name, if the page listens on all its addresses."""
    if web.host not in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return url
    scheme, port = url.partition(":")[0], url.rstrip("/").rpartition(":")[2]
    return f"{scheme}://{socket.gethostname()}:{port}/"
