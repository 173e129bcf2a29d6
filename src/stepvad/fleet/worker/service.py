"""The worker process: runs from its settings until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stepvad.errors import ConfigError, os_reason
from stepvad.fleet.broker.administration import connected_until, led
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus
from stepvad.fleet.event_loop import end, rest
from stepvad.fleet.settings import FleetSettings
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.stats import WorkerMetrics, WorkerStats
from stepvad.fleet.worker.worker import Worker
from stepvad.retries import Backoff
from stepvad.site.stages import watchdog

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.2, 5.0
"""First and longest back-off between attempts to create streams and buckets."""
LOOK_S = 10.0
"""Time between two looks at the leaders of the streams."""


def worker_name(settings: FleetSettings) -> str:
    """A name unique across workers and restarts."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:32]
    return f"{settings.worker.name or f'{host}-{os.getpid()}'}-{secrets.token_hex(3)}"


def stopping() -> asyncio.Event:
    """An event that is set on SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def set_up(bus: NatsBus, stop: asyncio.Event) -> None:
    """Create streams and buckets, retrying with back-off until stopped."""
    backoff = Backoff(FIRST_S, LONGEST_S)
    while not stop.is_set():
        try:
            await bus.setup()
            return
        except UnavailableError as error:
            logger.warning("%s", error.problem)
            await rest(stop, backoff.next_s())


async def work(settings: FleetSettings) -> None:
    """Score until SIGTERM, then release all shards and the lease.

    A worker that hangs ends the process: others take its shards as soon as its lease expires.
    """
    models = FleetModels.load(settings.models)
    name = worker_name(settings)
    stop = stopping()
    async with connected_until(settings.bus, name, stop) as bus:
        if bus is None:
            return
        worker = Worker(bus, settings, models, name)
        close = serve_metrics(worker, settings.worker.metrics)
        watching = asyncio.create_task(watch_streams(bus, worker))
        try:
            await set_up(bus, stop)
            logger.info("worker %s started", name)
            with watchdog(f"worker {name}", worker.stats.heartbeat):
                await worker.run(stop)
        finally:
            await end(watching)
            close()


async def watch_streams(bus: NatsBus, worker: Worker) -> None:
    """Look which streams have a leader, until cancelled."""
    while True:
        worker.stats.led = await led(bus)
        await asyncio.sleep(LOOK_S)


def serve_metrics(worker: Worker, address: str | None) -> Callable[[], None]:
    """Serve Prometheus metrics and /health at an address; return a function that closes it."""
    if address is None:
        return lambda: None
    from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

    metrics = WorkerMetrics(
        worker.stats,
        worker.scorer.counts,
        lambda: len(worker.owned_shards),
        lambda: worker.settings.bus.shards,
        lambda: sum(len(owned.waiting) for owned in [*worker.owned_shards.values()]),
        lambda: sum(owned.unsaid for owned in [*worker.owned_shards.values()]),
    )
    registry = CollectorRegistry()
    registry.register(metrics)
    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host, registry)
    except OSError as error:
        raise ConfigError(
            f"worker.metrics: expected a free address, got {address}: {os_reason(error)}",
            hint="choose another port",
        ) from None
    server.set_app(with_health(make_wsgi_app(registry), worker.stats))

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close


def with_health(metrics: WSGIApplication, stats: WorkerStats) -> WSGIApplication:
    """Serve metrics, plus /health, which fails if the worker hangs; runs in its own thread."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/health":
            return metrics(environ, start)
        beat = stats.heartbeat
        start(
            "503 Service Unavailable" if beat.is_late else "200 OK",
            [("Content-Type", "text/plain")],
        )
        return [f"the last round was {beat.age_s:.1f} s ago\n".encode()]

    return answer
