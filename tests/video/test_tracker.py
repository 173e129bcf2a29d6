"""The tracker: who keeps an id, who gets a new one, and that no two trackers know of each other."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from stepvad.video.detection import PersonDetector
from stepvad.video.motion import BoxMotion
from stepvad.video.networks import open_network
from stepvad.video.people import Boxes, Float32s, People
from stepvad.video.tracker import Tracker, best_pairs


def people(*rows: tuple[float, float] | tuple[float, float, float]) -> People:
    """People of 20 by 40 pixels at x, y, of a score of 0.9 or of the third number."""
    corners = np.array([[row[0], row[1], row[0] + 20, row[1] + 40] for row in rows], np.float32)
    scores = np.array([row[2] if len(row) == 3 else 0.9 for row in rows], np.float32)
    boxes = Boxes(corners.reshape(-1, 4), scores)
    keypoints = np.repeat(boxes.corners[:, None, :2], 17, axis=1)
    return People(boxes, keypoints, np.ones((len(rows), 17), np.float32))


def ids(tracker: Tracker, *rows: tuple[float, float] | tuple[float, float, float]) -> list[int]:
    return [pose.track_id for pose in tracker.update(people(*rows))]


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
    tracker = Tracker(patience=5)
    for at in range(6):
        ids(tracker, (5.0 * at, 0))
    for _ in range(5):
        assert ids(tracker) == []
    assert ids(tracker, (55, 0)) == [1]


def test_who_stays_away_too_long_gets_a_new_id() -> None:
    tracker = Tracker(patience=5)
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


def test_pairs_have_the_largest_sum_of_overlaps() -> None:
    a = np.array([[0, 0, 10, 10], [4, 0, 14, 10]], np.float32)
    b = np.array([[3, 0, 13, 10], [8, 0, 18, 10]], np.float32)
    # greedy would pair row 1 with column 0 (9/11) and leave row 0 to column 1 (1/9)
    assert best_pairs(a, b, 0.1) == [(0, 0), (1, 1)]
    assert best_pairs(a, b, 0.6) == [(1, 0)]
    assert best_pairs(a[:0], b, 0.1) == best_pairs(a, b[:0], 0.1) == []


def test_the_filter_learns_an_even_motion() -> None:
    motion = BoxMotion(_box(0))
    for at in range(1, 40):
        motion.predict()
        motion.correct(_box(5.0 * at))
    motion.predict()
    np.testing.assert_allclose(motion.corners(), _box(200), atol=0.5)


def test_the_filter_is_the_textbook_one() -> None:
    """The same steps with the 2x2 matrices of the textbook, for the centre's x."""
    motion = BoxMotion(_box(0))
    place, speed = 0.05 * 40, 40 / 160
    x, P = np.array([10.0, 0.0]), np.diag([(2 * place) ** 2, (10 * speed) ** 2])
    F, H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    for seen in (3.0, 9.0, 11.0):
        x, P = F @ x, F @ P @ F.T + np.diag([place**2, speed**2])
        K = P @ H.T / (H @ P @ H.T + place**2)
        x, P = x + K[:, 0] * (seen + 10 - x[0]), (np.eye(2) - K @ H) @ P
        motion.predict()
        motion.correct(_box(seen))
    corners = motion.corners()
    np.testing.assert_allclose((corners[0] + corners[2]) / 2, x[0], rtol=1e-6)


@pytest.mark.data
@pytest.mark.slow
def test_pedestrians_are_linked_as_another_bytetrack_links_them(data_dir: Path) -> None:
    """Both carry an id from the same box to the same box of the next picture.

    Links are compared, not whole tracks: one other decision where people cross changes every id
    after it. Over these 200 pictures 97 of 100 links agree, but only 82 of 100 boxes lie in tracks
    that match as a whole: around the lamp post people share a box, and both trackers swap ids.
    """
    av, trackers = pytest.importorskip("av"), pytest.importorskip("trackers")
    supervision = pytest.importorskip("supervision")
    models, clip = data_dir.parent / "models", data_dir.parent / "media" / "vtest.avi"
    if not (models.is_dir() and clip.is_file()):
        pytest.skip(f"no networks at {models} or no clip at {clip}")
    detector = PersonDetector(open_network(models / "yolox_nano.onnx"))
    ours = Tracker(new_score=0.5)
    theirs = trackers.ByteTrackTracker(
        track_activation_threshold=0.5, high_conf_det_threshold=0.5, minimum_iou_threshold=0.2
    )
    here: list[dict[int, int]] = []
    there: list[dict[int, int]] = []
    with av.open(str(clip)) as container:
        for frame in itertools.islice(container.decode(video=0), 200):
            (boxes,) = detector([frame.to_ndarray(format="rgb24")])
            here.append(ids_by_row(ours, boxes))
            given = supervision.Detections(boxes.corners, confidence=boxes.scores)
            found = theirs.update(given)
            rows = [int(np.abs(boxes.corners - c).sum(axis=1).argmin()) for c in found.xyxy]
            pairs = zip(rows, found.tracker_id.tolist(), strict=True)
            there.append({row: track_id for row, track_id in pairs if track_id >= 0})
    a, b = links(here), links(there)
    assert len(a & b) > 1000
    assert len(a & b) >= 0.95 * len(a | b)
    numbers = [len({i for picture in ids for i in picture.values()}) for ids in (here, there)]
    assert abs(numbers[0] - numbers[1]) <= 0.2 * numbers[1]


def links(ids: list[dict[int, int]]) -> set[tuple[int, int, int]]:
    """Picture, row and row of the next picture that carry the same id."""
    return {
        (at, row, after)
        for at, (now, later) in enumerate(itertools.pairwise(ids))
        for row, track_id in now.items()
        for after, other in later.items()
        if track_id == other
    }


def ids_by_row(tracker: Tracker, boxes: Boxes) -> dict[int, int]:
    """Ids by row of the boxes, which travel as the first joint."""
    rows = np.arange(len(boxes), dtype=np.float32)
    keypoints = np.repeat(rows[:, None, None], 2, axis=2)
    people = People(boxes, keypoints, np.ones((len(boxes), 1), np.float32))
    return {int(pose.keypoints[0, 0]): pose.track_id for pose in tracker.update(people)}


def _box(x: float) -> Float32s:
    return np.array([x, 0, x + 20, 40], np.float32)
