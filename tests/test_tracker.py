"""The tracker: who keeps an id, who gets a new one, and that no two trackers know of each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepvad.people import JOINT_SPREAD, Boxes, Float32s, People, pose_overlap
from stepvad.tracker import FIRST_SPEED, PACE_CHANGE, PLACE_NOISE, SPEED_CHANGE, BoxMotion, Tracker

Row = tuple[float, float] | tuple[float, float, float]


def people(*rows: Row) -> People:
    """People of 20 by 40 pixels at x, y, of a score of 0.9 or of the third number."""
    corners = np.array([[row[0], row[1], row[0] + 20, row[1] + 40] for row in rows], np.float32)
    scores = np.array([row[2] if len(row) == 3 else 0.9 for row in rows], np.float32)
    boxes = Boxes(corners.reshape(-1, 4), scores)
    keypoints = np.repeat(boxes.corners[:, None, :2], 17, axis=1)
    return People(boxes, keypoints, np.ones((len(rows), 17), np.float32))


def ids(tracker: Tracker, *rows: Row, time_s: float | None = None) -> list[int]:
    return [pose.track_id for pose in tracker.update(people(*rows), time_s=time_s)]


def test_people_keep_their_ids_whatever_their_order() -> None:
    tracker = Tracker()
    assert ids(tracker, (0, 0), (100, 0)) == [1, 2]
    assert ids(tracker, (103, 0), (3, 0)) == [2, 1]
    assert ids(tracker, (6, 0), (106, 0)) == [1, 2]


def test_joints_travel_with_their_box() -> None:
    tracker = Tracker()
    tracker.update(people((0, 0), (100, 0)))
    second, first = tracker.update(people((103, 0), (3, 0)))
    assert (second.track_id, second.keypoints[0].tolist()) == (2, [103, 0])
    assert (first.track_id, first.keypoints[0].tolist()) == (1, [3, 0])


def test_a_newcomer_counts_from_the_second_picture() -> None:
    tracker = Tracker()
    ids(tracker, (0, 0))
    assert ids(tracker, (0, 0), (100, 0)) == [1]
    assert ids(tracker, (0, 0), (100, 0)) == [1, 2]


def test_a_box_that_flashes_up_once_takes_no_id() -> None:
    tracker = Tracker()
    ids(tracker, (0, 0))
    assert ids(tracker, (0, 0), (300, 0)) == [1]
    assert ids(tracker, (0, 0)) == [1]
    ids(tracker, (0, 0), (100, 0))
    assert ids(tracker, (0, 0), (100, 0)) == [1, 2]


def test_a_low_score_keeps_a_track_but_begins_none() -> None:
    tracker = Tracker()
    ids(tracker, (0, 0), (100, 0, 0.4))
    assert ids(tracker, (2, 0, 0.35), (100, 0, 0.4)) == [1]
    assert ids(tracker, (4, 0), (100, 0, 0.52)) == [1]
    assert ids(tracker, (6, 0), (100, 0, 0.52)) == [1]


def test_who_comes_back_in_time_keeps_the_id() -> None:
    tracker = Tracker(patience_s=0.65)
    for at in range(6):
        ids(tracker, (5.0 * at, 0))
    for _ in range(5):
        assert ids(tracker) == []
    assert ids(tracker, (55, 0)) == [1]


def test_who_stays_away_too_long_gets_a_new_id() -> None:
    tracker = Tracker(patience_s=0.65)
    for at in range(6):
        ids(tracker, (5.0 * at, 0))
    for _ in range(6):
        ids(tracker)
    ids(tracker, (60, 0))
    assert ids(tracker, (65, 0)) == [2]


def test_people_who_cross_keep_their_ids() -> None:
    tracker = Tracker()
    for at in range(40):
        found = ids(tracker, (4.0 * at, 0.0), (160 - 4.0 * at, 12.0))
        assert found == [1, 2], at


def test_after_a_reset_all_ids_are_new() -> None:
    tracker = Tracker()
    assert ids(tracker, (0, 0), (100, 0)) == [1, 2]
    tracker.reset()
    assert ids(tracker, (0, 0), (100, 0)) == [3, 4]


def test_two_trackers_share_nothing() -> None:
    alone, here, there = Tracker(), Tracker(), Tracker()
    walk = [[(3.0 * at, 0.0), (200.0, 2.0 * at)][: 1 + at % 3] for at in range(12)]
    expected = [ids(alone, *rows) for rows in walk]
    for at, rows in enumerate(walk):
        assert ids(here, *rows) == expected[at]
        ids(there, (500, 500.0 + at), (30, 90))
        if at == 6:
            there.reset()


def test_the_filter_learns_an_even_motion() -> None:
    motion = BoxMotion(_box(0))
    for at in range(1, 40):
        motion.predict(0.1)
        motion.correct(_box(5.0 * at))
    motion.predict(0.1)
    np.testing.assert_allclose(motion.corners(), _box(200), atol=0.5)


def test_the_filter_is_the_textbook_one() -> None:
    """The same steps with the 2x2 matrices of the textbook, for the centre's x in body heights."""
    motion = BoxMotion(_box(0))
    x, P = np.array([10.0 / 40, 0.0]), np.diag([PLACE_NOISE**2, FIRST_SPEED**2])
    H, dt = np.array([[1.0, 0.0]]), 0.2
    F = np.array([[1.0, dt], [0.0, 1.0]])
    for seen in (3.0, 9.0, 11.0):
        q = (SPEED_CHANGE + PACE_CHANGE * abs(x[1])) ** 2
        x = F @ x
        P = F @ P @ F.T + q * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
        K = P @ H.T / (H @ P @ H.T + PLACE_NOISE**2)
        motion.predict(dt)
        np.testing.assert_allclose(motion.spread, np.sqrt(P[0, 0] + PLACE_NOISE**2), rtol=1e-6)
        x, P = x + K[:, 0] * ((seen + 10) / 40 - x[0]), (np.eye(2) - K @ H) @ P
        motion.correct(_box(seen))
    corners = motion.corners()
    np.testing.assert_allclose((corners[0] + corners[2]) / 2 / 40, x[0], rtol=1e-6)


