"""Edges for tests: an edge's own buffer, directory and publisher, fed by scripts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.edge.batcher import EncodedBatch
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.edge.directory import EdgeDirectory
from stepvad.fleet.edge.publisher import Publisher
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.wire import Batch, encode
from tests.fleet.fleets import Script


class Sender:
    """All cameras of one site, sent as an edge sends them."""

    def __init__(
        self,
        settings: BusSettings,
        scripts: Sequence[Script],
        *,
        tenant: str = "",
        again_s: float = 8.0,
    ) -> None:
        (self.site,) = {one.site for one in scripts}
        self._scripts = scripts
        cameras = [one.camera for one in scripts]
        self.buffer = Buffer(cameras, 64_000_000, again_s=again_s)
        self._thread = BusThread(settings, f"edge-{self.site}")
        directory = EdgeDirectory(self.site, tenant, settings.subjects)
        self.publisher = Publisher(self._thread, self.buffer, cameras, directory, settings.subjects)
        self._running = threading.Thread(target=self.publisher.run, daemon=True)

    def start(self) -> None:
        self._running.start()

    async def play(self) -> None:
        """Send every message at its time, then wait until the broker has them all."""
        started = time.monotonic()
        await asyncio.gather(*(self._play(one, started) for one in self._scripts))
        await asyncio.to_thread(self.publisher.drain, 30.0)

    async def _play(self, one: Script, started: float) -> None:
        for at, batch in one.messages:
            await asyncio.sleep(max(started + at - time.monotonic(), 0))
            self.buffer.put(encoded(batch))

    def stop(self) -> None:
        self.publisher.stop(time.monotonic() + 5)
        self._running.join(5)
        self._thread.close()


def encoded(batch: Batch) -> EncodedBatch:
    of = batch.connection
    end = "" if batch.lost is None else ":lost"
    return EncodedBatch(
        camera=of.camera,
        id=f"{of.name}:{of.epoch}:{batch.seq}{end}",
        data=encode(batch),
        frames=len(batch),
        connection=of,
        end=batch.end,
        is_last=batch.lost is not None,
    )


@contextmanager
def senders(
    settings: BusSettings,
    scripts: Sequence[Script],
    *,
    tenant_of: Callable[[str], str] = lambda site: "",
) -> Iterator[list[Sender]]:
    """One edge for each site of the scripts."""
    sites = sorted({one.site for one in scripts})
    made = [
        Sender(settings, [one for one in scripts if one.site == site], tenant=tenant_of(site))
        for site in sites
    ]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.stop()
