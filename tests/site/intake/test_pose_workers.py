"""Pose workers: they follow people by their last poses, die and hang with images in hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from stepvad.people import Boxes, LastPoses, People
from stepvad.site import processes
from stepvad.site.intake import pose_workers
from stepvad.site.intake.camera_followers import CameraFollowers
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.frame_buffers import BufferPool
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.intake.pose_workers import PoseWorker
from stepvad.site.processes import ChildPipe, SupervisedProcess
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import PoseSettings
from stepvad.site.status import LiveStatus
from stepvad.video.source import Image
from tests.site.intake.pools import grey, running, write
from tests.site.sites import video_camera, write_networks, write_site
from tests.video.graphs import yolox_of_bright
from tests.video.servers import SLOWER, wait_until


def somebody(value: float) -> People:
    joints = np.full((1, 17, 2), value, np.float32)
    boxes = Boxes(np.array([[0, 0, 1, 1]], np.float32), np.ones(1, np.float32))
    return People(boxes, joints, np.ones((1, 17), np.float32))


def fails_once(site: ChildPipe, settings: PoseSettings, how: str, mark: str) -> None:
    """Finds people whose joints are the value of the pixels, unless the mark is there."""

    def look(
        estimator: object, images: Sequence[Image], last: Sequence[LastPoses]
    ) -> Iterator[People]:
        if Path(mark).exists():
            Path(mark).unlink()
            if how != "hangs":
                os.kill(os.getpid(), signal.SIGKILL if how == "dies" else signal.SIGSTOP)
            time.sleep(600)
        for image in images:
            (value,) = np.unique(image)
            yield somebody(float(value))

    vars(pose_workers).update(detect_and_recover=look, open_estimator=lambda *_, **__: None)
    pose_workers.find_people(site, settings)


class WatchedQueues(FrameQueues):
    """Queues that notice whether a worker is over when its frames are given back."""

    def __init__(self, status: LiveStatus) -> None:
        super().__init__(["left"], status)
        self.status = status
        self.worker: PoseWorker | None = None
        self.given_back = 0
        self.too_early = 0
        self.said_before = False

    @property
    def is_said_to_hang(self) -> bool:
        return bool(self.status._cameras["left"].hanging)

    def give_back(self, frames: Sequence[QueuedFrame]) -> None:
        pid = self.worker.process.pid if self.worker is not None else None
        assert pid is not None
        self.given_back += len(frames)
        self.said_before |= self.is_said_to_hang
        self.too_early += Path(f"/proc/{pid}").exists()
        super().give_back(frames)


@contextmanager
def working(directory: Path, how: str) -> Iterator[WatchedQueues]:
    (directory / "mark").touch()
    networks = write_networks(directory)
    settings = load(write_site(directory, video_camera("left", directory), networks))
    status = LiveStatus()
    status.camera("left", rate=10.0, threshold=1.0, model="m", zones={})
    queues = WatchedQueues(status)
    states = CameraStates(status, queues)
    worker = PoseWorker(0, settings, queues, states, status, ["left"], CameraFollowers(()))
    mark = str(directory / "mark")
    worker.process = SupervisedProcess(
        "poses-0", "text", worker, fails_once, settings.pose, how, mark
    )
    queues.worker = worker
    with running(worker.process):
        yield queues


@pytest.mark.parametrize("how", ["dies", "hangs", "freezes"])
def test_frames_of_a_worker_that_fails_are_read_by_the_next_and_freed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(pose_workers, "ANSWER_S", 2.0 if how == "hangs" else 60.0)
    monkeypatch.setattr(processes, "SILENT_S", 60.0 if how == "hangs" else 3.5)
    pool, freed, found = BufferPool(4, 192), list[int](), list[float]()
    with working(tmp_path, how) as queues:
        for number in range(4):
            queues.put(
                QueuedFrame(
                    camera="left",
                    number=number,
                    connection=0,
                    wall0=0.0,
                    slot=number,
                    arrived=0.0,
                    size=(8, 8),
                    image=write(pool, number, grey(50 + number)),
                )
            )
        wait_until(lambda: queues.given_back > 0, 60 * SLOWER)
        pool.retire()  # as if the capture process had died, too

        def all_found() -> bool:
            for _, item in queues.next(0.1):
                assert isinstance(item, QueuedFrame)
                assert item.people is not None
                found.append(float(item.people.keypoints[0, 0, 0]))
            freed.extend(pool.lend_freed())
            return len(found) == 4

        wait_until(all_found, 60 * SLOWER)
    assert found == [50, 51, 52, 53]
    assert sorted([*freed, *pool.lend_freed()]) == [0, 1, 2, 3]
    assert not pool.is_open
    assert queues.said_before == (how != "dies"), "named before it is replaced"
    assert not queues.is_said_to_hang
    assert queues.too_early == 0, "a worker might still read what is given back"


BRIGHT, DARK = (np.full((64, 64, 3), grey, np.uint8) for grey in (255, 0))


def seen_frame(
    number: int,
    camera: str = "left",
    *,
    connection: int = 0,
    side: int = 64,
    pool: BufferPool | None = None,
) -> QueuedFrame:
    image = BRIGHT if number < 3 else DARK
    return QueuedFrame(
        camera=camera,
        number=number,
        connection=connection,
        wall0=0.0,
        slot=number,
        arrived=100 + number / 10,
        size=(side, side),
        image=None if pool is None else write(pool, number, image),
    )


def at_left(x: float) -> People:
    joints = np.linspace([x, 10], [x + 10, 50], 17, dtype=np.float32)[None]
    boxes = Boxes(np.array([[x, 10, x + 10, 50]], np.float32), np.array([0.9], np.float32))
    return People(boxes, joints, np.full((1, 17), 0.9, np.float32))


def middle(last: LastPoses) -> list[float]:
    """The middle of the only pose."""
    (corners,) = last.corners.tolist()
    return [(corners[0] + corners[2]) / 2, (corners[1] + corners[3]) / 2]


def test_every_camera_has_last_poses_of_its_own() -> None:
    followers = CameraFollowers(["left", "right"])
    for number in range(2):
        followers.update(seen_frame(number), at_left(20))
    assert middle(followers.last_poses(seen_frame(2))) == pytest.approx([25, 30])
    assert len(followers.last_poses(seen_frame(2, "right"))) == 0
    assert len(followers.last_poses(seen_frame(2, connection=1))) == 0
    assert len(followers.last_poses(seen_frame(2, side=128))) == 0
    assert len(followers.last_poses(seen_frame(13))) == 0


def test_a_frame_that_is_finished_late_does_not_move_people_back() -> None:
    followers = CameraFollowers(["left"])
    for number, x in ((0, 20), (1, 21), (3, 23), (2, 22)):
        followers.update(seen_frame(number), at_left(x))
    assert middle(followers.last_poses(seen_frame(4))) == pytest.approx([28, 30])


@contextmanager
def following(directory: Path, *, follow: bool) -> Iterator[FrameQueues]:
    """Queues that a pose worker serves, which detects a person in bright pictures."""
    networks = write_networks(directory)
    cell = [0.0, 0.0, float(np.log(3)), float(np.log(4)), 0.95, 0.95]
    yolox_of_bright(directory / "yolox_tiny.onnx", 36, cell)
    settings = load(write_site(directory, video_camera("left", directory), networks))
    status = LiveStatus()
    status.camera("left", rate=10.0, threshold=1.0, model="m", zones={})
    queues = FrameQueues(["left"], status)
    followers = CameraFollowers(["left"] if follow else ())
    states = CameraStates(status, queues)
    worker = PoseWorker(0, settings, queues, states, status, ["left"], followers)
    with running(worker.process):
        yield queues


@pytest.mark.parametrize("follow", [True, False])
def test_a_worker_finds_a_person_again_whom_the_detector_loses(
    tmp_path: Path, *, follow: bool
) -> None:
    found: list[list[bool]] = []
    pool = BufferPool(6, BRIGHT.nbytes)
    with following(tmp_path, follow=follow) as queues:
        for number in range(6):
            queues.put(seen_frame(number, pool=pool))
            until = time.monotonic() + 30 * SLOWER
            while not (items := queues.next(0.2)) and time.monotonic() < until:
                pass
            ((_, item),) = items
            assert isinstance(item, QueuedFrame)
            assert item.people is not None
            found.append(item.people.boxes.followed.tolist())
    assert found == [[False]] * 3 + [[True] if follow else []] * 3
