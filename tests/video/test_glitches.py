"""A pose out of line with those before it is left out, and what lasts is taken."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.video.glitches import LONGEST_S, LastGood
from stepvad.video.people import Boxes, People, extents
from stepvad.video.tracker import Tracker
from tests.video.test_following import Pose, lying, standing


def half(pose: Pose) -> Pose:
    """The upper half of a body taken for the whole."""
    top = pose[:, 1].min()
    return np.asarray(np.stack([pose[:, 0], top + 0.4 * (pose[:, 1] - top)], axis=1), np.float32)


@pytest.mark.parametrize(
    "other",
    [half(standing(100)), standing(170), standing(100, height=160)],
    ids=["half a body", "elsewhere", "twice as large"],
)
def test_a_pose_out_of_line_is_refused_for_a_while(other: Pose) -> None:
    good = LastGood(standing(100), 10.0)
    assert not good.accepts(other, 10.1)
    assert good.accepts(standing(103), 10.2)
    assert not good.accepts(other, 10.3)
    assert good.accepts(other, 10.2 + LONGEST_S + 0.1)
    assert good.accepts(other, 10.8)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_who_walks_runs_or_falls_is_in_line(step: int) -> None:
    good = LastGood(standing(100), 0.0)
    for at in range(step, 20, step):
        assert good.accepts(standing(100 + 12.0 * at), at / 10)  # 1.5 body heights per second
    good = LastGood(standing(100, 100), 0.0)
    for at in range(step, 11, step):
        share = at / 10
        falling = (1 - share) * standing(100, 100) + share * lying(130, 135)
        assert good.accepts(falling.astype(np.float32), at / 10)


def test_a_new_number_has_no_past() -> None:
    """Two people who could be swapped get new numbers, and their poses are shown at once."""
    tracker = Tracker()
    places = [(60, 140), (60, 140), (70, 130), (80, 120), (90, 110), (98, 102), (100, 100.5)]
    for at, pair in enumerate(places):
        bodies = np.stack([standing(x) for x in pair])
        poses = bodies if at < 6 else np.stack([half(body) for body in bodies])
        boxes = Boxes(extents(bodies), np.full(2, 0.9))
        shown = tracker.update(People(boxes, poses, np.full((2, 17), 0.6)), time_s=at / 10)
    assert {one.track_id for one in shown} == {3, 4}


def test_a_clock_that_steps_back_refuses_nothing() -> None:
    good = LastGood(standing(100), 10.0)
    assert good.accepts(standing(300), 5.0)


def test_a_tracker_leaves_the_pose_out_and_keeps_the_track() -> None:
    tracker, shown = Tracker(), []
    box = extents(standing(100)[None])
    for at in range(8):
        pose = half(standing(100)) if at in (3, 4) else standing(100)
        people = People(Boxes(box, np.array([0.9])), pose[None], np.full((1, 17), 0.6))
        shown.append([one.track_id for one in tracker.update(people, time_s=at / 10)])
    assert shown == [[1], [1], [1], [], [], [1], [1], [1]]
