"""Whoever moves is found in every frame with few detections; whoever does not keeps a pose."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.people import Boxes, People, extents
from stepvad.tracker import Tracker
from stepvad.video.source import Image
from stepvad.video.watching import STILL_S, Watch
from tests.video.test_following import Pose, lying, standing

SIZE = (200, 300)
"""Height and width of a picture."""
VIEW = (0, *SIZE)


@dataclass
class Stage:
    """An estimator of people on a stage, whose number is a picture's first pixel."""

    people: list[list[Pose]]
    detected: list[list[int]] | None = None
    """Who of the people is detected, in every frame; None: everybody."""
    stand: Pose | None = None
    """Something without joints that the detector takes for a person."""
    detections: list[int] = field(default_factory=list)
    """Frames in which the detector ran."""
    boxes: list[int] = field(default_factory=list)
    """Number of boxes of every call of `estimate`."""
    number: int = 0

    def frame(self, number: int) -> tuple[Image, NDArray[np.uint8]]:
        """RGB, and luma in which everybody is a bright rectangle with a dark edge."""
        self.number = number
        luma = np.full(SIZE, 90, np.uint8)
        for pose in self.people[number]:
            left, top, right, bottom = extents(pose[None])[0].clip(0).astype(int)
            luma[top:bottom, left:right] = 30
            luma[top + 3 : bottom - 3, left + 3 : right - 3] = 200
        return np.repeat(luma[..., None], 3, axis=2), luma

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        self.detections.append(self.number)
        everybody = list(range(len(self.people[self.number])))
        rows = everybody if self.detected is None else self.detected[self.number]
        poses = [self.people[self.number][row] for row in rows]
        poses += [] if self.stand is None else [self.stand]
        corners = extents(np.stack(poses)) if poses else np.empty((0, 4), np.float32)
        return [Boxes(corners, np.full(len(poses), 0.8)) for _ in images]

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        self.boxes.append(sum(len(some) for some in boxes))
        return [self._joints(some) for some in boxes]

    def _joints(self, boxes: Boxes) -> People:
        """The person whose middle is in the box and nearest to its own; unsure without one."""
        keypoints = np.stack([standing(*box) for box in _middles(boxes.corners)] or [NO_POSE])
        confidence = np.full((len(boxes), 17), 0.1, np.float32)
        for row, (corners, middle) in enumerate(
            zip(boxes.corners, _middles(boxes.corners), strict=True)
        ):
            near = [
                pose
                for pose in self.people[self.number]
                if (corners[:2] <= _middle(pose)).all() and (_middle(pose) <= corners[2:]).all()
            ]
            if near:
                keypoints[row] = min(near, key=lambda p: np.linalg.norm(_middle(p) - middle))
                confidence[row] = 0.5
        return People(boxes, keypoints[: len(boxes)], confidence)


NO_POSE = np.zeros((17, 2), np.float32)


def _middle(pose: Pose) -> Pose:
    return np.asarray((pose.min(axis=0) + pose.max(axis=0)) / 2)


