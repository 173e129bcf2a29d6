"""Sends what waits in the buffer: of each camera one message after the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future

from stepvad.fleet.buffer import Buffer
from stepvad.fleet.bus import UnavailableError
from stepvad.fleet.line import Line

logger = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.1, 2.0
"""Between two tries of a message that the broker does not take."""


class Publisher:
    """A message follows when the broker has the one before it, so that order never changes.

    Cameras do not wait for each other.
    """

    def __init__(self, line: Line, buffer: Buffer, cameras: Iterable[str]) -> None:
        self._line, self._buffer = line, buffer
        self._news = {camera: asyncio.Event() for camera in cameras}
        self.failures = 0
        self.last_error = ""
        """Empty after an arrival."""
        self._tasks: list[Future[None]] = []

    def start(self) -> None:
        """Begin."""
        self._buffer.ring = self._ring
        self._tasks = [self._line.thread.start(self._serve(camera)) for camera in self._news]

    def drain(self, within_s: float) -> int:
        """Give what waits some time; how many messages are left."""
        deadline = time.monotonic() + within_s
        while len(self._buffer) and time.monotonic() < deadline:
            time.sleep(0.02)
        return len(self._buffer)

    def stop(self) -> None:
        """Send nothing more."""
        for task in self._tasks:
            task.cancel()

    def _ring(self, camera: str) -> None:
        self._line.thread.call(self._news[camera].set)

    async def _serve(self, camera: str) -> None:
        news, delay_s = self._news[camera], FIRST_S
        bus = await self._line.bus()
        connections, was_away = bus.connections, False
        while True:
            if bus.connections != connections:
                connections = bus.connections
                self._buffer.again(camera)
            news.clear()
            parcel = self._buffer.head(camera)
            if parcel is None:
                await news.wait()
                continue
            try:
                await bus.publish(parcel.subject, parcel.data, id=parcel.id)
            except UnavailableError as error:
                self._fail(error)
                was_away = True
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, LONGEST_S)
            else:
                self._buffer.done(parcel)
                self.last_error, delay_s = "", FIRST_S
                if was_away:  # another broker may have taken over without the latest
                    self._buffer.again(camera)
                    was_away = False

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        if not self.last_error:
            logger.warning("the broker does not take poses, they wait: %s", error)
        self.last_error = str(error)
