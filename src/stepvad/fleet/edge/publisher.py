"""Publish buffered messages, one at a time per camera."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable

from stepvad.fleet.broker.bus import Bus, LimitError, TooLargeError, UnavailableError
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.edge.batcher import EncodedBatch
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.subjects import Subjects
from stepvad.retries import Backoff
from stepvad.site.stages import Heartbeat

logger = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.1, 2.0
"""First and longest back-off between attempts to publish a message."""
DEADLINE_S = 20.0
BEAT_S = 0.5


class Publisher:
    """The stage that publishes: it sends a message once the broker acknowledged the one before.

    This keeps the order of each camera; cameras do not block each other.
    """

    name = "publisher"

    def __init__(
        self,
        bus_thread: BusThread,
        buffer: Buffer,
        cameras: Iterable[str],
        subjects: Subjects,
    ) -> None:
        self._bus_thread, self._buffer = bus_thread, buffer
        self._subjects = subjects
        self._news = {camera: asyncio.Event() for camera in cameras}
        self.failures = 0
        self.last_error = ""
        """Empty after a successful publish."""
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Send until stopped; an error in the task of one camera stops the stage."""
        self._buffer.ring = self._ring
        start = self._bus_thread.thread.start
        sending = [start(self._serve(camera)) for camera in self._news]
        try:
            while not self._stopping.wait(BEAT_S):
                self._bus_thread.thread.call(
                    self.heartbeat.beat
                )  # not run by an event loop that hangs
                for one in sending:
                    if one.done():
                        one.result()
        finally:
            for one in sending:
                one.cancel()

    def drain(self, within_s: float) -> int:
        """Wait up to `within_s` for the buffer to drain; return how many messages are left."""
        deadline = time.monotonic() + within_s
        while len(self._buffer) and time.monotonic() < deadline:
            time.sleep(0.02)
        return len(self._buffer)

    def stop(self, deadline: float) -> None:
        """Stop sending."""
        self._stopping.set()

    def _ring(self, camera: str) -> None:
        self._bus_thread.thread.call(self._news[camera].set)

    async def _serve(self, camera: str) -> None:
        news, backoff = self._news[camera], Backoff(FIRST_S, LONGEST_S)
        bus = await self._bus_thread.bus()
        connections, was_away = bus.connections, False
        while True:
            if bus.connections != connections:
                connections = bus.connections
                self._buffer.again(camera)
            news.clear()
            batch = self._buffer.head(camera)
            if batch is None:
                await news.wait()
                continue
            try:
                await self._publish(bus, batch)
            except LimitError as error:  # refused, not lost: there is nothing to send again
                self._fail(error)
                await backoff.sleep()
            except UnavailableError as error:
                self._fail(error)
                was_away = True
                await backoff.sleep()
            else:
                self.last_error = ""
                backoff.reset()
                if was_away:  # another broker may have taken over without the latest messages
                    self._buffer.again(camera)
                    was_away = False

    async def _publish(self, bus: Bus, batch: EncodedBatch) -> None:
        of = batch.connection
        subject = self._subjects.poses(of.site, of.camera)
        try:
            await bus.publish(subject, batch.data, id=batch.id)
        except TooLargeError as error:
            logger.error("camera %s: a message is dropped: %s", batch.camera, error)
            self._buffer.drop(batch)
        else:
            self._buffer.done(batch)

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        if not self.last_error:
            why = "refuses poses" if isinstance(error, LimitError) else "is unreachable"
            logger.warning("the broker %s; poses are buffered: %s", why, error)
        self.last_error = str(error)
