"""Errors that a request runs into: a short answer to the client, the whole story to the log."""

from __future__ import annotations

import logging
import sqlite3

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import JSONResponse, Response

from stepvad.errors import ConfigError, StepvadError
from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)


class ErrorLog:
    """Logs each error once a minute, with a traceback if nobody foresaw it."""

    def __init__(self, repeats: Repeats | None = None) -> None:
        self._repeats = repeats or Repeats()

    def log(self, error: Exception, request: str) -> None:
        """Log what went wrong for a request."""
        held = self._repeats.admit((type(error), str(error)))
        if held is None:
            return
        foreseen = isinstance(error, StepvadError)
        logger.error(
            "%s failed: %s: %s%s",
            *(request, type(error).__name__, error, repeated(held)),
            exc_info=None if foreseen else error,
        )


def add_error_answers(app: FastAPI, errors: ErrorLog) -> None:
    """Answer 503 where the event store fails, 403 where the page lacks a right."""

    async def unavailable(request: Request | WebSocket, error: Exception) -> Response:
        """What cannot be read or written now may be later."""
        errors.log(error, _name(request))
        problem = {"detail": "the event store cannot be used now; try again"}
        return JSONResponse(problem, 503, {"Retry-After": "5"})

    async def forbidden(request: Request | WebSocket, error: Exception) -> Response:
        """What this page was not set up for."""
        errors.log(error, _name(request))
        return JSONResponse({"detail": "this page may not do that"}, 403)

    for kind in (sqlite3.Error, StepvadError):
        app.add_exception_handler(kind, unavailable)
    app.add_exception_handler(ConfigError, forbidden)


def _name(request: Request | WebSocket) -> str:
    """Method and route, without what the client filled in."""
    route = request.scope.get("route")
    path = getattr(route, "path", request.url.path)
    return f"{request.scope.get('method', 'WEBSOCKET')} {path}"
