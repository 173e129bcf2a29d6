"""A worker as a process: from its settings to SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable

from stepvad.errors import ConfigError
from stepvad.fleet.bus import UnavailableError
from stepvad.fleet.connecting import connected_until
from stepvad.fleet.models import FleetModels
from stepvad.fleet.nats import NatsBus
from stepvad.fleet.settings import Settings
from stepvad.fleet.tally import Metrics
from stepvad.fleet.worker import Worker

logger = logging.getLogger(__name__)

AGAIN_S = 0.5


def worker_name(settings: Settings) -> str:
    """A name that no other worker has, nor this one when it is started again."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:32]
    return f"{settings.worker.name or f'{host}-{os.getpid()}'}-{secrets.token_hex(3)}"


def stopping() -> asyncio.Event:
    """Set when the process is told to end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def set_up(bus: NatsBus, stop: asyncio.Event) -> None:
    """Make streams and buckets, for as long as it takes."""
    while not stop.is_set():
        try:
            await bus.setup()
            return
        except UnavailableError as error:
            logger.warning("%s", error.problem)
            await asyncio.sleep(AGAIN_S)


async def work(settings: Settings) -> None:
    """Score until SIGTERM, then give everything back."""
    models = FleetModels.load(settings.models)
    name = worker_name(settings)
    stop = stopping()
    async with connected_until(settings.bus, name, stop) as bus:
        if bus is None:
            return
        await set_up(bus, stop)
        worker = Worker(bus, settings, models, name)
        close = serve_metrics(worker, settings.worker.metrics)
        logger.info("worker %s begins", name)
        try:
            await worker.run(stop)
        finally:
            close()


def serve_metrics(worker: Worker, address: str | None) -> Callable[[], None]:
    """Answer Prometheus at an address, until the returned function is called."""
    if address is None:
        return lambda: None
    from prometheus_client import CollectorRegistry, start_http_server

    metrics = Metrics(
        worker.tally,
        worker.scorer.counts,
        lambda: len(worker.holdings),
        lambda: sum(len(holding.waiting) for holding in [*worker.holdings.values()]),
    )
    registry = CollectorRegistry()
    registry.register(metrics)
    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host, registry)
    except OSError as error:
        raise ConfigError(
            f"worker.metrics: expected a free address, got {address}: {error.strerror}",
            hint="choose another port",
        ) from None

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