def _middles(corners: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray((corners[:, :2] + corners[:, 2:]) / 2)


def played(stage: Stage, rate: float = 10.0) -> list[People | None]:
    """The people of every frame; None where the watch did not ask."""
    watch, found = Watch(stage, rate), []
    for number in range(len(stage.people)):
        image, luma = stage.frame(number)
        time_s = number / rate
        found.append(watch.look(image, time_s, VIEW) if watch.asks(luma, time_s) else None)
    return found


def counts(found: Sequence[People | None]) -> list[int]:
    return [0 if people is None else int(people.certain(0.25).sum()) for people in found]


def walking(n: int, *, x: float = 40, step: float = 4) -> list[Pose]:
    return [standing(x + step * i) for i in range(n)]


def test_a_walker_is_found_in_every_frame_and_detected_in_every_third() -> None:
    stage = Stage([[pose] for pose in walking(30)])
    found = played(stage)
    assert counts(found) == [1] * 30
    # after two detections that introduce the walker
    assert stage.detections == [0, 1, *range(4, 30, 3)]
    assert stage.boxes == [1] * 30
    for people, pose in zip(found, walking(30), strict=True):
        assert people is not None
        np.testing.assert_array_equal(people.keypoints[0], pose)
        # the box is on the body
        assert np.abs(people.boxes.corners - extents(pose[None])).max() < 3


def test_carried_people_keep_their_track() -> None:
    tracker, ids = Tracker(), set()
    for number, people in enumerate(played(Stage([[pose] for pose in walking(20)]))):
        assert people is not None
        ids |= {pose.track_id for pose in tracker.update(people, time_s=number / 10)}
    assert len(ids) == 1


def test_nobody_is_looked_for_where_nothing_moves_but_every_five_seconds() -> None:
    stage = Stage([[]] * 120)
    found = played(stage)
    assert stage.detections == [0, 50, 100]
    assert [number for number, people in enumerate(found) if people is not None] == [0, 50, 100]


def test_whoever_enters_is_found_at_once() -> None:
    stage = Stage([[]] * 30 + [[standing(60 + 4 * i)] for i in range(10)])
    assert counts(played(stage)) == [0] * 30 + [1] * 10


def test_whoever_comes_beside_somebody_still_is_found_at_once() -> None:
    stage = Stage([[standing(60)]] * 30 + [[standing(60), standing(150 + 4 * i)] for i in range(9)])
    assert counts(played(stage)) == [1] * 30 + [2] * 9


@pytest.mark.parametrize("pose", [standing(150), lying(150, 140)], ids=["standing", "lying"])
def test_whoever_is_still_keeps_the_pose_for_a_second_at_most(pose: Pose) -> None:
    stage = Stage([[pose]] * 60)
    found = played(stage)
    assert counts(found) == [1] * 60
    assert stage.detections == [0, 1, *range(10, 60, 10)]
    assert sum(stage.boxes) == 6
    assert STILL_S == 1.0


def test_whoever_lies_still_beside_a_walker_keeps_the_pose() -> None:
    stage = Stage([[lying(60, 170), pose] for pose in walking(40, x=120, step=3)])
    assert counts(played(stage)) == [2] * 40
    # the walker in every frame, the other once a second
    assert sum(stage.boxes) <= 40 + 6


def test_a_pose_is_looked_for_again_as_soon_as_the_body_moves() -> None:
    poses = [standing(150)] * 25 + [standing(150, 100 + 3 * i) for i in range(8)]
    found = played(Stage([[pose] for pose in poses]))
    for people, pose in zip(found, poses, strict=True):
        assert people is not None
        np.testing.assert_array_equal(people.keypoints[0], pose)


def test_whoever_runs_is_looked_for_ahead() -> None:
    # half a width in a frame: where the last box was, the middle of the body is not any more
    stage = Stage([[pose] for pose in walking(16, step=14)])
    assert counts(played(stage)) == [1] * 16
    assert stage.detections[-3:] == [7, 10, 13]


def test_a_lost_pose_is_looked_for_by_a_detection_in_the_same_frame() -> None:
    # in frame 5, between two detections, the walker is elsewhere
    poses = walking(5) + [standing(200 + 4 * i) for i in range(6)]
    stage = Stage([[pose] for pose in poses])
    assert counts(played(stage)) == [1] * 11
    assert 5 in stage.detections


def test_a_lost_pose_costs_the_others_nothing() -> None:
    beside = [standing(270, 100, 60)] * 11
    poses = walking(5) + [standing(200 + 4 * i) for i in range(6)]
    stage = Stage([[a, b] for a, b in zip(poses, beside, strict=True)])
    assert counts(played(stage)) == [2] * 11


def test_a_box_that_jumps_onto_a_neighbour_is_detected_again() -> None:
    """The walker leaves where a neighbour stands: the carried box would hold the neighbour."""
    tall = [standing(100 + 6 * i, 100, 140) for i in range(5)]
    stage = Stage([[pose] for pose in tall] + [[standing(128, 100, 60)]] * 3)
    found = played(stage)
    assert 5 in stage.detections
    assert counts(found) == [1] * 8


def test_overlapping_people_are_detected_in_every_frame() -> None:
    stage = Stage([[standing(100 + 2 * i), standing(120 + 2 * i)] for i in range(12)])
    assert counts(played(stage)) == [2] * 12
    assert stage.detections == [*range(12)]


def test_what_the_detector_alone_takes_for_a_person_costs_one_pose_a_second() -> None:
    stage = Stage([[pose] for pose in walking(32)], stand=standing(250))
    assert counts(played(stage)) == [1] * 32
    assert sum(stage.boxes) <= 32 + 4


def test_whoever_falls_and_is_not_detected_any_more_is_carried() -> None:
    poses = walking(10, x=100, step=3) + [lying(130, 125)] * 30
    stage = Stage([[pose] for pose in poses], [[0]] * 10 + [[]] * 30)
    assert counts(played(stage)) == [1] * 40


def test_another_view_begins_anew() -> None:
    stage = Stage([[pose] for pose in walking(8)])
    watch = Watch(stage, 10.0)
    for number in range(8):
        image, luma = stage.frame(number)
        assert watch.asks(luma, number / 10)
        watch.look(image, number / 10, (number // 6,))
    assert 6 in stage.detections


def test_a_clock_that_is_set_back_begins_anew() -> None:
    stage = Stage([[pose] for pose in walking(8)])
    watch = Watch(stage, 10.0)
    for number in range(8):
        image, luma = stage.frame(number)
        time_s = 100 + number / 10 - (50 if number > 5 else 0)
        assert watch.asks(luma, time_s)
        assert counts([watch.look(image, time_s, VIEW)]) == [1]
    assert 6 in stage.detections


def test_frames_are_asked_for_while_another_is_looked_at() -> None:
    """A look forgets nothing that moved while it ran."""
    stage = Stage([[standing(60)]] * 16 + [[standing(60), standing(200)]] * 2)
    watch, is_looking, may_end = Watch(stage, 10.0), threading.Event(), threading.Event()
    for number in range(16):
        image, luma = stage.frame(number)
        assert watch.asks(luma, number / 10)
        if number < 15:
            watch.look(image, number / 10, VIEW)
    detect = stage.detect

    def slowly(images: Sequence[Image]) -> list[Boxes]:
        found = detect(images)
        is_looking.set()
        assert may_end.wait(10)
        return found

    # a look at frame 15 that detects and lasts until frame 16 has been asked for
    watch._detected_s, stage.detect = -1.0, slowly  # type: ignore[method-assign]
    looker = threading.Thread(target=watch.look, args=(image, 1.5, VIEW))
    looker.start()
    assert is_looking.wait(10)
    later, luma = stage.frame(16)
    assert watch.asks(luma, 1.6)
    may_end.set()
    looker.join(10)
    assert counts([watch.look(later, 1.6, VIEW)]) == [2]
