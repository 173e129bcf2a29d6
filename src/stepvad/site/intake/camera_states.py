"""Camera states: reported by sources and pose workers, published to the rest of the site."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Literal, Protocol, runtime_checkable

from stepvad.site.intake.child_messages import StatusMessage
from stepvad.site.intake.frame_queues import FrameQueues
from stepvad.site.status import LiveStatus

logger = logging.getLogger(__name__)


@runtime_checkable
class CameraListener(Protocol):
    """Receives camera state changes, for example to publish them to a broker."""

    def status(self, camera: str, state: Literal["online", "offline"]) -> None:
        """Handle a state change; must not block."""
        ...


class CameraStates:
    """The states of all cameras; thread-safe.

    A camera that delivers images is online if its source is online and a pose worker has loaded
    its networks.
    """

    def __init__(self, status: LiveStatus, frames: FrameQueues, *, workers: int = 0) -> None:
        """`workers` is the number of pose workers."""
        self.listeners: list[CameraListener] = []
        self._status, self._frames = status, frames
        self._lock = threading.RLock()
        self._sources: dict[str, StatusMessage] = {}
        self._shown: dict[str, str] = {}
        self._was_online: set[str] = set()
        self._workers = workers
        self._refused: dict[int, str] = {}
        self._pictures: Collection[str] = ()

    def need_poses(self, cameras: Collection[str]) -> None:
        """Set the cameras whose images need pose workers."""
        self._pictures = cameras

    def report(self, camera: str, message: StatusMessage) -> None:
        """Report the state of a source; reports after a final failure are ignored."""
        with self._lock:
            before = self._sources.get(camera)
            if before is not None and before.state == "failed" and before.over:
                return
            self._sources[camera] = message
            self._show(camera)

    def begin_again(self, camera: str, reason: str) -> None:
        """Report a source that is replaced by another, even after a final failure."""
        with self._lock:
            self._sources[camera] = StatusMessage("offline", reason)
            self._show(camera)

    def listen(self, listener: CameraListener) -> None:
        """Report states to a listener from now on, and those that are known at once."""
        with self._lock:
            self.listeners.append(listener)
            for camera, state in self._shown.items():
                listener.status(camera, "online" if state == "online" else "offline")

    def forget(self, listener: object) -> None:
        """Report no more to a listener, if it is one."""
        with self._lock:
            self.listeners = [one for one in self.listeners if one is not listener]

    def refuse(self, worker: int, reason: str) -> None:
        """Report that a pose worker has no networks; if none has, cameras with images fail."""
        with self._lock:
            is_new = self._refused.get(worker) != reason
            self._refused[worker] = reason
            if is_new:
                logger.error("pose worker %d failed, retrying: %s", worker, reason)
                self._show_pictures()

    def ready(self, worker: int) -> None:
        """Report that a pose worker has loaded its networks."""
        with self._lock:
            if self._refused.pop(worker, None) is not None:
                self._show_pictures()

    def _show_pictures(self) -> None:
        for camera in self._pictures:
            if camera in self._sources:
                self._show(camera)

    def _show(self, camera: str) -> None:
        """Publish a camera's state; if it is not online, mark it as lost in the frame queues."""
        message = self._sources[camera]
        if camera in self._pictures and len(self._refused) >= self._workers > 0:
            message = StatusMessage("failed", next(iter(self._refused.values())), message.over)
        state, before = message.state, self._shown.get(camera)
        level = logging.INFO if state == "online" or message.over else logging.WARNING
        level = logging.ERROR if state == "failed" else level
        logger.log(level, "camera %s is %s: %s", camera, state, message.reason)
        if state == "online":
            if camera in self._was_online and before != "online":
                self._status.count(camera, "reconnects")
            self._was_online.add(camera)
        else:
            self._frames.lose(camera)
        self._shown[camera] = state
        reason = "" if state == "online" else message.reason
        self._status.state(camera, state, reason, time.time())
        for listener in self.listeners:
            listener.status(camera, "online" if state == "online" else "offline")
