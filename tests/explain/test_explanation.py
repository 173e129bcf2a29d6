"""Explanations add up, of one window, of many and over time."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Aggregation, Config, Reference
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.explain import explain, explanation, ghosts, highest
from stepvad.explain.explanation import Attribution, Explanation, attribute
from stepvad.model.pcspace import PCSpace
from stepvad.poses import Clip
from stepvad.skeletons import COCO17, STEP18
from stepvad.windows.runs import WindowIndex, cut
from stepvad.windows.views import Windows
from tests.tracks import with_config


def taken_apart(
    detector: Detector, windows: Windows, normal: NDArray[np.float32] | None = None
) -> Attribution:
    space = detector.model.space
    assert isinstance(space, PCSpace)
    if normal is None:
        normal = ghosts.nearest_normal(detector, space.project(windows.x))
    return attribute(detector, windows.x, windows.weight(detector.config), normal)


def with_aggregation(detector: Detector, aggregation: Aggregation) -> Detector:
    config = replace(detector.config, aggregation=aggregation)
    return with_config(detector, config)


@pytest.mark.parametrize("aggregation", ["max", "sum", "top2", "top3", 4])
def test_base_and_contributions_make_the_score(
    detector: Detector, index: WindowIndex, aggregation: Aggregation
) -> None:
    other, windows = with_aggregation(detector, aggregation), index.windows(slice(0, None, 17))
    taken = taken_apart(other, windows)
    A = other.score_windows(windows).A
    assert A.max() > 4
    np.testing.assert_allclose(taken.score, A, atol=1e-4)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    atol = 1e-4 if aggregation != "sum" else 1e-3  # ten energies, each to its own
    np.testing.assert_allclose(total, A, rtol=0, atol=atol)


def test_they_make_it_from_any_start(detector: Detector, index: WindowIndex) -> None:
    windows = index.windows(slice(0, None, 40))
    mean_motion = np.zeros((len(windows), detector.config.K), dtype=np.float32)
    taken = taken_apart(detector, windows, mean_motion)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    np.testing.assert_allclose(total, detector.score_windows(windows).A, rtol=0, atol=1e-4)
    assert len(set(taken.base.round(4))) > 1  # the deciding scale and c(x) are the window's own


def test_too_few_nodes_would_not_do(
    detector: Detector, index: WindowIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = index.windows(slice(0, None, 17))
    monkeypatch.setattr(explanation, "NODES", 2)
    monkeypatch.setattr(explanation, "MAX_NODES", 2)
    taken = taken_apart(detector, windows)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    assert np.abs(total - taken.score).max() > 1e-3


def test_what_lies_outside_the_components_adds_up_to_nothing(
    detector: Detector, index: WindowIndex
) -> None:
    windows = index.windows(slice(0, None, 40))
    space = detector.model.space
    assert isinstance(space, PCSpace)
    inside = space.reconstruct(space.project(windows.x), (2, 18, 12))
    assert np.abs(inside - windows.x).max() > 0.05
    with_rest = taken_apart(detector, windows)
    without = taken_apart(detector, replace(windows, x=inside))
    np.testing.assert_allclose(with_rest.score, without.score, atol=1e-3)
    np.testing.assert_allclose(
        with_rest.contributions.sum(axis=(1, 2)), without.contributions.sum(axis=(1, 2)), atol=1e-3
    )


def test_confidence_weighs_everything_alike(detector: Detector, index: WindowIndex) -> None:
    windows = index.windows(slice(0, None, 40))
    half = replace(windows, c=windows.c / np.float32(2))
    full, weighed = taken_apart(detector, windows), taken_apart(detector, half)
    np.testing.assert_allclose(weighed.contributions, full.contributions / 2, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(weighed.base, full.base / 2, rtol=1e-6)
    np.testing.assert_allclose(weighed.energy, full.energy)


def test_one_scale_decides_where_the_largest_energy_counts(
    detector: Detector, index: WindowIndex
) -> None:
    windows = index.windows(slice(0, None, 40))
    E = detector.score_windows(windows).E
    taken = taken_apart(detector, windows)
    np.testing.assert_array_equal(taken.scales.argmax(axis=1), E.argmax(axis=1))
    np.testing.assert_array_equal(taken.scales.sum(axis=1), 1)


@pytest.fixture(scope="module")
def top(detector: Detector, odd_clip: Clip) -> Explanation:
    (_, place), *_ = highest(detector.score(odd_clip), 1)
    (explanation,) = explain(detector, odd_clip, [place])
    return explanation


def test_it_is_over_the_clips_own_joints_and_adds_up(
    detector: Detector, odd_clip: Clip, top: Explanation
) -> None:
    scores = detector.score(odd_clip)
    assert top.score == pytest.approx(scores.A.max(), abs=1e-4)
    assert top.contributions.shape == (12, 17)
    assert top.base + top.contributions.sum() == pytest.approx(top.score, abs=1e-4)
    assert sum(part.contribution for part in top.parts) + top.base == pytest.approx(
        top.score, abs=1e-4
    )
    assert sum(part.share for part in top.parts) == pytest.approx(1)


def test_without_places_it_is_the_highest_window_of_the_clip(
    detector: Detector, odd_clip: Clip, top: Explanation
) -> None:
    (found,) = explain(detector, odd_clip)
    assert (found.track, found.frames.tolist()) == (top.track, top.frames.tolist())
    assert found.score == top.score
    assert explain(detector, replace(odd_clip, tracks=())) == []


def test_joints_and_frames_keep_their_places(
    detector: Detector, odd_clip: Clip, top: Explanation
) -> None:
    index, _ = cut(odd_clip, detector.view_settings, detector.skeleton)
    (row,) = np.flatnonzero((index.track_id == top.track) & (index.frame == top.frames[-1]))
    windows, space = index.windows(np.array([row])), detector.model.space
    assert isinstance(space, PCSpace)
    normal = ghosts.nearest_normal(detector, space.project(windows.x))
    (expected,) = attribute(detector, windows.x, windows.c, normal).contributions  # (V, T)
    for joint in ("nose", "left_wrist", "right_ankle"):
        np.testing.assert_allclose(
            top.contributions[:, COCO17.joints.index(joint)],
            expected[STEP18.joints.index(joint)],
            atol=1e-6,
        )


def test_scale_and_confidence_are_those_of_the_score(
    detector: Detector, odd_clip: Clip, top: Explanation
) -> None:
    windows = detector.score(odd_clip).windows
    row = int(windows.A.argmax())
    assert list(top.scales) == [pytest.approx(detector.config.sigmas[windows.E[row].argmax()])]
    assert top.confidence == pytest.approx(windows.c[row])
    assert top.energy == pytest.approx(windows.E[row].max(), abs=1e-4)
    assert top.taken_off == pytest.approx(top.energy * (1 - top.confidence))


def test_observed_poses_are_those_of_the_clip(odd_clip: Clip, top: Explanation) -> None:
    (track,) = (track for track in odd_clip.tracks if track.id == top.track)
    rows = np.flatnonzero(np.isin(track.frames, top.frames))
    shown = np.isin(top.frames, track.frames)
    np.testing.assert_allclose(top.observed[shown], track.keypoints[rows], rtol=1e-5)
    assert top.skeleton == COCO17


def test_the_ghost_is_normal_and_stands_where_the_person_is(top: Explanation) -> None:
    assert top.ghost_is_normal
    assert top.ghost_energy <= ghosts.NORMAL_RANGE < top.energy
    apart = np.linalg.norm(top.ghost.mean(axis=(0, 1)) - top.observed.mean(axis=(0, 1)))
    assert apart < np.ptp(top.observed, axis=(0, 1)).max()


def test_an_odd_window_has_words_and_a_usual_one_has_none(
    detector: Detector, odd_clip: Clip, top: Explanation
) -> None:
    assert top.words
    windows = detector.score(odd_clip).windows
    row = int(windows.A.argmin())
    place = int(windows.track_id[row]), int(windows.frame[row])
    (usual,) = explain(detector, odd_clip, [place])
    assert usual.words == ()
    assert usual.contributions.sum() == pytest.approx(0, abs=1e-4)  # it is at the goal itself


def test_many_at_once_are_what_each_is_alone(detector: Detector, odd_clip: Clip) -> None:
    windows = detector.score(odd_clip).windows
    places = [(int(windows.track_id[row]), int(windows.frame[row])) for row in range(0, 60, 9)]
    together = explain(detector, odd_clip, places)
    assert [(one.track, int(one.frames[-1])) for one in together] == places
    for one, place in zip(together, places, strict=True):
        (alone,) = explain(detector, odd_clip, [place])
        np.testing.assert_allclose(one.contributions, alone.contributions, atol=1e-2)
    assert explain(detector, odd_clip, []) == []


def test_everything_goes_through_json(top: Explanation) -> None:
    back = json.loads(json.dumps(top.as_dict(), allow_nan=False))
    assert back["words"] == list(top.words)
    np.testing.assert_allclose(np.array(back["contributions"]), top.contributions)
    np.testing.assert_allclose(np.array(back["ghost"]), top.ghost)
    assert back["parts"][0]["name"] == top.parts[0].name


def test_the_highest_are_different_people(detector: Detector, odd_clip: Clip) -> None:
    scores = detector.score(odd_clip)
    found = highest(scores, 3)
    assert found[0][0] == scores.A.max()
    assert sorted((score for score, _ in found), reverse=True) == [score for score, _ in found]
    assert len({track for _, (track, _) in found}) == len(found)
    assert len(highest(scores, 10**6)) == len(set(scores.windows.track_id.tolist()))


def test_a_window_that_is_not_there_is_refused(detector: Detector, odd_clip: Clip) -> None:
    track = int(detector.score(odd_clip).windows.track_id[0])
    with pytest.raises(DataError, match=r"ends in frame 99999, got windows from \d+ to \d+"):
        explain(detector, odd_clip, [(track, 99999)])
    with pytest.raises(DataError, match="got a track without windows"):
        explain(detector, odd_clip, [(12345, 20)])


def test_raw_coordinates_are_explained_too(walkers: list[Clip]) -> None:
    config = Config(
        reference=Reference(projection="raw", whitening=1.0),
        width=32,
        max_steps=60,
        learning_rate=2e-3,
    )
    raw = Detector.fit(walkers[:2], config)
    (_, place), *_ = highest(raw.score(walkers[0]), 1)
    (one,) = explain(raw, walkers[0], [place])
    assert one.base + one.contributions.sum() == pytest.approx(one.score, abs=1e-4)
