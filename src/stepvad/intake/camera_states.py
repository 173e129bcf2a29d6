"""Which cameras are online: sources and pose workers say so, the rest of a site hears of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Literal, Protocol, runtime_checkable

from stepvad.intake.child_messages import StatusMessage
from stepvad.intake.frame_queues import FrameQueues
from stepvad.intake.status import Board

logger = logging.getLogger(__name__)


@runtime_checkable
class CameraListener(Protocol):
    """Somebody outside who wants to know whether a camera is there, such as a broker."""

    def status(self, camera: str, state: Literal["online", "offline"]) -> None:
        """Hear of it, without waiting."""
        ...


class CameraStates:
    """The states of all cameras; any thread may report one.

    A camera with pictures is online if its source is and if a pose worker has its networks.
    """

    def __init__(self, board: Board, frames: FrameQueues, *, workers: int = 0) -> None:
        """`workers`: how many pose workers there are."""
        self.listeners: list[CameraListener] = []
        self._board, self._frames = board, frames
        self._lock = threading.RLock()
        self._sources: dict[str, StatusMessage] = {}
        self._shown: dict[str, str] = {}
        self._was_online: set[str] = set()
        self._workers = workers
        self._refused: dict[int, str] = {}
        self._pictures: Collection[str] = ()

    def need_poses(self, cameras: Collection[str]) -> None:
        """These cameras show pictures, in which pose workers find people."""
        self._pictures = cameras

    def report(self, camera: str, message: StatusMessage) -> None:
        """A source came, went or failed; nothing follows a failure that is over."""
        with self._lock:
            before = self._sources.get(camera)
            if before is not None and before.state == "failed" and before.over:
                return
            self._sources[camera] = message
            self._show(camera)

    def refuse(self, worker: int, reason: str) -> None:
        """A pose worker has no networks; without any worker, cameras with pictures fail."""
        with self._lock:
            is_new = self._refused.get(worker) != reason
            self._refused[worker] = reason
            if is_new:
                logger.error("pose worker %d cannot work, it is tried again: %s", worker, reason)
                self._show_pictures()

    def ready(self, worker: int) -> None:
        """A pose worker has its networks."""
        with self._lock:
            if self._refused.pop(worker, None) is not None:
                self._show_pictures()

    def _show_pictures(self) -> None:
        for camera in self._pictures:
            if camera in self._sources:
                self._show(camera)

    def _show(self, camera: str) -> None:
        """Tell everybody, and end what went on if the camera is gone."""
        message = self._sources[camera]
        if camera in self._pictures and len(self._refused) >= self._workers > 0:
            message = StatusMessage("failed", next(iter(self._refused.values())), message.over)
        state, before = message.state, self._shown.get(camera)
        level = logging.INFO if state == "online" or message.over else logging.WARNING
        level = logging.ERROR if state == "failed" else level
        logger.log(level, "camera %s is %s: %s", camera, state, message.reason)
        if state == "online":
            if camera in self._was_online and before != "online":
                self._board.count(camera, "reconnects")
            self._was_online.add(camera)
        else:
            self._frames.lose(camera)
        self._shown[camera] = state
        reason = "" if state == "online" else message.reason
        self._board.state(camera, state, reason, time.time())
        for listener in self.listeners:
            listener.status(camera, "online" if state == "online" else "offline")
