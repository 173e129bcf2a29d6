"""Capture processes: sources that they open, and the buffers of the site that they fill."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.people import People, no_boxes
from stepvad.site.intake import capture as capture_module
from stepvad.site.intake import frame_buffers
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.capture import Capture, _Sender
from stepvad.site.intake.child_messages import ImagePlace
from stepvad.site.intake.frame_buffers import BufferPool, map_images, place_images
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.processes import ChildPipe, SupervisedProcess
from stepvad.site.settings.sections import CameraSettings
from stepvad.site.status import LiveStatus
from stepvad.video import camera as camera_module
from stepvad.video.source import Frame as Picture
from tests.site.intake.pools import grey, is_open, read, running, write
from tests.video.clips import walking_images, write_images, write_pictures
from tests.video.servers import SLOWER, wait_until

pytest.importorskip("av")
pytest.importorskip("cv2")


def opened(camera: CameraSettings) -> tuple[Capture, FrameQueues, LiveStatus]:
    status = LiveStatus()
    status.camera(camera.name, rate=camera.rate, threshold=1.0, model="m", zones={})
    frames = FrameQueues([camera.name], status)
    states = CameraStates(status, frames)
    return Capture(camera, "text", frames, states, status, buffers=8), frames, status


def reason(status: LiveStatus) -> str:
    return status.snapshot().cameras[0].reason


def restarts(status: LiveStatus) -> int:
    return status.snapshot().cameras[0].counts["restarts"]


def test_a_folder_of_pictures_is_played_at_its_rate(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "frames", walking_images(12))
    camera = CameraSettings(name="gate", url=str(folder), rate=10, picture_rate=20)
    capture, frames, status = opened(camera)
    taken: list[QueuedFrame] = []

    def take() -> None:
        while len(taken) < 6:
            taken.extend(frames.take(1, 0.1))

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    capture.process.run()
    taker.join(5)
    assert reason(status) == "the file is over"
    assert [frame.slot for frame in taken] == list(range(6))  # every other picture
    images = [read(frame.image) for frame in taken if frame.image is not None]
    assert [int(image[15, :, 0].argmax()) for image in images] == [5, 6, 8, 10, 12, 14]
    assert {frame.size for frame in taken} == {(64, 48)}


def test_an_attached_camera_that_is_not_there_is_offline_and_tried_again() -> None:
    capture, _, status = opened(CameraSettings(name="gate", url="/dev/video99"))
    running = threading.Thread(target=capture.process.run)
    running.start()
    try:
        wait_until(lambda: "no such device" in reason(status))
        assert running.is_alive()
    finally:
        capture.process.stop(0.0)
        running.join(10)
    assert not running.is_alive()


def test_a_file_whose_timestamps_jump_is_played_on(tmp_path: Path) -> None:
    numbers = [0, 1, *range(954_430, 954_440)]
    video = write_images(tmp_path / "a.mkv", walking_images(12), numbers=numbers)
    capture, frames, status = opened(CameraSettings(name="gate", url=str(video), rate=10))
    taken: list[QueuedFrame] = []

    def is_over() -> bool:
        taken.extend(frames.take(1, 0.1))
        return reason(status) == "the file is over"

    with running(capture.process):
        wait_until(is_over)
    assert len(taken) >= 6, "some may be late on a busy machine"
    assert taken[-1].slot < 50 * SLOWER, "seconds, not a day"


def only_alive(site: ChildPipe) -> None:
    """Sends keep-alives and nothing else, as a decoder that hangs before its first frame."""
    time.sleep(600)


@pytest.mark.parametrize("url", ["rtsp://127.0.0.1:9/a", "a.mkv"])
def test_a_process_that_never_shows_anything_is_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "NO_ATTEMPT_S", 0.5)
    capture, _, status = opened(CameraSettings(name="gate", url=url))
    capture.process = SupervisedProcess("capture-gate", "text", capture, only_alive)
    with running(capture.process):
        wait_until(lambda: restarts(status) >= 1)
        assert reason(status) == "its capture process showed nothing for 0.5 s"


def retries_often(site: ChildPipe, camera: CameraSettings) -> None:
    """Captures a camera as ever, with shorter waits between its attempts."""
    vars(camera_module)["LONGEST_WAIT_S"] = 0.05
    capture_module.capture(site, camera)


def test_an_offline_camera_may_be_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    camera = CameraSettings(name="gate", url="/dev/video99")
    capture, _, status = opened(camera)
    capture.process = SupervisedProcess("capture-gate", "text", capture, retries_often, camera)
    with running(capture.process):
        wait_until(lambda: "no such device" in reason(status))
        monkeypatch.setattr(capture_module, "NO_ATTEMPT_S", 1.0)
        time.sleep(2.5)
        assert restarts(status) == 0


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


SHARED = Path("/dev/shm")


def test_a_buffer_is_not_lent_while_its_image_is_held() -> None:
    pool = BufferPool(3, 192)
    first, second = write(pool, 0, grey(1)), write(pool, 2, grey(2))
    assert pool.lend_freed() == ()
    with pytest.raises(DataError, match="a buffer that was lent to it, got 0"):
        pool.hold(0, (8, 8, 3))
    first.free()
    with pytest.raises(DataError, match="a buffer that was lent to it, got 0"):
        pool.hold(0, (8, 8, 3))  # the capture process has not heard of it yet
    assert pool.lend_freed() == (0,)
    assert (read(second) == 2).all()
    again = write(pool, 0, grey(3))
    assert (read(again) == 3).all()


def test_a_buffer_is_freed_once() -> None:
    pool = BufferPool(2, 192)
    image = write(pool, 1, grey(1))
    image.free()
    image.free()
    assert pool.lend_freed() == (1,)
    newer = write(pool, 1, grey(2))
    image.free()
    assert pool.lend_freed() == ()
    newer.free()
    assert pool.lend_freed() == (1,)


@pytest.mark.parametrize(("number", "shape"), [(2, (8, 8, 3)), (0, (64, 64, 3))])
def test_a_buffer_that_does_not_exist_or_is_too_small_is_refused(
    number: int, shape: tuple[int, int, int]
) -> None:
    pool = BufferPool(2, 192)
    with pytest.raises(DataError, match="capture: expected"):
        pool.hold(number, (shape[0], shape[1], 3))


def test_a_retired_pool_closes_with_its_last_image() -> None:
    pool = BufferPool(2, 192)
    images = [write(pool, number, grey(number)) for number in range(2)]
    pool.retire()
    images[0].free()
    assert is_open(pool.fd)
    assert (read(images[1]) == 1).all()
    images[1].free()
    assert not is_open(pool.fd)
    assert not pool.is_open


def test_a_pool_that_nobody_knows_any_more_is_closed() -> None:
    pool = BufferPool(2, 192)
    write(pool, 0, grey(0))
    fd = pool.fd
    del pool
    assert not is_open(fd)


def test_images_of_several_pools_are_mapped_read_only_and_descriptors_closed() -> None:
    pools = [BufferPool(3, 192), BufferPool(3, 3 * 100 * 90)]
    shared = [
        write(pools[0], 2, grey(7)),
        write(pools[1], 1, grey(8, 100, 90)),
        write(pools[0], 0, grey(9, 4, 6)),
    ]
    places, fds = place_images(shared)
    assert fds == [pool.fd for pool in pools]
    copies = [os.dup(fd) for fd in fds]
    images = map_images(places, copies)
    assert [image.shape for image in images] == [(8, 8, 3), (100, 90, 3), (4, 6, 3)]
    assert [np.unique(image).tolist() for image in images] == [[7], [8], [9]]
    assert not any(image.flags.writeable for image in images)
    assert not any(map(is_open, copies))


def test_an_image_beyond_the_pool_is_refused() -> None:
    pool = BufferPool(1, 192)
    fd = os.dup(pool.fd)
    with pytest.raises(ValueError, match="mmap"):
        map_images([ImagePlace(file=0, offset=pool.buffer_bytes, shape=(8, 8, 3))], [fd])
    assert not is_open(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="files are sealed on Linux only")
def test_no_process_can_shrink_a_pool_under_its_readers() -> None:
    pool = BufferPool(1, 192)
    with pytest.raises(PermissionError):
        os.ftruncate(pool.fd, 0)


@pytest.mark.skipif(not SHARED.exists(), reason="shared memory has no directory here")
def test_shared_memory_has_no_name() -> None:
    before = {*SHARED.iterdir()}
    pool, other = BufferPool(1, 192), frame_buffers._unlinked_memory()  # of Linux, of others
    try:
        os.ftruncate(other, 4096)
        assert os.pwrite(other, b"pixels", 0) == 6
        new = {*SHARED.iterdir()} - before
        assert not [path for path in new if frame_buffers.NAME in path.name]
        assert pool.is_open
    finally:
        os.close(other)
