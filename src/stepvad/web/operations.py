"""For operators: liveness, readiness, metrics, and errors in the log."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from stepvad.errors import ConfigError, StepvadError
from stepvad.supervision.logs import Repeats, repeated
from stepvad.supervision.stages import Health
from stepvad.web import metrics
from stepvad.web.routes import Running

logger = logging.getLogger(__name__)

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class ErrorLog:
    """Logs each error at most once a minute, with a traceback if it is unexpected."""

    def __init__(self, repeats: Repeats | None = None) -> None:
        self._repeats = repeats or Repeats()

    def log(self, error: Exception, request: str) -> None:
        """Log the error of a request."""
        held = self._repeats.admit((type(error), str(error)))
        if held is None:
            return
        foreseen = isinstance(error, StepvadError)
        logger.error(
            "%s failed: %s: %s%s",
            *(request, type(error).__name__, error, repeated(held)),
            exc_info=None if foreseen else error,
        )


def add_operations(
    app: FastAPI, site: Running, number: str, health: Callable[[], Health], errors: ErrorLog
) -> None:
    """Add health, readiness and metrics."""
    _add_health(app, health)

    @app.get(
        "/readyz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "No camera is online, or the store cannot be read."}},
    )
    def readyz() -> Response:
        """Whether the site does its work: a camera is online and the store can be read."""
        cameras = site.status.snapshot().cameras
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
        body = metrics.render(site.status, number, health())
        return Response(body, media_type=METRICS)


def _add_health(app: FastAPI, health: Callable[[], Health]) -> None:
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
        held = lines.admit(late)
        if held is not None:
            logger.error("stages hang: %s%s", late, repeated(held))
        return PlainTextResponse("hanging\n", 503)


def add_error_answers(app: FastAPI, errors: ErrorLog) -> None:
    """Respond with 503 if the event store fails, 403 if the page may not do something."""

    async def unavailable(request: Request | WebSocket, error: Exception) -> Response:
        """503: the store may be available again later."""
        errors.log(error, _name(request))
        problem = {"detail": "the event store cannot be used now; try again"}
        return JSONResponse(problem, 503, {"Retry-After": "5"})

    async def forbidden(request: Request | WebSocket, error: Exception) -> Response:
        """403: not permitted by the configuration."""
        errors.log(error, _name(request))
        return JSONResponse({"detail": "this page may not do that"}, 403)

    for kind in (sqlite3.Error, StepvadError):
        app.add_exception_handler(kind, unavailable)
    app.add_exception_handler(ConfigError, forbidden)


def _name(request: Request | WebSocket) -> str:
    """Method and route, without the client's path parameters."""
    route = request.scope.get("route")
    path = getattr(route, "path", request.url.path)
    return f"{request.scope.get('method', 'WEBSOCKET')} {path}"
