"""The live wall: what is new, pushed to a browser as fast as it reads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress

from fastapi import WebSocket, WebSocketDisconnect
from starlette.concurrency import run_in_threadpool

from stepvad.intake.status import Board
from stepvad.payload import JsonObject
from stepvad.web import answers
from stepvad.web.shown import Shown

TICK_S = 1 / 25
"""How often frames are looked for; cameras give fewer."""
HEALTH_S = 1.0
"""How often health is told and events are looked for."""
MOST_WATCHERS = 32
LATEST_EVENTS = 50
"""A change among so many of the newest events is told."""


class Live:
    """All browsers that look at the wall."""

    def __init__(self, board: Board, store: Shown) -> None:
        self.board = board
        self.store = store
        self.watchers = 0
        self._looked = -HEALTH_S
        self._version = ""

    async def watch(self, socket: WebSocket, may_watch: Callable[[], bool]) -> None:
        """Tell one browser what is new until it goes, or until it logs out."""
        if self.watchers >= MOST_WATCHERS:
            await socket.close(1013)
            return
        await socket.accept()
        self.watchers += 1
        telling = asyncio.create_task(self._tell(socket, may_watch))
        listening = asyncio.create_task(_listen(socket))
        try:
            await asyncio.wait({telling, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.watchers -= 1
            for task in (telling, listening):
                task.cancel()
                # a browser that goes while it is told something is no mistake
                with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                    await task

    async def _tell(self, socket: WebSocket, may_watch: Callable[[], bool]) -> None:
        """Frames whenever there are new ones; once a second health, and whether events changed.

        While a browser is slow, nothing is put together for it: the next it gets is the latest.
        """
        frames = self.board.subscribe()
        told, version = -HEALTH_S, None
        while True:
            if time.monotonic() - told >= HEALTH_S:
                if not may_watch():
                    await socket.close(1008)
                    return
                told = time.monotonic()
                message = self._health()
                newest = await self.version()
                if newest != version:
                    message["events"] = version = newest
                await socket.send_text(json.dumps(message, separators=(",", ":")))
            new = frames.take()
            if new:
                thresholds = self.board.thresholds()
                people = {
                    name: answers.people(frame, thresholds[name]) for name, frame in new.items()
                }
                await socket.send_text(json.dumps({"frames": people}, separators=(",", ":")))
            await asyncio.sleep(TICK_S)

    def _health(self) -> JsonObject:
        """Cameras and sinks now."""
        now = self.board.snapshot()
        return {
            "now": round(time.time(), 1),
            "cameras": [answers.Camera.of(camera).model_dump() for camera in now.cameras],
            "sinks": [answers.Sink.of(sink).model_dump() for sink in now.sinks],
        }

    async def version(self) -> str:
        """A text that is another one when the newest events are; looked up once for all."""
        if time.monotonic() - self._looked >= HEALTH_S / 2:
            self._looked = time.monotonic()
            self._version = await run_in_threadpool(self._look)
        return self._version

    def _look(self) -> str:
        newest = [record.to_json() for record in self.store.events(limit=LATEST_EVENTS)]
        facts = json.dumps([newest, self.store.marked()])
        return hashlib.sha256(facts.encode()).hexdigest()[:16]


async def _listen(socket: WebSocket) -> None:
    """Until the browser goes; what it says is not heard."""
    with suppress(WebSocketDisconnect):
        while True:
            await socket.receive_text()
