"""Publish buffered messages, one at a time per camera."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from stepvad.fleet.broker.bus import Bus, LimitError, TooLargeError, UnavailableError
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.edge.batcher import EncodedBatch
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.edge.directory import EdgeDirectory
from stepvad.fleet.moving import Moved
from stepvad.fleet.places import Place
from stepvad.fleet.subjects import Subjects
from stepvad.fleet.wire import batch_of, encode
from stepvad.retries import Backoff
from stepvad.site.stages import Heartbeat

logger = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 0.1, 2.0
"""First and longest back-off between attempts to publish a message."""
DEADLINE_S = 20.0
BEAT_S = 0.5


@dataclass(slots=True)
class Route:
    """Where one camera is sent, and whether its connection began elsewhere."""

    place: Place
    moved: Moved | None = None
    notice: tuple[str, bytes] | None = None
    """Subject and data of the message that told the former owner."""

    def headers(self, batch: EncodedBatch) -> dict[str, str] | None:
        """Headers of a message at this place."""
        if self.moved is not None and self.moved.epoch == batch.connection.epoch:
            return self.moved.headers
        return None


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
        directory: EdgeDirectory,
        subjects: Subjects,
    ) -> None:
        self._bus_thread, self._buffer = bus_thread, buffer
        self._directory, self._subjects = directory, subjects
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
        sending = [start(self._follow()), *(start(self._serve(camera)) for camera in self._news)]
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

    async def _follow(self) -> None:
        await self._directory.follow(await self._bus_thread.bus())

    async def _serve(self, camera: str) -> None:
        news, backoff = self._news[camera], Backoff(FIRST_S, LONGEST_S)
        bus = await self._bus_thread.bus()
        await self._directory.known.wait()
        route = Route(self._directory.place(camera))
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
                if was_away and route.notice is not None:  # it may be lost with the broker's memory
                    await bus.publish(*route.notice)
                    route.notice = None
                if self._directory.place(camera) != route.place:
                    route = await self._move(bus, camera, route)
                    continue
                await self._publish(bus, batch, route)
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

    async def _publish(self, bus: Bus, batch: EncodedBatch, route: Route) -> None:
        of = batch.connection
        subject = self._subjects.poses(of.site, of.camera, route.place)
        try:
            await bus.publish(subject, batch.data, id=batch.id, headers=route.headers(batch))
        except TooLargeError as error:
            logger.error("camera %s: a message is dropped: %s", batch.camera, error)
            self._buffer.drop(batch)
        else:
            self._buffer.done(batch)

    async def _move(self, bus: Bus, camera: str, route: Route) -> Route:
        """Tell the former owner of a camera, and send the latest frames again to the new one.

        A connection that is over needs neither.
        """
        place, last = self._directory.place(camera), self._buffer.last(camera)
        logger.debug("camera %s: from shard %s to %s", camera, route.place, place)
        if last is None or last.is_last:
            return Route(place)
        of = last.connection
        notice = (
            self._subjects.poses(of.site, of.camera, route.place),
            encode(batch_of([], of, last.end, moved=True)),
        )
        await bus.publish(*notice)
        self._buffer.again(camera, epoch=of.epoch)
        return Route(place, Moved(of.epoch, last.end), notice)

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        if not self.last_error:
            why = "refuses poses" if isinstance(error, LimitError) else "is unreachable"
            logger.warning("the broker %s; poses are buffered: %s", why, error)
        self.last_error = str(error)
