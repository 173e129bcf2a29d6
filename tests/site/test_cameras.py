"""Camera processes: opened, killed, hanging, divided, opened again; real children throughout."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stepvad.site import cameras as cameras_module
from stepvad.site.cameras import Cameras, idle_cores, process_count
from stepvad.site.frames import Lost, QueuedFrame
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.stages import Supervisor
from stepvad.site.status import CameraView, LiveStatus
from tests.site import camera_children
from tests.site.sites import video_camera, write_networks, write_site
from tests.video.servers import SLOWER, wait_until

pytest.importorskip("av")
pytest.importorskip("cv2")


@dataclass
class Watched:
    """Cameras that run, and what came of them."""

    cameras: Cameras
    status: LiveStatus
    frames: list[QueuedFrame] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def check_scene(self, camera: object, scene: object) -> None: ...

    def register(self, camera: CameraSettings, scene: object) -> None:
        self.status.camera(camera.name, rate=camera.rate, threshold=1.0, model="m", zones={})

    def view(self, name: str) -> CameraView:
        return next(one for one in self.status.snapshot().cameras if one.name == name)

    def take(self) -> None:
        for camera, item in self.cameras.frames.next(0.05):
            if isinstance(item, Lost):
                self.lost.append(camera)
            else:
                self.frames.append(item)

    def of(self, camera: str) -> list[QueuedFrame]:
        """All frames of a camera so far."""
        self.take()
        return [frame for frame in self.frames if frame.camera == camera]

    def wait_for(self, camera: str, n: int = 1) -> list[QueuedFrame]:
        """The next frames of a camera."""
        before = len(self.of(camera))
        wait_until(lambda: len(self.of(camera)) >= before + n, 60)
        return self.of(camera)[before:]

    def pid(self, camera: str) -> int | None:
        return self.cameras.pids().get(self.cameras.process_of(camera))

    def restarts(self, camera: str) -> int:
        return self.view(camera).counts["restarts"]


@contextmanager
def watched(settings: SiteSettings) -> Iterator[Watched]:
    found = Watched.__new__(Watched)
    found.status, found.frames, found.lost = LiveStatus(), [], []
    found.cameras = Cameras(settings, found.status, found)
    supervisor = Supervisor()
    found.cameras.start(supervisor)
    try:
        yield found
    finally:
        pids = [*found.cameras.pids().values()]
        assert supervisor.stop(found.cameras.stages, 20) == []
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def two(directory: Path, *, processes: int = 1) -> SiteSettings:
    """Two cameras that play videos in a loop."""
    networks = write_networks(directory) + f"processes = {processes}\n"
    cameras = [video_camera(name, directory) for name in ("left", "right")]
    return load(write_site(directory, *cameras, networks))


def plain(names: tuple[str, ...] = ("good", "bad"), processes: int = 1) -> SiteSettings:
    """Cameras for children that decode nothing."""
    cameras = [{"name": name, "url": "rtsp://127.0.0.1:9/a"} for name in names]
    pose = {"processes": processes}
    return SiteSettings.model_validate({"name": "test", "cameras": cameras, "pose": pose})


def test_a_process_that_is_killed_comes_back_and_no_id_recurs(tmp_path: Path) -> None:
    with watched(two(tmp_path)) as site:
        site.wait_for("left", 3)
        first, pid = site.of("left"), site.pid("left")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: site.restarts("left") == 1, 20)
        assert site.view("right").reason == "its camera process ended with code -9"
        site.wait_for("right", 3)
        after = site.wait_for("left", 3)
        assert {"left", "right"} <= {*site.lost}
    ids = [{p.track_id for frame in some for p in frame.poses} for some in (first, after)]
    assert ids[0]
    assert ids[1]
    assert not ids[0] & ids[1]
    connections = [{frame.connection for frame in some} for some in (first, after)]
    assert not connections[0] & connections[1]
    assert [(view.counts["reconnects"]) for view in site.status.snapshot().cameras] == [1, 1]


def test_a_process_that_ends_twice_in_a_minute_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.poisoned)
    with watched(plain(("good", "bad", "fine"))) as site:
        for camera in ("good", "fine"):
            site.wait_for(camera, 20)
        processes = {name: site.cameras.process_of(name) for name in ("good", "bad", "fine")}
        assert len({*processes.values()}) == 3
        restarts = site.restarts("good"), site.restarts("fine")
        wait_until(lambda: site.restarts("bad") > 3, 30 * SLOWER)
        assert (site.restarts("good"), site.restarts("fine")) == restarts == (2, 2)


def test_a_stuck_decoder_costs_the_other_cameras_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.with_a_stuck_decoder)
    with watched(plain()) as site:
        pid = None

        def is_alone() -> bool:
            site.take()
            return site.cameras.process_of("bad") != site.cameras.process_of("good")

        site.wait_for("good")
        pid = site.pid("good")
        wait_until(is_alone, 30)
        assert site.restarts("good") == 0
        wait_until(lambda: site.restarts("bad") >= 1, 30)  # alone, its process is replaced
        assert site.view("bad").reason.startswith("its camera process showed nothing for ")
        site.wait_for("good", 5)
        assert (site.pid("good"), site.restarts("good")) == (pid, 0)
    assert "good" not in site.lost


def test_a_looker_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.with_a_stuck_looker)
    with watched(plain(("a",))) as site:
        wait_until(lambda: site.restarts("a") >= 1, 30)
        said = f"looked at one frame for {cameras_module.LOOK_S:g} s"
        wait_until(lambda: site.view("a").reason.endswith(said), 30)


def test_a_message_cut_short_costs_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.that_cuts_a_message)
    with watched(plain(("a",))) as site:
        wait_until(lambda: site.restarts("a") >= 1, 30)
        assert site.of("a") == []
        wait_until(lambda: site.view("a").reason == "its camera process DataError", 30)


def test_a_process_speaks_for_its_own_cameras_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.of_others)
    with watched(plain(("a", "b"), processes=2)) as site:
        for camera in ("a", "b"):
            site.wait_for(camera, 5)
            assert len({frame.connection for frame in site.of(camera)}) == 1
        wait_until(lambda: site.view("a").counts["skipped"] >= 2, 20)
        assert site.view("a").counts["shed"] >= 1


def test_a_frozen_process_is_replaced_and_the_other_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.healthy)
    monkeypatch.setattr("stepvad.site.processes.SILENT_S", 2.0)
    with watched(plain(processes=2)) as site:
        site.wait_for("good", 3)
        site.wait_for("bad", 3)
        pid = site.pid("bad")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: site.restarts("bad") == 1, 30)
        site.wait_for("bad", 3)
        assert site.restarts("good") == 0
        assert "good" not in site.lost


def test_a_camera_is_opened_again_in_its_process_with_ids_of_its_own(tmp_path: Path) -> None:
    settings = two(tmp_path)
    with watched(settings) as site:
        before = site.wait_for("left", 3)
        site.wait_for("right")
        pid = site.pid("left")
        text = (tmp_path / "site.toml").read_text().replace("rate = 10.0", "rate = 5.0", 1)
        (tmp_path / "site.toml").write_text(text)
        site.cameras.reopen(["left"], load(tmp_path / "site.toml"))
        wait_until(lambda: site.of("left")[-1].rate == 5.0, 30)
        site.wait_for("left", 3)
        frames = site.of("left")
        assert site.pid("left") == pid
        assert "right" not in site.lost
        assert {p.track_id for one in frames if one.rate == 5.0 for p in one.poses}.isdisjoint(
            p.track_id for one in before for p in one.poses
        )
        rates = [one.rate for one in frames]
        assert rates == sorted(rates, reverse=True), "never both"


def test_an_offline_camera_may_be_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cameras_module, "run_cameras", camera_children.retries_often)
    monkeypatch.setattr(cameras_module, "NO_ATTEMPT_S", 1.5)
    device = '[[cameras]]\nname = "gate"\nurl = "/dev/video99"\n'
    with watched(load(write_site(tmp_path, device, write_networks(tmp_path)))) as site:
        wait_until(lambda: "no such device" in site.view("gate").reason, 60)
        time.sleep(2.5)
        assert site.restarts("gate") == 0


def test_a_file_that_is_over_is_not_played_again_after_a_restart(tmp_path: Path) -> None:
    settings = two(tmp_path)
    once = video_camera("once", tmp_path, n_frames=10).replace("loop = true", "loop = false")
    text = (tmp_path / "site.toml").read_text() + once
    (tmp_path / "site.toml").write_text(text)
    settings = load(tmp_path / "site.toml")
    with watched(settings) as site:
        wait_until(lambda: site.view("once").reason == "the file is over", 60)
        while site.cameras.frames.size():
            site.take()
        n, pid = len(site.of("once")), site.pid("left")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: site.restarts("left") == 1, 20)
        site.wait_for("left", 10)
        assert len(site.of("once")) == n
        assert site.view("once").reason == "the file is over"


@pytest.mark.parametrize(
    ("pose", "cameras", "processes", "threads"),
    [
        ({}, 1, 1, 4),
        ({}, 2, 2, 2),
        ({}, 8, 4, 1),
        ({"processes": 6}, 8, 6, 1),
        ({"processes": 3}, 2, 2, 2),
        ({"device": "cuda"}, 8, 1, 1),
    ],
)
def test_cameras_are_dealt_to_as_many_processes_as_cores_and_these_share_idle_ones(
    pose: dict[str, Any],
    cameras: int,
    processes: int,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cameras_module, "usable_cores", lambda: 4)
    files = [{"name": f"camera-{n}", "url": "walk.mp4"} for n in range(cameras)]
    settings = SiteSettings.model_validate({"cameras": files, "pose": pose})
    assert process_count(settings.pose, cameras) == processes
    assert idle_cores(settings) == threads
