"""Eq. 8 and the way from windows to frames, against examples worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Aggregation
from stepvad.model.scoring import (
    Placement,
    Scores,
    WindowScores,
    aggregate,
    anomaly_score,
    fill_uncovered,
    frame_scores,
    person_scores,
    scale_weights,
    smooth,
    smooth_scored,
    standardise_energies,
)
from stepvad.windows.body import Repairs

Floats = NDArray[np.float32]
NAN = float("nan")


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def scored(*rows: tuple[int, int, float]) -> WindowScores:
    """Windows as (track, last frame, A)."""
    track_id, frame, A = zip(*rows, strict=True) if rows else ((), (), ())
    return WindowScores(
        np.array(track_id, dtype=np.int64),
        np.array(frame, dtype=np.int64),
        np.ones(len(rows), dtype=np.float32),
        np.array(A, dtype=np.float32)[:, None],
        np.array(A, dtype=np.float32),
    )


E = np.array([[1, -2, 3, 0], [-4, -3, -1, -2]], dtype=np.float32)


def test_energies_are_standardised_scale_by_scale() -> None:
    energies = np.array([[5, 100], [1, 80]], dtype=np.float32)
    got = standardise_energies(energies, np.array([3.0, 100.0]), np.array([4.0, 100.0]))
    np.testing.assert_array_equal(got, [[(5 - 3) / 2, 0], [(1 - 3) / 2, (80 - 100) / 10]])
    assert got.dtype == np.float32


def test_the_score_is_confidence_times_the_largest_standardised_energy() -> None:
    energies = np.array([[5, 130], [1, 80]], dtype=np.float32)
    standardised = standardise_energies(energies, np.array([3.0, 100.0]), np.array([4.0, 100.0]))
    # standardised by hand: 1 and 3, then -1 and -2
    A = anomaly_score(standardised, floats(0.5, 0.25))
    np.testing.assert_array_equal(A, [0.5 * 3, 0.25 * -1])
    assert A.dtype == np.float32


def test_low_confidence_lifts_a_very_normal_window_towards_zero() -> None:
    sure, unsure = anomaly_score(np.full((2, 3), -2, dtype=np.float32), floats(1.0, 0.1))
    assert sure == -2
    assert unsure == np.float32(-0.2)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("max", (3, -1)),
        ("sum", (2, -10)),
        ("top2", (2, -1.5)),
        ("top3", (4 / 3, -2)),
        (0, (1, -4)),
        (1, (-2, -3)),
        (3, (0, -2)),
    ],
)
def test_aggregations(aggregation: Aggregation, expected: tuple[float, float]) -> None:
    np.testing.assert_allclose(aggregate(E, aggregation), expected, rtol=1e-6)
    weighted = anomaly_score(E, floats(0.5, 1), aggregation)
    np.testing.assert_allclose(weighted, [0.5 * expected[0], expected[1]], rtol=1e-6)
    by_scale = scale_weights(E, aggregation)
    np.testing.assert_allclose((by_scale * E).sum(axis=1), expected, rtol=1e-6)


def test_aggregation_of_no_windows_is_empty() -> None:
    none = np.empty((0, 4), dtype=np.float32)
    for aggregation in ("max", "sum", "top2", "top3", 0):
        assert anomaly_score(none, none[:, 0], aggregation).shape == (0,)


def test_latest_writes_a_score_to_the_last_frame_of_its_window() -> None:
    windows = scored((7, 3, 1.0), (7, 4, 2.0))
    np.testing.assert_array_equal(frame_scores(windows, 6, 4), floats(NAN, NAN, NAN, 1, 2, NAN))


@pytest.mark.parametrize(
    ("T", "middle"),
    [
        (4, 8),  # frames 6 7 8 9: the one at T / 2
        (5, 7),  # frames 5 6 7 8 9
        (1, 9),
        (2, 9),
    ],
)
def test_center_writes_a_score_to_the_middle_frame_of_its_window(T: int, middle: int) -> None:
    scores = frame_scores(scored((0, 9, 5.0)), 12, T, placement="center")
    assert np.flatnonzero(~np.isnan(scores)).tolist() == [middle]
    assert scores[middle] == 5


def test_backtrack_gives_every_frame_the_mean_of_the_windows_that_cover_it() -> None:
    # windows of 3 frames: [0 1 2] = 1, [1 2 3] = 4, [2 3 4] = 7
    windows = scored((0, 2, 1.0), (0, 3, 4.0), (0, 4, 7.0))
    expected = floats(1, (1 + 4) / 2, (1 + 4 + 7) / 3, (4 + 7) / 2, 7, NAN)
    np.testing.assert_array_equal(frame_scores(windows, 6, 3, placement="backtrack"), expected)
    largest = frame_scores(windows, 6, 3, placement="backtrack_max")
    np.testing.assert_array_equal(largest, floats(1, 4, 7, 7, 7, NAN))


def test_backtrack_does_not_reach_across_a_gap() -> None:
    # one person, gone between frames 3 and 9; windows [1 2 3] = 1 and [9 10 11] = 5
    windows = scored((0, 3, 1.0), (0, 11, 5.0))
    got = frame_scores(windows, 13, 3, placement="backtrack")
    expected = floats(NAN, 1, 1, 1, *[NAN] * 5, 5, 5, 5, NAN)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("placement", ["latest", "center", "backtrack", "backtrack_max"])
def test_windows_of_one_frame_are_placed_alike(placement: Placement) -> None:
    windows = scored((0, 1, 1.0), (0, 2, 2.0), (0, 5, 5.0))
    np.testing.assert_array_equal(
        frame_scores(windows, 6, 1, placement=placement), floats(NAN, 1, 2, NAN, NAN, 5)
    )


def test_a_frame_has_the_score_of_its_worst_person() -> None:
    windows = scored((1, 2, -3.0), (1, 3, 8.0), (2, 2, -1.0), (2, 3, 4.0), (3, 4, -9.0))
    np.testing.assert_array_equal(frame_scores(windows, 6, 1), floats(NAN, NAN, -1, 8, -9, NAN))


def test_backtrack_takes_each_persons_mean_before_the_worst_person() -> None:
    # person 1: [0 1] = 0, [1 2] = 4; person 2: [1 2] = 3
    windows = scored((1, 1, 0.0), (1, 2, 4.0), (2, 2, 3.0))
    got = frame_scores(windows, 3, 2, placement="backtrack")
    np.testing.assert_array_equal(got, floats(0, 3, 4))


@pytest.mark.parametrize("placement", ["latest", "center", "backtrack", "backtrack_max"])
def test_the_order_of_windows_does_not_matter(placement: Placement) -> None:
    rows = [(1, 2, 0.5), (1, 3, 4.0), (1, 4, 1.0), (2, 3, 3.0), (2, 9, -3.0)]
    forth = frame_scores(scored(*rows), 10, 3, placement=placement)
    back = frame_scores(scored(*rows[::-1]), 10, 3, placement=placement)
    np.testing.assert_array_equal(forth, back)


def test_frames_without_any_person_have_no_score() -> None:
    assert np.isnan(frame_scores(scored(), 4, 3)).all()
    assert frame_scores(scored(), 0, 3).shape == (0,)


def test_person_scores_come_one_consecutive_stretch_at_a_time() -> None:
    rows = [(1, 4, 1.0), (1, 5, 2.0), (1, 8, 3.0), (2, 9, 4.0)]
    stretches = [(frames.tolist(), A.tolist()) for frames, A in person_scores(scored(*rows), 2)]
    assert stretches == [([4, 5], [1.0, 2.0]), ([8], [3.0]), ([9], [4.0])]


def test_person_smoothing_stays_inside_a_consecutive_stretch() -> None:
    # two constant stretches of one person and one of another: nothing may leak between them
    rows = [(1, frame, 1.0) for frame in range(5)]
    rows += [(1, frame, 9.0) for frame in range(6, 11)]
    rows += [(2, frame, 5.0) for frame in range(11, 15)]
    got = frame_scores(scored(*rows), 15, 1, person_sigma=2.0)
    expected = floats(*[1] * 5, NAN, *[9] * 5, *[5] * 4)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_person_smoothing_comes_before_the_worst_person() -> None:
    # a one-frame peak of person 1 is flattened below the steady person 2
    rows = [(1, frame, 10.0 if frame == 5 else 0.0) for frame in range(11)]
    rows += [(2, frame, 5.0) for frame in range(11)]
    assert frame_scores(scored(*rows), 11, 1)[5] == 10
    np.testing.assert_allclose(frame_scores(scored(*rows), 11, 1, person_sigma=1.0), 5, rtol=1e-6)


def test_empty_frames_get_the_lowest_score_of_all_clips_minus_one() -> None:
    clips = [floats(2, NAN, -1), floats(NAN, 5), floats(NAN, NAN)]
    a, b, c = fill_uncovered(clips)
    np.testing.assert_array_equal(a, floats(2, -2, -1))
    np.testing.assert_array_equal(b, floats(-2, 5))
    np.testing.assert_array_equal(c, floats(-2, -2))


def test_the_floor_of_a_clip_is_its_own_lowest_score_minus_one() -> None:
    clips = [floats(2, NAN, -1), floats(NAN, 5), floats(NAN, NAN)]
    a, b, c = fill_uncovered(clips, "per_clip")
    np.testing.assert_array_equal(a, floats(2, -2, -1))
    np.testing.assert_array_equal(b, floats(4, 5))
    np.testing.assert_array_equal(c, floats(-2, -2))  # nothing of its own: the global floor


def test_clips_without_any_score_are_filled_with_one_number() -> None:
    (filled,) = fill_uncovered([floats(NAN, NAN)])
    assert filled.tolist() == [-1, -1]
    assert fill_uncovered([]) == []
    (empty,) = fill_uncovered([floats()], "per_clip")
    assert empty.shape == (0,)


def test_smoothing_preserves_a_constant_and_the_sum_around_a_peak() -> None:
    np.testing.assert_allclose(smooth(np.full(50, 3, np.float32), 5.0), 3, rtol=1e-6)
    peak = np.zeros(101, dtype=np.float32)
    peak[50] = 1
    smoothed = smooth(peak, 3.0)
    assert smoothed.sum() == pytest.approx(1, rel=1e-5)
    gaussian = np.exp(-(np.arange(-50, 51) ** 2) / (2 * 3.0**2))
    np.testing.assert_allclose(smoothed, gaussian / gaussian.sum(), atol=1e-4)


def test_one_gaussian_of_9_54_equals_the_chain_of_one_to_six() -> None:
    assert np.sqrt(sum(sigma**2 for sigma in range(1, 7))) == pytest.approx(9.54, abs=0.001)
    scores = np.random.default_rng(0).normal(size=400).astype(np.float32)
    chain = scores
    for sigma in range(1, 7):
        chain = smooth(chain, sigma)
    inside = slice(60, -60)
    np.testing.assert_allclose(smooth(scores, 9.54)[inside], chain[inside], atol=2e-3)


def test_smoothing_scored_frames_alone_is_a_weighted_mean_of_their_neighbours() -> None:
    scores = np.full(61, NAN, dtype=np.float32)
    scores[[25, 30]] = (2, 8)
    near, far = 1.0, float(np.exp(-(5**2) / (2 * 3.0**2)))
    got = smooth_scored(scores, 3.0)
    assert np.flatnonzero(~np.isnan(got)).tolist() == [25, 30]
    expected = floats((2 * near + 8 * far) / (near + far), (8 * near + 2 * far) / (near + far))
    np.testing.assert_allclose(got[[25, 30]], expected, rtol=1e-4)


def test_smoothing_scored_frames_alone_agrees_with_smoothing_where_all_are_scored() -> None:
    scores = np.random.default_rng(0).normal(size=80).astype(np.float32)
    np.testing.assert_allclose(smooth_scored(scores, 4.0), smooth(scores, 4.0), atol=1e-6)
    np.testing.assert_array_equal(smooth_scored(scores, 0), scores)
    scores[10:20] = NAN
    np.testing.assert_array_equal(smooth_scored(scores, 0), scores)
    assert np.isnan(smooth_scored(floats(NAN, NAN), 2.0)).all()


def test_smoothing_no_frames_gives_none() -> None:
    assert smooth(floats(), 3.0).shape == (0,)


def test_window_scores_join_in_order_and_from_nothing() -> None:
    one, two = scored((1, 2, 3.0)), scored((4, 5, 6.0), (7, 8, 9.0))
    both = WindowScores.join([one, two], L=1)
    assert both.track_id.tolist() == [1, 4, 7]
    assert both.frame.tolist() == [2, 5, 8]
    assert both.A.tolist() == [3, 6, 9]
    assert both.E.tolist() == [[3], [6], [9]]
    assert len(both) == 3
    none = WindowScores.join([], L=10)
    assert len(none) == 0
    assert none.E.shape == (0, 10)
    assert [getattr(none, name).dtype.name for name in ("track_id", "frame", "c", "E", "A")] == [
        "int64",
        "int64",
        "float32",
        "float32",
        "float32",
    ]


def test_scores_of_a_clip_show_the_online_frame_scores() -> None:
    windows = scored((1, 2, 3.0), (2, 2, 5.0))
    scores = Scores("clip", 4, 3, windows, Repairs(), flat_windows=0)
    np.testing.assert_array_equal(scores.frames, floats(NAN, NAN, 5, NAN))
    assert scores.A.tolist() == [3, 5]


def young(*rows: tuple[int, int, float, int]) -> WindowScores:
    """Scores of windows as track, last frame, A(x), and frames short of T."""
    whole = scored(*((track, frame, A) for track, frame, A, _ in rows))
    return replace(whole, lacking=np.array([lacking for *_, lacking in rows]))


def test_backtrack_of_a_young_window_goes_back_to_its_first_frame_only() -> None:
    # T = 4: windows of 2, 3, 4 and 4 frames, the first three begin in frame 0
    windows = young((1, 1, 8.0, 2), (1, 2, 4.0, 1), (1, 3, 0.0, 0), (1, 4, 6.0, 0))
    means = floats(4, 4.5, 10 / 3, 3, 6, NAN, NAN)
    np.testing.assert_allclose(frame_scores(windows, 7, 4, placement="backtrack"), means)
    worst = floats(8, 8, 6, 6, 6, NAN, NAN)
    got = frame_scores(windows, 7, 4, placement="backtrack_max")
    np.testing.assert_array_equal(got, worst)


def test_center_of_a_young_window_is_its_own_and_young_windows_share_one() -> None:
    # windows of 1 to 4 frames from frame 5 on: their middles are frames 5, 6, 6 and 7
    windows = young((1, 5, 1.0, 3), (1, 6, 2.0, 2), (1, 7, 4.0, 1), (1, 8, 8.0, 0), (1, 9, 9.0, 0))
    got = frame_scores(windows, 11, 4, placement="center")
    np.testing.assert_array_equal(got, floats(*[NAN] * 5, 1, 3, 8, 9, NAN, NAN))
    ((frames, _),) = person_scores(windows, 4, placement="center")
    assert frames.tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("placement", ["center", "backtrack", "backtrack_max"])
def test_no_window_begins_before_frame_0(placement: Placement) -> None:
    untold = scored((1, 1, 8.0), (1, 2, 4.0))  # as in a file that does not say how long they are
    told = young((1, 1, 8.0, 4), (1, 2, 4.0, 3))
    for n_frames in (3, 9):
        got = frame_scores(untold, n_frames, 6, placement=placement)
        np.testing.assert_array_equal(got, frame_scores(told, n_frames, 6, placement=placement))
        assert np.isnan(got[3:]).all()


def test_a_track_that_begins_again_at_once_is_another_stretch() -> None:
    # the body jumped before frame 5: from there on its windows are young again
    windows = young((1, 3, 1.0, 0), (1, 4, 1.0, 0), (1, 5, 9.0, 2), (1, 6, 9.0, 1))
    got = frame_scores(windows, 7, 3, placement="backtrack", person_sigma=2.0)
    np.testing.assert_allclose(got, floats(NAN, 1, 1, 1, 1, 9, 9), rtol=1e-6)


def test_young_windows_with_frames_missing_between_are_not_one_stretch() -> None:
    # both begin in frame 0: only their last frames tell that two windows are missing
    windows = young((1, 1, 1.0, 3), (1, 4, 9.0, 0))
    stretches = [frames.tolist() for frames, _ in person_scores(windows, 5)]
    assert stretches == [[1], [4]]


def test_parts_and_joined_scores_keep_how_short_their_windows_are() -> None:
    one, two = young((1, 1, 8.0, 2), (1, 2, 4.0, 1)), scored((1, 3, 0.0))
    both = WindowScores.join([one, two], L=1)
    assert both.lacking.tolist() == [2, 1, 0]
    assert both.part(np.array([2, 0])).lacking.tolist() == [0, 2]
    assert WindowScores.join([], L=1).lacking.shape == (0,)
