from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from stepvad.events.camera import MOST_PEOPLE, box_of
from stepvad.fleet.edge.batcher import EncodedBatch, FrameBatcher, StreamInfo
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.wire import MAX_BYTES, Batch, CameraConnection, decode
from stepvad.people import Boxes, People
from stepvad.poses import Pose
from stepvad.site.intake.frame_queues import QueuedFrame
from stepvad.skeletons import COCO17
from tests.site.sites import one_person

FRAMES = [*one_person(3.0).by_frame()]


def batcher(**more: Any) -> FrameBatcher:
    epochs = count(100)
    label = StreamInfo(
        site="north",
        camera="yard",
        rate=10.0,
        skeleton=COCO17,
        **({"most": 4, "wait_s": 0.2} | more),
    )
    return FrameBatcher(label, lambda: next(epochs))


def frame(slot: int, connection: int = 0, **more: Any) -> QueuedFrame:
    facts: dict[str, Any] = {"poses": FRAMES[slot][1], "size": (640, 360), **more}
    return QueuedFrame(
        camera="yard",
        number=slot,
        connection=connection,
        wall0=1000.0 + connection,
        slot=slot,
        arrived=0.0,
        **facts,
    )


def batches(batches: list[EncodedBatch]) -> list[Batch]:
    return [decode(batch.data) for batch in batches]


def test_frames_travel_together_and_come_out_as_they_went_in() -> None:
    one = batcher()
    sent = [batch for slot in range(10) for batch in one.add(frame(slot), 0.0)]
    sent += one.flush()
    found = batches(sent)
    assert [batch.seq for batch in found] == [0, 4, 8]
    assert [slot for batch in found for slot in batch.slots] == [*range(10)]
    assert {(of.name, of.epoch, of.wall0) for of in (batch.connection for batch in found)} == {
        ("north/yard", 100, 1000.0)
    }
    poses = [pose for batch in found for n in range(len(batch)) for pose in batch.poses(n)]
    before = [pose for slot in range(10) for pose in FRAMES[slot][1]]
    for pose, was in zip(poses, before, strict=True):
        assert pose.track_id == was.track_id
        np.testing.assert_array_equal(pose.keypoints, was.keypoints)
    assert len({batch.id for batch in sent}) == len(sent)
    assert [batch.frames for batch in sent] == [4, 4, 2]


def test_no_frame_waits_longer_than_it_may() -> None:
    one = batcher()
    assert one.add(frame(0), 5.0) == []
    assert one.add(frame(1), 5.1) == []
    assert one.due(5.19) == []
    (batch,) = one.due(5.2)
    assert decode(batch.data).slots == [0, 1]
    assert one.due(9.0) == []


def test_a_camera_that_goes_says_so_once_and_comes_back_with_another_epoch() -> None:
    one = batcher()
    assert one.lose("camera lost") == []
    one.add(frame(0), 0.0)
    kept, gone = batches(one.lose("camera lost"))
    assert (kept.seq, len(kept), kept.lost) == (0, 1, None)
    assert (gone.seq, len(gone), gone.lost) == (1, 0, "camera lost")
    assert one.lose("camera lost") == []
    one.add(frame(5), 0.0)
    (again,) = batches(one.flush())
    assert (again.connection.epoch, again.seq) == (101, 0)


def test_another_connection_ends_the_one_before() -> None:
    one = batcher()
    one.add(frame(0), 0.0)
    kept, gone = batches(one.add(frame(3, connection=1), 0.0))
    assert kept.connection.epoch == gone.connection.epoch == 100
    assert (kept.lost, gone.lost) == (None, "another connection")
    (new,) = batches(one.flush())
    assert (new.connection.epoch, new.connection.wall0) == (101, 1001.0)


def test_pictures_of_another_size_are_not_mixed() -> None:
    one = batcher()
    one.add(frame(0), 0.0)
    (small,) = batches(one.add(frame(1, size=(1280, 720)), 0.0))
    (large,) = batches(one.flush())
    assert (small.connection.size, large.connection.size, large.seq) == ((640, 360), (1280, 720), 1)


