"""The app of a running site: its page, its API, its live wall, its metrics."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, WebSocket
from fastapi.responses import PlainTextResponse, Response

from stepvad.errors import StepvadError
from stepvad.live.board import Board
from stepvad.report.page import house_style, player
from stepvad.web import metrics
from stepvad.web.failures import ErrorLog, add_error_answers
from stepvad.web.live import Live
from stepvad.web.login import add_login
from stepvad.web.routes import Running, add_routes
from stepvad.web.security import Guard, Token, own_names
from stepvad.web.shown import Place, Shown

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
METRICS = "text/plain; version=0.0.4; charset=utf-8"


def create_app(
    settings: Place,
    store: Shown,
    board: Board,
    token: str,
    *,
    explain: Callable[[str], dict[str, Any]],
    mark: Callable[[str, bool], None],
) -> FastAPI:
    """The app; nothing of it but the login form answers without the token."""
    word = Token(token)
    number = version("stepvad")
    app = FastAPI(
        title=f"stepvad: {settings.name}",
        version=number,
        description="Cameras, events and why they are events. Every route needs the token.",
        docs_url=None,
        redoc_url=None,
    )
    site = Running(settings, store, board, explain, mark)
    add_routes(app, site, number)
    add_login(app, word, settings.name)
    _add_page(app)
    errors = ErrorLog()
    _add_operations(app, site, number, errors)
    live = Live(board, store)

    @app.websocket("/ws/live")
    async def wall(socket: WebSocket) -> None:
        await live.watch(socket)

    add_error_answers(app, errors)
    app.add_middleware(Guard, token=word, names=own_names(settings.web.host))
    return app


def _add_page(app: FastAPI) -> None:
    parts = _static()

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _file(parts, "page.html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return _file(parts, name)


def _add_operations(app: FastAPI, site: Running, number: str, errors: ErrorLog) -> None:
    @app.get("/healthz", tags=["operations"], response_class=PlainTextResponse)
    def healthz() -> str:
        """Whether anybody is there."""
        return "ok\n"

    @app.get(
        "/readyz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "No camera is online, or the store cannot be read."}},
    )
    def readyz() -> Response:
        """Whether the site does its work: a camera is online and the store can be read."""
        cameras = site.board.snapshot().cameras
        if cameras and not any(one.state == "online" for one in cameras):
            return PlainTextResponse("no camera is online\n", 503)
        try:
            site.store.events(limit=1)
        except (sqlite3.Error, StepvadError) as error:
            errors.log(error, "GET /readyz")
            return PlainTextResponse("the store cannot be read\n", 503)
        return PlainTextResponse("ready\n")

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    def prometheus() -> Response:
        """All counts for Prometheus."""
        return Response(metrics.render(site.board, number), media_type=METRICS)


def _static() -> Mapping[str, str]:
    """The parts of the page by name, those of the house among them."""
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
