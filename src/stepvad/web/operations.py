"""Routes for operators: liveness, readiness and metrics."""

from __future__ import annotations

import logging
import sqlite3

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response

from stepvad.errors import StepvadError
from stepvad.supervision.logs import Repeats, repeated
from stepvad.web import metrics
from stepvad.web.failures import ErrorLog
from stepvad.web.health import HealthSource
from stepvad.web.routes import Running

logger = logging.getLogger(__name__)

METRICS = "text/plain; version=0.0.4; charset=utf-8"


def add_operations(
    app: FastAPI, site: Running, number: str, source: HealthSource, errors: ErrorLog
) -> None:
    """Add health, readiness and metrics."""
    _add_health(app, source)

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
        body = metrics.render(site.status, number, source.health())
        return Response(body, media_type=METRICS)


def _add_health(app: FastAPI, source: HealthSource) -> None:
    lines = Repeats()

    @app.get(
        "/healthz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "A part of the process hangs."}},
    )
    async def healthz() -> Response:  # async, since all worker threads may be busy
        """Whether every part of the process makes progress."""
        health = source.health()
        if health.is_ok:
            return PlainTextResponse("ok\n")
        late = ", ".join(health.late)
        held = lines.admit(late)
        if held is not None:
            logger.error("stages hang: %s%s", late, repeated(held))
        return PlainTextResponse("hanging\n", 503)
