"""The live wall: push updates to browsers as fast as they read."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi import WebSocket, WebSocketDisconnect
from starlette.concurrency import run_in_threadpool

from stepvad.codec import JsonObject, encode
from stepvad.errors import StepvadError
from stepvad.site.stages import FailureLog
from stepvad.site.status import LiveStatus, ScoredFrame
from stepvad.web.routes import EventStore

logger = logging.getLogger(__name__)
TICK_S = 1 / 25
"""Polling interval for frames; cameras deliver fewer."""
HEALTH_S = 1.0
"""Interval of health messages and of polling for events."""
MayWatch = Callable[[], Awaitable[bool]]
MOST_EACH, MOST_WATCHERS = 8, 64
"""Maximum number of walls, of one user and in all."""
SEEN = 0.05
"""Minimum confidence of a joint to be drawn."""
AGAIN = 1012
"""Close code that makes the page connect again at once."""
LATEST_EVENTS = 50
"""Number of newest events that are monitored for changes."""


class Live:
    """Serves all browsers connected to the live wall."""

    def __init__(self, status: LiveStatus, store: EventStore) -> None:
        self.status = status
        self.store = store
        self.watchers = Counter[str]()
        self._hashed_at = -HEALTH_S
        self._version = ""
        self._failures = FailureLog(logger)

    async def watch(
        self, socket: WebSocket, may_watch: MayWatch, lasts_s: float = math.inf
    ) -> None:
        """Push updates to one browser until it disconnects, logs out or has to connect again."""
        user = socket.state.identity.user.name
        if self.watchers.total() >= MOST_WATCHERS or self.watchers[user] >= MOST_EACH:
            await socket.close(1013)
            return
        await socket.accept()
        self.watchers[user] += 1
        # whichever ends first ends the other: an error while sending, or the browser's close
        pushing = asyncio.create_task(self._push(socket, may_watch, lasts_s))
        listening = asyncio.create_task(_listen(socket))
        try:
            await asyncio.wait({pushing, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.watchers[user] -= 1
            self.watchers += Counter()  # drops those of nobody
            for task in (pushing, listening):
                task.cancel()
                # a browser may disconnect during a send
                with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                    await task

    async def _push(self, socket: WebSocket, may_watch: MayWatch, lasts_s: float) -> None:
        """Send new frames as they arrive; once a second, health and whether events changed.

        Nothing is buffered for a slow browser: its next message has the latest frames.
        """
        frames = self.status.subscribe()
        sent_at, version, ends = -HEALTH_S, None, time.monotonic() + lasts_s
        while True:
            # once a second: health, and a hash by which the page knows that events changed
            if time.monotonic() - sent_at >= HEALTH_S:
                if not await may_watch():
                    await socket.close(1008)
                    return
                if time.monotonic() >= ends:
                    await socket.close(AGAIN)
                    return
                sent_at = time.monotonic()
                now = self.status.snapshot()
                message: dict[str, object] = {"now": round(time.time(), 1)}
                message |= {"cameras": now.cameras, "sinks": now.sinks, "troubles": now.troubles}
                newest = await self.version()
                if newest != version:
                    message["events"] = version = newest
                await socket.send_text(encode(message).decode())
            # the latest frame of each camera that has a new one
            new = frames.take()
            if new:
                thresholds = self.status.thresholds()
                people = {name: people_of(frame, thresholds[name]) for name, frame in new.items()}
                await socket.send_text(encode({"frames": people}).decode())
            await asyncio.sleep(TICK_S)

    async def version(self) -> str:
        """A hash that changes with the newest events; cached for all browsers."""
        if time.monotonic() - self._hashed_at >= HEALTH_S / 2:
            self._hashed_at = time.monotonic()
            try:
                self._version = await run_in_threadpool(self._hash_events)
            except StepvadError as error:  # of a disk that fails: the page goes on and says so
                self._failures.log("the newest events cannot be read", error)
        return self._version

    def _hash_events(self) -> str:
        newest = self.store.events(limit=LATEST_EVENTS)
        said = self.store.reviews([record.id for record in newest])
        return hashlib.sha256(encode([newest, said])).hexdigest()[:16]


def people_of(frame: ScoredFrame, threshold: float | None) -> JsonObject:
    """The people of a frame, as small as it gets: whole pixels, and the score by the threshold."""
    people: list[JsonObject] = []
    for pose in frame.poses:
        score, seen = frame.scores.get(pose.track_id), frame.muted.get(pose.track_id)
        # x and y of all joints in one list; null for a joint that was not found
        joints = zip(
            pose.keypoints.round().astype(int).tolist(), pose.confidence.tolist(), strict=True
        )
        person: JsonObject = {
            "id": pose.track_id,
            "xy": [one for xy, sure in joints for one in (xy if sure >= SEEN else (None, None))],
            "score": None if score is None else round(score, 2),
            "of": None if score is None or threshold is None else round(score / threshold, 3),
        }
        if seen is not None:
            person["doubt"] = f"not judged: seen in {round(10 * seen)} of 10 frames"
        people.append(person)
    return {"n": frame.number, "t": round(frame.wall, 2), "size": frame.size, "people": people}


async def _listen(socket: WebSocket) -> None:
    """Wait until the browser disconnects; its messages are ignored."""
    with suppress(WebSocketDisconnect):
        while True:
            await socket.receive_text()
