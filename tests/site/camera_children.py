"""Camera processes that do as told, for tests; lean, since each is a process of its own."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable

import numpy as np

from stepvad import codec
from stepvad.poses import Pose
from stepvad.site.camera_process import (
    BEAT,
    PROGRESS,
    READY,
    STATE,
    CameraSource,
    Networks,
    SentFrame,
    SourceState,
    encode_frame,
    run_cameras,
)
from stepvad.site.processes import ChildPipe
from stepvad.video import camera as camera_module

SOMEBODY = Pose(1, np.ones((17, 2), np.float32), np.ones(17, np.float32))


class Child:
    """A camera process that makes frames up."""

    def __init__(self, site: ChildPipe) -> None:
        self.site, self.sources = site, dict[int, CameraSource]()
        self.ages = dict[int, float]()
        self.looking_s = 0.0
        self._slot = 0
        site.send(READY)

    def open(self, camera: CameraSource) -> None:
        self.sources[camera.number], self.ages[camera.number] = camera, 0.0
        said = SourceState(camera.number, "online", "4 x 4 pixels")
        self.site.send(STATE + codec.encode(said))

    def show(self, number: int) -> None:
        self._slot += 1
        frame = SentFrame(number, 0, self._slot, 1e9, time.monotonic(), (4, 4), [SOMEBODY])
        self.site.send(encode_frame(frame))

    def beat(self) -> None:
        rows = [PROGRESS.pack(number, age_s, 1, 2, 1) for number, age_s in self.ages.items()]
        self.site.send(BEAT + struct.pack("<f", self.looking_s) + b"".join(rows))

    def run(self, each: Callable[[CameraSource], None] = lambda camera: None) -> None:
        """Open what the site says, and send frames; `each` is called after each opening."""
        while True:
            while self.site._pipe.poll(0.05):
                message = self.site.receive()
                if isinstance(message, int):
                    del self.sources[message], self.ages[message]
                else:
                    self.open(message)
                    each(message)
            for number in self.sources:
                self.show(number)
            self.beat()


def healthy(site: ChildPipe, networks: Networks) -> None:
    Child(site).run()


def poisoned(site: ChildPipe, networks: Networks) -> None:
    """Dies of a camera, as of a stream that crashes the decoder."""

    def each(camera: CameraSource) -> None:
        if camera.name == "bad":
            os.kill(os.getpid(), signal.SIGSEGV)

    Child(site).run(each)


def with_a_stuck_decoder(site: ChildPipe, networks: Networks) -> None:
    """Has a camera whose decoder gives no sign of life, however often it is opened."""
    child = Child(site)

    def each(camera: CameraSource) -> None:
        if camera.name == "bad":
            child.ages[camera.number] = 1e4
            child.sources.pop(camera.number)

    child.sources = Unforgetting()
    child.run(each)


class Unforgetting(dict[int, CameraSource]):
    """May be told twice to forget."""

    def __delitem__(self, number: int) -> None:
        self.pop(number, None)


def with_a_stuck_looker(site: ChildPipe, networks: Networks) -> None:
    child = Child(site)
    child.looking_s = 30.0
    child.run()


def that_cuts_a_message(site: ChildPipe, networks: Networks) -> None:
    child = Child(site)

    def each(camera: CameraSource) -> None:
        site.send(encode_frame(SentFrame(camera.number, 0, 0, 1e9, 1.0, (4, 4), [SOMEBODY]))[:-1])

    child.run(each)


def of_others(site: ChildPipe, networks: Networks) -> None:
    """Sends frames of a source that it does not have, then of its own."""
    child = Child(site)
    child.run(lambda camera: child.show(camera.number + 1000))


def retries_often(site: ChildPipe, networks: Networks) -> None:
    """Watches cameras as ever, with shorter waits between its attempts."""
    vars(camera_module)["LONGEST_WAIT_S"] = 0.05
    run_cameras(site, networks)