def test_pose_overlap_is_weighted_by_the_lower_confidence() -> None:
    a = np.zeros((1, 2, 2), np.float32), np.array([[1.0, 0.5]], np.float32)
    b = np.array([[[0, 0], [20, 0]]], np.float32), np.array([[1.0, 1.0]], np.float32)
    far = np.exp(-(20**2) / (2 * (JOINT_SPREAD * 100) ** 2))
    found = pose_overlap(a, b, np.array([100.0], np.float32))
    np.testing.assert_allclose(found, [[(1 + 0.5 * far) / 1.5]], rtol=1e-5)


def test_a_runner_is_followed_at_five_frames_a_second() -> None:
    """Two body heights a second: 16 pixels from frame to frame, of a box of 20."""
    tracker = Tracker()
    found = [ids(tracker, (16.0 * at, 0), time_s=0.2 * at) for at in range(8)]
    assert found == [[1]] * 8


def test_time_and_not_the_number_of_frames_lets_people_be_forgotten() -> None:
    for fps, frames in ((5, 6), (50, 60)):
        tracker = Tracker(patience_s=1.0)
        for at in range(3):
            ids(tracker, (0, 0), time_s=at / fps)
        assert ids(tracker, (0, 0), time_s=(2 + frames) / fps) == []
        assert ids(tracker, (0, 0), time_s=(3 + frames) / fps) == [2]


def test_a_box_of_two_people_is_of_nobody_and_both_come_back() -> None:
    """One passes behind the other; for some frames both are in one box."""
    tracker = Tracker()
    for at in range(12):
        assert ids(tracker, (60, 0), (4.0 * at, 8)) == [1, 2], at
    assert ids(tracker, (54, 4)) == []
    assert ids(tracker, (56, 4)) == []
    for at in range(16, 24):
        assert ids(tracker, (60, 0), (4.0 * at, 8)) == [1, 2], at


def test_two_people_in_one_box_for_long_get_new_ids() -> None:
    tracker = Tracker()
    for _ in range(10):
        assert ids(tracker, (0, 0), (12, 0)) == [1, 2]
    found = [ids(tracker, (6, 0)) for _ in range(12)]
    assert found[0] == []
    assert found[-1] == [3]
    later = [track for _ in range(3) for track in ids(tracker, (0, 0), (12, 0))]
    assert not {1, 2} & set(later)


def test_who_could_be_swapped_gets_a_new_id() -> None:
    """Both move to the middle between where they were: either may be either."""
    tracker = Tracker()
    for _ in range(5):
        assert ids(tracker, (0, 0), (8, 0)) == [1, 2]
    assert sorted(ids(tracker, (4, -3), (4, 3))) == [3, 4]


def test_a_small_person_is_not_taken_for_a_lost_large_one() -> None:
    tracker = Tracker()
    for _ in range(5):
        ids(tracker, (0, 0))
    for _ in range(6):
        ids(tracker)
    half = people((0, 0))
    small = replace(half.boxes, corners=np.array([[5, 10, 15, 30]], np.float32))
    tracker.update(replace(half, boxes=small))
    (pose,) = tracker.update(replace(half, boxes=small))
    assert pose.track_id == 2


def test_a_fall_does_not_break_the_track() -> None:
    """From standing, 20 by 40, to lying, 40 by 15, within a second at 15 frames a second."""
    tracker = Tracker()
    for at in range(30):
        down = min(max(at - 10, 0) / 15, 1)
        width, height = 20 + 20 * down, 40 - 25 * down
        corners = np.array([[50, 100 - height, 50 + width, 100]], np.float32)
        boxes = Boxes(corners, np.array([0.8], np.float32))
        lying = People(
            boxes, np.repeat(corners[:, None, :2], 17, axis=1), np.ones((1, 17), np.float32)
        )
        assert [pose.track_id for pose in tracker.update(lying, time_s=at / 15)] == [1], at


def test_a_second_box_of_a_body_begins_no_track() -> None:
    tracker = Tracker()
    ids(tracker, (0, 0))
    for _ in range(4):
        assert ids(tracker, (0, 0), (8, 2, 0.7)) == [1]


def _box(x: float) -> Float32s:
    return np.array([x, 0, x + 20, 40], np.float32)
