"""Sources that a capture process opens, in a process of its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from stepvad.site.intake import capture as capture_module
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.capture import Capture
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.intake.status import LiveStatus
from stepvad.site.processes import ChildPipe, SupervisedProcess
from stepvad.site.settings.sections import CameraSettings
from stepvad.video import camera as camera_module
from tests.site.intake.pools import read, running
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
