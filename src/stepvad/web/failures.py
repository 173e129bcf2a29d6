"""Request errors: short responses for clients, details in the log."""

from __future__ import annotations

import logging
import sqlite3

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import JSONResponse, Response

from stepvad.errors import ConfigError, StepvadError
from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)


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
