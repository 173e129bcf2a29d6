"""The pose workers of a site follow the people of every camera by their last pose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from stepvad.people import Boxes, LastPoses, People
from stepvad.site.intake.camera_followers import CameraFollowers
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.frame_buffers import BufferPool
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.intake.place_drawings import PlaceDrawings
from stepvad.site.intake.pose_workers import PoseWorker
from stepvad.site.intake.status import LiveStatus
from stepvad.site.settings.file import load
from tests.site.intake.pools import running, write
from tests.site.sites import video_camera, write_networks, write_site
from tests.video.graphs import yolox_of_bright
from tests.video.servers import SLOWER

BRIGHT, DARK = (np.full((64, 64, 3), grey, np.uint8) for grey in (255, 0))


def frame(
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


def somebody(x: float) -> People:
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
        followers.update(frame(number), somebody(20))
    assert middle(followers.last_poses(frame(2))) == pytest.approx([25, 30])
    assert len(followers.last_poses(frame(2, "right"))) == 0
    assert len(followers.last_poses(frame(2, connection=1))) == 0
    assert len(followers.last_poses(frame(2, side=128))) == 0
    assert len(followers.last_poses(frame(13))) == 0


def test_a_frame_that_is_finished_late_does_not_move_people_back() -> None:
    followers = CameraFollowers(["left"])
    for number, x in ((0, 20), (1, 21), (3, 23), (2, 22)):
        followers.update(frame(number), somebody(x))
    assert middle(followers.last_poses(frame(4))) == pytest.approx([28, 30])


@contextmanager
def working(directory: Path, *, follow: bool) -> Iterator[FrameQueues]:
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
    shared = followers, PlaceDrawings(settings, status)
    worker = PoseWorker(0, settings, queues, states, status, ["left"], *shared)
    with running(worker.process):
        yield queues


@pytest.mark.parametrize("follow", [True, False])
def test_a_worker_finds_a_person_again_whom_the_detector_loses(
    tmp_path: Path, *, follow: bool
) -> None:
    found: list[list[bool]] = []
    pool = BufferPool(6, BRIGHT.nbytes)
    with working(tmp_path, follow=follow) as queues:
        for number in range(6):
            queues.put(frame(number, pool=pool))
            until = time.monotonic() + 30 * SLOWER
            while not (items := queues.next(0.2)) and time.monotonic() < until:
                pass
            ((_, item),) = items
            assert isinstance(item, QueuedFrame)
            assert item.people is not None
            found.append(item.people.boxes.followed.tolist())
    assert found == [[False]] * 3 + [[True] if follow else []] * 3
