"""Capture processes that fill the site's buffers: too fast, too large, killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest

from stepvad.people import People, no_boxes
from stepvad.site.intake import capture as capture_module
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.capture import Capture, _Sender
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.intake.status import LiveStatus
from stepvad.site.processes import ChildPipe, SupervisedProcess
from stepvad.site.settings.sections import CameraSettings
from stepvad.video.source import Frame as Picture
from tests.site.intake.pools import grey, is_open, read, running
from tests.video.servers import wait_until

NOBODY = People(no_boxes(), np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32))
CAMERA = CameraSettings.model_validate({"name": "a", "url": "a.mkv", "rate": 100.0})


def picture(number: int, height: int = 8, width: int = 8) -> Picture:
    """An image whose pixels are its number."""
    return Picture("a", number, number / 100, 0.0, grey(number % 256, height, width), 0)


def without_end(site: ChildPipe) -> None:
    sender = _Sender(site, 100.0)
    for number in count():
        sender.frame(picture(number))
        time.sleep(0.01)


def some_sizes(site: ChildPipe, sides: tuple[int, ...]) -> None:
    """Sends images of these sides, and then nothing."""
    sender = _Sender(site, 100.0)
    for number, side in enumerate(sides):
        sender.frame(picture(number, side, 60))
    time.sleep(60)


def three_and_a_half(site: ChildPipe) -> None:
    """Sends three images and is killed while it writes the fourth."""
    sender = _Sender(site, 100.0)
    for number in range(1, 4):
        sender.frame(picture(number))
    pool = sender._buffers._pool
    assert pool is not None
    start = pool.free[-1] * pool.offer.buffer_bytes
    pool.memory[start : start + 96] = bytes(96)
    os.kill(os.getpid(), signal.SIGKILL)


class TooLarge:
    """A video of 36 megapixels, which takes no memory."""

    fps = 10.0

    def __init__(self, *path: object, **options: object) -> None: ...

    def __iter__(self) -> Iterator[Picture]:
        image = np.broadcast_to(np.uint8(0), (4321, 8192, 3))
        yield Picture("a", 0, 0.0, 0.0, image, 0)


def too_large(site: ChildPipe, camera: CameraSettings) -> None:
    """Plays that video as a capture process plays any other."""
    vars(capture_module)["open_footage"] = TooLarge
    capture_module.capture(site, camera)


@dataclass
class Captured:
    """A capture process with its queues."""

    queues: FrameQueues
    status: LiveStatus

    def count(self, field: str) -> int:
        (view,) = self.status.snapshot().cameras
        counts: dict[Any, int] = dict(view.counts)
        return counts[field]

    def take(self, n: int) -> list[QueuedFrame]:
        """The next frames of the camera."""
        taken: list[QueuedFrame] = []

        def enough() -> bool:
            taken.extend(self.queues.take(n - len(taken), 0.1))
            return len(taken) == n

        wait_until(enough, 60)
        return taken


@contextmanager
def captured(function: Callable[..., None], *args: object, buffers: int = 8) -> Iterator[Captured]:
    status = LiveStatus()
    status.camera("a", rate=100.0, threshold=1.0, model="m", zones={})
    queues = FrameQueues(["a"], status)
    capture = Capture(CAMERA, "text", queues, CameraStates(status, queues), status, buffers=buffers)
    capture.process = SupervisedProcess("capture-a", "text", capture, function, *args)
    with running(capture.process):
        yield Captured(queues, status)


def values(frames: list[QueuedFrame]) -> list[list[int]]:
    """The pixel values in each image."""
    return [np.unique(read(frame.image)).tolist() for frame in frames if frame.image is not None]


def expected(frames: list[QueuedFrame]) -> list[list[int]]:
    """What they should be: the time slot is the number of the picture."""
    return [[frame.slot % 256] for frame in frames]


def test_an_image_does_not_change_while_it_is_held_and_new_frames_are_shed() -> None:
    with captured(without_end, buffers=3) as camera:
        held = camera.take(3)
        came = camera.count("frames_in")
        time.sleep(0.5)
        assert camera.count("frames_in") == came, "there are no buffers"
        assert values(held) == expected(held)
        for frame in held:
            camera.queues.finish(frame, NOBODY)
        later = camera.take(1)
        assert values(later) == expected(later)
        assert camera.count("shed") >= 1  # how many depends on the machine
        assert later[0].slot + 1 == camera.count("shed") + 4, "every frame is counted"


def test_a_fast_camera_gets_its_buffers_back() -> None:
    with captured(without_end, buffers=7) as camera:
        for _ in range(50):
            frames = camera.take(2)
            assert values(frames) == expected(frames)
            for frame in frames:
                camera.queues.finish(frame, NOBODY)


def test_a_camera_may_change_its_resolution() -> None:
    with captured(some_sizes, (8, 120, 60, 240)) as camera:
        frames = camera.take(4)
        pools = [frame.image.pool for frame in frames if frame.image is not None]
        assert [frame.size for frame in frames] == [(60, 8), (60, 120), (60, 60), (60, 240)]
        assert values(frames) == [[0], [1], [2], [3]]
        assert pools[1] is pools[2], "a smaller image needs no other pool"
        assert len({id(pool) for pool in pools}) == 3
        camera.queues.finish(frames[0], NOBODY)
        camera.queues.finish(frames[1], NOBODY)
        assert [pool.is_open for pool in pools] == [False, True, True, True]
        assert values(frames[2:]) == [[2], [3]]
        camera.queues.finish(frames[2], NOBODY)
        camera.queues.finish(frames[3], NOBODY)
        assert [pool.is_open for pool in pools] == [False, False, False, True], "one is in use"
    assert not pools[3].is_open


def test_images_of_a_killed_process_are_readable_and_go_with_its_buffers() -> None:
    with captured(three_and_a_half) as camera:
        frames = camera.take(3)
        assert frames[0].image is not None
        pool = frames[0].image.pool
        wait_until(lambda: camera.count("restarts") >= 1, 30)
        assert values(frames) == [[1], [2], [3]]
        (newer,) = camera.take(1)
        assert newer.image is not None
        assert newer.image.pool is not pool
        for frame in frames:
            assert is_open(pool.fd)
            camera.queues.finish(frame, NOBODY)
        assert not pool.is_open
        assert values([newer]) == [[1]]


def test_an_image_that_is_too_large_is_refused_with_its_size() -> None:
    with captured(too_large, CAMERA) as camera:

        def reason() -> str:
            (view,) = camera.status.snapshot().cameras
            return view.reason

        wait_until(lambda: "expected images of at most 35 megapixels" in reason(), 60)
        assert "got 8192 x 4321" in reason()
        (view,) = camera.status.snapshot().cameras
        assert view.state == "failed"


@pytest.mark.parametrize("buffer", [99, 0])
def test_a_buffer_that_was_not_lent_costs_the_process(buffer: int) -> None:
    with captured(cheats, buffer) as camera:
        wait_until(lambda: camera.count("restarts") >= 1, 60)
        assert camera.count("frames_in") <= 2


def cheats(site: ChildPipe, buffer: int) -> None:
    """Sends an image, and then one in a buffer that it does not have."""
    sender = _Sender(site, 100.0)
    sender.frame(picture(0))
    pool = sender._buffers._pool
    assert pool is not None
    pool.free.append(buffer if buffer == 0 else pool.offer.buffers + buffer)
    write = sender._buffers.write
    if buffer:
        sender._buffers.write = lambda image: write(image[:0])  # type: ignore[method-assign]
    sender.frame(picture(1))
    time.sleep(60)
