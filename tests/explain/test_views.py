"""Explanations of several views add up to the joined score and speak of each view."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from stepvad.codec import from_plain, to_plain
from stepvad.detector import Detector
from stepvad.explain import Explanation, explain
from stepvad.explain.event import EventExplanation, explain_peak
from stepvad.explain.explanation import attribute_distance
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17
from stepvad.windows.runs import cut


def moved(clip: Clip, *, faster: float = 1.0, by: float = 0.0, larger: float = 1.0) -> Clip:
    """The longest track alone, faster across the picture, elsewhere in it, or larger."""
    track = max(clip.tracks, key=len)
    body = track.keypoints - track.keypoints.mean(axis=1, keepdims=True)
    centre = track.keypoints.mean(axis=1, keepdims=True)
    keypoints = larger * body + centre[:1] + faster * (centre - centre[:1])
    keypoints[..., 1] += by
    one = Track(track.id, track.frames, keypoints.astype(np.float32), track.confidence)
    return replace(clip, tracks=(one,))


def at(detector: Detector, clip: Clip, row: int) -> Explanation:
    """The explanation of one window of a clip."""
    windows = detector.score(clip).windows
    place = int(windows.track_id[row]), int(windows.frame[row])
    (found,) = explain(detector, clip, [place])
    return found


def test_it_adds_up_to_the_joined_score_of_old_and_young_windows(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = moved(usual_footage[0], faster=2.0)
    windows = usual_model.score(clip).windows
    rows = [0, 3, 17, 40, int(windows.A.argmax())]  # the first windows have short views alone
    places = [(int(windows.track_id[row]), int(windows.frame[row])) for row in rows]
    explained = explain(usual_model, clip, places)
    for row, one in zip(rows, explained, strict=True):
        assert one.score == pytest.approx(windows.A[row], rel=1e-5, abs=1e-4)
        meanings = sum(one.meanings.values())
        total = one.base + one.contributions.sum() + meanings
        assert total == pytest.approx(one.score, abs=1e-4)
        assert sum(view.contribution for view in one.views) == pytest.approx(one.score, abs=1e-4)
        assert one.base == pytest.approx(sum(view.base for view in one.views), abs=1e-4)
        parts = sum(part.contribution for part in one.parts)
        assert parts + one.base == pytest.approx(one.score, abs=1e-4)
        assert [*one.shares] == ["pose", "motion", "place"]
    young, old = explained[0], explained[3]
    assert [view.at_hand for view in young.views] == [False, True, False, False]
    assert all(view.at_hand for view in old.views)
    assert (len(young.frames), len(old.frames)) == (8, 25)
    assert sum(old.shares.values()) == pytest.approx(1)
    assert sum(young.shares.values()) == 0, "what is not at hand decides"
    assert max(np.abs(one.contributions).sum() for one in explained) > 0.1
    assert max(sum(one.meanings.values()) for one in explained) > 0.1


def test_the_ghost_is_the_nearest_average_and_adds_nothing(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = moved(usual_footage[0], faster=2.0)
    index = cut(clip, usual_model.view_settings, usual_model.skeleton)[0]
    windows = index.windows(np.array([0, 60]))
    places = [(int(windows.track_id[n]), int(windows.frame[n])) for n in range(2)]
    young, old = explain(usual_model, clip, places)
    nothing = [np.zeros(len(view.rows)) for view in windows.views]
    expected = usual_model.contributions(windows, nothing)
    for row, one in zip(expected, (young, old), strict=True):
        np.testing.assert_allclose([view.base for view in one.views], row, atol=1e-3)
        assert (one.ghost_energy, one.ghost_is_normal) == (0, True)
        assert (one.scales, one.confidence, one.taken_off) == ({}, 1, 0)
    assert old.base == pytest.approx(0, abs=1e-6), "all views are at hand"
    assert old.score > 1
    # the ghost in the whole window is the average of the pose that adds most
    pose = max(range(2), key=lambda number: old.views[number].contribution)
    model, x = usual_model.views[pose].model, windows.views[pose].windows.x[-1:]
    centre = model.centroids.points[model.centroids.nearest(model.space.project(x))]
    (average,) = model.space.reconstruct(centre, x.shape[1:])
    shown = old.ghost[-average.shape[2] :].transpose(2, 1, 0)
    own = [COCO17.joints.index(name) for name in ("left_wrist", "right_ankle")]
    ours = [usual_model.skeleton.joints.index(name) for name in ("left_wrist", "right_ankle")]
    way, expected_way = (one[:, 0] - one[:, 1] for one in (shown[:, own], average[:, ours]))
    size = np.abs(way).max() / np.abs(expected_way).max()
    np.testing.assert_allclose(way, size * expected_way, atol=0.02 * size)


def test_distances_are_attributed_along_the_way_from_the_average() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2, 5, 6)).astype(np.float32)
    flat = (rng.normal(size=(400, 60)) @ rng.normal(size=(60, 60))).astype(np.float32)
    space = PCSpace.fit(Moments.measure([flat], 60), 12, whitening=0.5)
    normal = rng.normal(size=(40, 12)).astype(np.float32)
    normal[3] = space.project(x[3:4])
    taken = attribute_distance(space, x, normal)
    d = np.linalg.norm(space.project(x) - normal, axis=1)
    np.testing.assert_allclose(taken.score, d, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(taken.contributions.sum(axis=(1, 2)), d, rtol=1e-4, atol=1e-5)
    assert (taken.base == 0).all()
    # a coordinate that is where the average has it adds nothing, one twice as far twice as much
    same = space.reconstruct(normal, (2, 5, 6))
    x[:, 1, 2, 3] = same[:, 1, 2, 3]
    assert np.abs(attribute_distance(space, x, normal).coordinates[:, 1, 2, 3]).max() < 1e-6


def test_footage_of_another_rate_is_explained_over_its_own_frames(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = replace(moved(usual_footage[0], faster=2.0), fps=60.0)
    windows = usual_model.score(clip).windows
    row = len(windows) - 1
    one = at(usual_model, clip, row)
    assert one.score == pytest.approx(windows.A[row], rel=1e-5, abs=1e-4)
    assert one.frames[[0, -1]].tolist() == [windows.frame[row] - 58, windows.frame[row]]
    assert [view.at_hand for view in one.views] == [True] * 4
    look = explain_peak(usual_model, clip, one.track, int(one.frames[-1]), calm=0.0)
    assert len(look.windows) == 2  # the peak's and the one before it


def test_contributions_sum_to_the_score(usual_model: Detector, usual_footage: list[Clip]) -> None:
    windows = cut(usual_footage[1], usual_model.view_settings, usual_model.skeleton)[0].windows(
        slice(None)
    )
    added = usual_model.contributions(windows)
    assert added.shape == (len(windows), 4)
    A = usual_model.score_windows(windows).A
    np.testing.assert_allclose(added.sum(axis=1), A, rtol=1e-5, atol=1e-6)
    calm = [np.full(len(view.rows), -100.0) for view in windows.views]
    assert (usual_model.contributions(windows, calm)[len(windows) // 2] == 0).all()


def test_who_is_too_fast_is_said_to_be_faster_than_anybody(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    found = at(usual_model, moved(usual_footage[0], faster=2.0), 60)
    (row,) = (n for n, view in enumerate(found.views) if view.name == "motion over 25 frames")
    assert found.views[row].share > 0.5
    (words,) = (one for one in found.findings if one.subject == "speed")
    assert words.says == "person crosses the picture faster than anybody before"
    assert found.meanings["speed"] == max(found.meanings.values())
    assert not any(one.speed for one in found.findings if one.subject == "whole body")
    # the pose over a second shows it, too: the one that adds most is told
    faster = at(usual_model, moved(usual_footage[0], faster=8.0), 60)
    assert (faster.shares["pose"] > 0.9, faster.shares["motion"]) == (True, 0)
    assert "faster than normal" in faster.words[0]


def test_only_what_is_rarer_than_one_in_twenty_has_words(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = moved(usual_footage[0], faster=2.0)
    windows = usual_model.score(clip).windows
    rows = range(0, len(windows), 7)
    places = [(int(windows.track_id[row]), int(windows.frame[row])) for row in rows]
    is_odd = windows.E[[*rows]].max(axis=1) > -np.log(0.05)
    has_words = [bool(one.words) for one in explain(usual_model, clip, places)]
    assert 0 < sum(has_words) <= is_odd.sum() < len(is_odd)
    assert not any(said for said, odd in zip(has_words, is_odd, strict=True) if not odd)


def test_who_is_elsewhere_or_too_large_is_said_to_be(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    away = at(usual_model, moved(usual_footage[0], by=-2000.0), 60)
    assert away.shares["place"] > 0.5
    assert away.words[0].startswith("person is where nobody was before, frames ")
    large = at(usual_model, moved(usual_footage[0], larger=3.0), 60)
    says = [finding.says for finding in large.findings if finding.subject == "size"]
    assert says
    assert says[0].endswith("x as large as people are there")


def test_a_pose_that_is_unusual_is_told_as_before(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = moved(usual_footage[0])
    (track,) = clip.tracks
    turned = track.keypoints.copy()
    middle = turned.mean(axis=1, keepdims=True)
    turned = middle + (turned - middle)[..., ::-1]  # upright becomes lying
    lying = replace(clip, tracks=(Track(track.id, track.frames, turned, track.confidence),))
    found = at(usual_model, lying, 60)
    assert found.shares["pose"] > 0.15
    assert any(words.startswith("whole body lying") for words in found.words)
    assert not any(finding.subject == "width" for finding in found.findings)  # who lies is wide


def test_an_event_and_its_json_show_shares(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = moved(usual_footage[0], faster=8.0)
    windows = usual_model.score(clip).windows
    track, frame = int(windows.track_id[0]), int(windows.frame[60])
    look = explain_peak(usual_model, clip, track, frame, calm=0.0)
    frames = np.concatenate([window.frames for window in look.windows])
    assert (np.diff(frames) == 1).all()
    made = look.explanation(25.0)
    assert [view.name for view in made.views] == ["pose", "motion", "place"]
    back = json.loads(json.dumps(to_plain(made), allow_nan=False))
    assert from_plain(EventExplanation, back, "explanation") == made
    one = json.loads(json.dumps(look.peak.as_dict(), allow_nan=False))
    assert one["views"][2]["name"] == "motion over 25 frames"
    total = one["base"] + sum(map(sum, one["contributions"])) + sum(one["meanings"].values())
    assert total == pytest.approx(one["score"], abs=1e-4)


def test_around_a_young_peak_windows_still_touch(
    usual_model: Detector, usual_footage: list[Clip]
) -> None:
    clip = moved(usual_footage[0])
    windows = usual_model.score(clip).windows
    for row in (0, 20):
        look = explain_peak(
            usual_model, clip, int(windows.track_id[0]), int(windows.frame[row]), calm=0.0
        )
        frames = np.concatenate([window.frames for window in look.windows])
        assert (np.diff(frames) == 1).all()
        assert look.peak.frames[-1] == windows.frame[row]
