"""Frames of one camera, decoded in a process of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepvad.errors import StepvadError
from stepvad.live.child import Child, Kept, end_with_pipe
from stepvad.live.lanes import Frame
from stepvad.live.logs import Form
from stepvad.live.sections import CameraSettings
from stepvad.live.slots import Slots
from stepvad.video.camera import Camera, StateChange
from stepvad.video.source import Frame as Picture
from stepvad.video.source import VideoFile

logger = logging.getLogger(__name__)

State = Literal["offline", "online", "failed"]


@dataclass(frozen=True, slots=True)
class Said:
    """A capture process says how its camera is; `over`: nothing will follow."""

    state: State
    reason: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """What goes before the pixels of a frame."""

    connection: int
    wall0: float
    slot: int
    arrived: float
    shape: tuple[int, int, int]
    shed: int
    """Frames since the last one that were too old to be sent."""
    skipped: int
    """Frames since the last one whose time slot was taken."""


class _Sender:
    """Sends what a camera shows, one frame for each time slot."""

    def __init__(self, pipe: Connection[Any, Any], rate: float) -> None:
        self._pipe = pipe
        self._rate = rate
        self._lock = threading.Lock()
        self._slots = Slots(rate)
        self._epoch: int | None = None
        self._wall0 = 0.0
        self._skipped = 0
        self._dropped = 0

    def say(self, said: Said) -> None:
        with self._lock:
            self._pipe.send(said)

    def frame(self, picture: Picture, dropped: int = 0) -> None:
        """Send a frame unless its slot is taken; `dropped` counts all that were never seen."""
        age_s = min(max(time.time() - picture.wall, 0.0), 10.0)
        arrived = time.monotonic() - age_s
        if picture.epoch != self._epoch:
            self._epoch, self._wall0 = picture.epoch, picture.wall
            self._slots = Slots(self._rate)
        slot = self._slots.place(picture.pts, arrived)
        if slot is None:
            self._skipped += 1
            return
        image = np.ascontiguousarray(picture.image)
        header = Header(
            self._epoch,
            self._wall0,
            slot,
            arrived,
            image.shape,
            dropped - self._dropped,
            self._skipped,
        )
        self._skipped, self._dropped = 0, dropped
        with self._lock:
            self._pipe.send(header)
            self._pipe.send_bytes(image.data.cast("B"))


def capture(pipe: Connection[Any, Any], camera: CameraSettings) -> None:
    """Send the frames of a camera until the pipe closes; a file ends by itself."""
    end_with_pipe(pipe)
    sender = _Sender(pipe, camera.rate)
    try:
        if camera.kind == "stream":
            _stream(camera, sender)
        else:
            _file(camera, sender)
    except StepvadError as error:
        sender.say(Said("failed", str(error), over=True))


def _stream(camera: CameraSettings, sender: _Sender) -> None:
    logging.getLogger("stepvad.video.camera").setLevel(logging.ERROR)  # the site tells the states

    def on_state(change: StateChange) -> None:
        sender.say(Said(change.state, change.reason))

    source = Camera(camera.name, camera.address(), on_state=on_state)
    for picture in source:
        sender.frame(picture, source.counts.dropped)


def _file(camera: CameraSettings, sender: _Sender) -> None:
    """Play a video in real time."""
    video = VideoFile(Path(camera.url))
    while True:
        began, first = time.monotonic(), None
        for picture in video:
            if first is None:
                height, width = picture.image.shape[:2]
                sender.say(Said("online", f"{width} x {height} pixels"))
                first = picture.pts or 0.0
            at = picture.number / (video.fps or camera.rate)
            due = began + (at if picture.pts is None else picture.pts - first)
            time.sleep(max(due - time.monotonic(), 0.0))
            sender.frame(_now(picture))
        if not camera.loop:
            sender.say(Said("offline", "the file is over", over=True))
            return
        sender.say(Said("offline", "the file begins again"))


def _now(picture: Picture) -> Picture:
    """The same frame, seen now and not when it was decoded."""
    return Picture(
        picture.camera, picture.number, picture.pts, time.time(), picture.image, picture.epoch
    )


class Capture:
    """A camera's capture process, started again when it dies."""

    def __init__(
        self,
        camera: CameraSettings,
        form: Form,
        *,
        put: Callable[[Frame], None],
        said: Callable[[str, Said], None],
        count_more: Callable[[str, Literal["shed", "skipped", "restarts"], int], None],
    ) -> None:
        self.camera = camera
        self.process = Kept(
            f"capture-{camera.name}", form, capture, camera, serve=self._read, died=self._died
        )
        self._put, self._said, self._count = put, said, count_more
        self._numbers = count()
        self._connections = 0

    def _died(self, code: int, again: bool) -> None:
        name = self.camera.name
        self._count(name, "restarts", 1)
        if not again:
            reason = f"its capture process died too often, the last time with code {code}"
            self._said(name, Said("failed", reason, over=True))
            return
        logger.warning("camera %s: capture ended with code %s, started again", name, code)
        self._said(name, Said("offline", "its capture process died"))

    def _read(self, child: Child) -> bool:
        """Hand on what the process sends; whether it said that nothing will follow."""
        self._connections += 1
        connections = self._connections
        while not self.process.stopping.is_set():
            if not child.pipe.poll(0.2):
                continue
            message = child.pipe.recv()
            if isinstance(message, Said):
                self._said(self.camera.name, message)
                if message.over:
                    return True
                continue
            self._take(message, child.pipe.recv_bytes(), connections)
        return True

    def _take(self, header: Header, pixels: bytes, process: int) -> None:
        self._count(self.camera.name, "shed", header.shed)
        self._count(self.camera.name, "skipped", header.skipped)
        height, width, _ = header.shape
        self._put(
            Frame(
                camera=self.camera.name,
                number=next(self._numbers),
                connection=process * 1_000_000 + header.connection,
                wall0=header.wall0,
                slot=header.slot,
                arrived=header.arrived,
                size=(width, height),
                image=np.frombuffer(pixels, np.uint8).reshape(header.shape),
            )
        )