def test_people_get_tracks_and_poses_with_other_joints_are_left_out() -> None:
    one = batcher(most=1)
    (pose,) = FRAMES[0][1]
    boxes = Boxes(np.array([box_of(pose)], np.float32), np.ones(1, np.float32))
    people = People(boxes, pose.keypoints[None], pose.confidence[None])
    (batch,) = batches(one.add(frame(0, poses=None, people=people), 0.0))
    assert batch.people == [1]
    odd = Pose(1, pose.keypoints[:5], pose.confidence[:5])
    (batch,) = batches(one.add(frame(1, poses=[odd, pose]), 0.0))
    assert batch.tracks.tolist() == [pose.track_id]


def batch(camera: str, number: int, size: int = 100) -> EncodedBatch:
    connection = CameraConnection(
        site="north", camera=camera, epoch=1, wall0=0.0, rate=10.0, size=(640, 360)
    )
    return EncodedBatch(
        camera=camera,
        id=f"{number}",
        data=b"x" * size,
        frames=5,
        connection=connection,
        end=5 * number + 5,
    )


def test_a_full_buffer_lets_the_oldest_go_and_counts_them() -> None:
    rung: list[str] = []
    buffer = Buffer(["a", "b"], 500, rung.append)
    for number in range(8):
        buffer.put(batch("ab"[number % 2], number))
    assert (len(buffer), buffer.bytes) == (5, 500)
    assert buffer.dropped == {"a": 10, "b": 5}
    first = buffer.head("a"), buffer.head("b")
    assert [one.id for one in first if one is not None] == ["4", "3"]
    assert rung == ["a", "b"] * 4


def test_messages_leave_in_order_when_the_broker_has_them() -> None:
    buffer = Buffer(["a"], 500)
    for number in range(3):
        buffer.put(batch("a", number))
    for number in range(3):
        head = buffer.head("a")
        assert head is not None
        assert (head.id, buffer.head("a") is head) == (f"{number}", True)
        buffer.done(head)
    assert (buffer.head("a"), buffer.bytes, buffer.sent["a"]) == (None, 0, 15)


def test_what_is_dropped_on_its_way_and_arrives_is_no_loss() -> None:
    buffer = Buffer(["a"], 200)
    buffer.put(batch("a", 0))
    head = buffer.head("a")
    assert head is not None
    for number in range(1, 4):
        buffer.put(batch("a", number))
    assert buffer.dropped["a"] == 10
    buffer.done(head)
    assert (buffer.dropped["a"], buffer.sent["a"], len(buffer)) == (5, 5, 2)


def test_what_a_broker_took_of_late_is_sent_again_when_it_was_away() -> None:
    now = 0.0
    buffer = Buffer(["a"], 5000, again_s=3.0, clock=lambda: now)
    for number in range(5):
        now = float(number)
        buffer.put(batch("a", number))
        head = buffer.head("a")
        assert head is not None
        buffer.done(head)
    buffer.put(batch("a", 5))
    now = 60.0  # the broker was away for a minute
    buffer.again("a")
    sent = []
    while (head := buffer.head("a")) is not None:
        sent.append(head.id)
        buffer.done(head)
    assert sent == ["1", "2", "3", "4", "5"]
    assert (buffer.sent["a"], buffer.bytes) == (30, 0)
    now = 90.0  # nothing waits: the broker has had all for long
    buffer.again("a")
    assert buffer.head("a") is None


@pytest.mark.parametrize("size", [501, 10_000])
def test_a_message_larger_than_the_buffer_is_kept_alone(size: int) -> None:
    buffer = Buffer(["a"], 500)
    buffer.put(batch("a", 0))
    buffer.put(batch("a", 1, size))
    assert (len(buffer), buffer.bytes) == (1, size)


def test_a_crowd_waits_for_no_further_frame_and_more_than_a_crowd_is_left_out() -> None:
    (pose,) = FRAMES[0][1]
    crowd = [Pose(i, pose.keypoints, pose.confidence) for i in range(MOST_PEOPLE)]
    one = batcher(most=100)
    sent = [batch for slot in range(20) for batch in one.add(frame(slot, poses=crowd), 0.0)]
    assert [len(batch) for batch in batches(sent)] == [4] * 5
    assert max(len(batch.data) for batch in sent) < MAX_BYTES / 2
    one.add(frame(20, poses=[*crowd, pose]), 0.0)
    (batch,) = batches(one.flush())
    assert batch.people == [0]
