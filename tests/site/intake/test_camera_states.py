"""Which cameras are online, by their sources and by the pose workers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Literal

import pytest

from stepvad.site.app import Site
from stepvad.site.intake import pose_workers as poseworkers
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.child_messages import StatusMessage
from stepvad.site.intake.frame_queues import FrameQueues, Lost
from stepvad.site.intake.status import LiveStatus
from stepvad.site.settings.file import load
from tests.site.sites import video_camera, write_networks, write_site
from tests.video.servers import SLOWER, wait_until


class Broker:
    """Notes what it hears of cameras."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def status(self, camera: str, state: Literal["online", "offline"]) -> None:
        self.heard.append((camera, state))


@pytest.fixture
def status() -> LiveStatus:
    status = LiveStatus()
    for name in ("gate", "door"):
        status.camera(name, rate=10.0, threshold=1.0, model="m", zones={})
    return status


@pytest.fixture
def frames(status: LiveStatus) -> FrameQueues:
    return FrameQueues(["gate", "door"], status)


def seen(status: LiveStatus) -> dict[str, tuple[str, str]]:
    return {view.name: (view.state, view.reason) for view in status.snapshot().cameras}


ONLINE = StatusMessage("online", "4 x 4 pixels")
GONE = StatusMessage("offline", "no answer")


def test_a_camera_that_goes_ends_what_went_on_and_counts_when_it_is_back(
    status: LiveStatus, frames: FrameQueues
) -> None:
    states, broker = CameraStates(status, frames), Broker()
    states.listeners.append(broker)
    for message in (ONLINE, GONE, ONLINE):
        states.report("gate", message)
    assert [(camera, type(item)) for camera, item in frames.next(0)] == [("gate", Lost)]
    assert seen(status)["gate"] == ("online", "")
    assert status.snapshot().cameras[0].counts["reconnects"] == 1
    assert broker.heard == [("gate", "online"), ("gate", "offline"), ("gate", "online")]


def test_nothing_follows_a_failure_that_is_over(status: LiveStatus, frames: FrameQueues) -> None:
    states = CameraStates(status, frames)
    states.report("gate", StatusMessage("failed", "no such file", over=True))
    states.report("gate", ONLINE)
    assert seen(status)["gate"] == ("failed", "no such file")


def test_cameras_with_pictures_fail_only_while_no_worker_has_networks(
    status: LiveStatus, frames: FrameQueues
) -> None:
    states = CameraStates(status, frames, workers=2)
    states.need_poses(["gate"])
    states.report("gate", ONLINE)
    states.report("door", ONLINE)
    states.refuse(0, "no network")
    assert seen(status)["gate"][0] == "online"
    states.refuse(1, "no network")
    assert seen(status) == {"gate": ("failed", "no network"), "door": ("online", "")}
    states.ready(1)
    assert seen(status)["gate"] == ("online", "")


@pytest.mark.slow
def test_networks_that_come_late_are_found_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poseworkers, "LONGEST_REFUSAL_S", 1.0)
    networks = write_networks(tmp_path)
    settings = write_site(tmp_path, video_camera("left", tmp_path), networks)
    hidden = tmp_path / "movenet_tiny.onnx"
    hidden.rename(tmp_path / "later.onnx")
    site, stop = Site(load(settings)), threading.Event()
    thread = threading.Thread(target=site.run, args=[stop])
    thread.start()
    try:
        wait_until(lambda: seen(site.status)["left"][0] == "failed", 30 * SLOWER)
        assert "movenet_tiny" in seen(site.status)["left"][1]
        time.sleep(1.0)
        (tmp_path / "later.onnx").rename(hidden)
        wait_until(lambda: site.status.snapshot().cameras[0].counts["scored"] > 3, 30 * SLOWER)
        assert seen(site.status)["left"][0] == "online"
    finally:
        stop.set()
        thread.join(40)
    assert not thread.is_alive()
