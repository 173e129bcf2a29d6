"""Sources that a capture process opens, in a process of its own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stepvad.intake.camera_states import CameraStates
from stepvad.intake.capture import Capture
from stepvad.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.intake.status import LiveStatus
from stepvad.settings.sections import CameraSettings
from tests.intake.pools import read
from tests.video.clips import walking_images, write_pictures
from tests.video.servers import wait_until

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
