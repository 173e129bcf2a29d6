"""Explanations of several views add up to the joined score and speak of each view."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from stepvad.codec import from_plain, to_plain
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation.walkers import make_clips
from stepvad.explain import Explanation, explain, ghosts
from stepvad.explain.event import EventExplanation, explain_peak
from stepvad.explain.explanation import attribute
from stepvad.poses import Clip, Track
from stepvad.windows.runs import cut

QUICK = Config(K=12, width=16, max_steps=40, learning_rate=4e-3, ema_warmup=True, clock=True)


@pytest.fixture(scope="module")
def footage() -> list[Clip]:
    return [clip for clip, _ in make_clips(8, seed=4, seconds=6.0)]


@pytest.fixture(scope="module")
def several(footage: list[Clip]) -> Detector:
    """Poses of 25 and 8 frames, motion over both, and the place."""
    return Detector.fit(footage, QUICK.per_view(("pose", "motion", "place"), 25.0))


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
    several: Detector, footage: list[Clip]
) -> None:
    clip = moved(footage[0], faster=2.0)
    windows = several.score(clip).windows
    rows = [0, 3, 17, 40, int(windows.A.argmax())]  # the first windows have short views alone
    places = [(int(windows.track_id[row]), int(windows.frame[row])) for row in rows]
    explained = explain(several, clip, places)
    for row, one in zip(rows, explained, strict=True):
        assert one.score == pytest.approx(windows.A[row], rel=1e-5, abs=1e-4)
        meanings = sum(one.meanings.values())
        total = one.base + one.contributions.sum() + meanings
        assert total == pytest.approx(one.score, abs=1e-4)
        assert sum(view.contribution for view in one.views) == pytest.approx(one.score, abs=1e-4)
        assert one.base == pytest.approx(sum(view.base for view in one.views), abs=1e-4)
        parts = sum(part.contribution for part in one.parts)
        assert parts + one.base == pytest.approx(one.score, abs=1e-4)
        assert sum(one.shares.values()) == pytest.approx(1)
        assert [*one.shares] == ["pose", "motion", "place"]
    young, old = explained[0], explained[3]
    assert [view.at_hand for view in young.views] == [False, True, False, False, False]
    assert all(view.at_hand for view in old.views)
    assert (len(young.frames), len(old.frames)) == (8, 25)
    assert max(np.abs(one.contributions).sum() for one in explained) > 0.1
    assert max(sum(one.meanings.values()) for one in explained) > 0.1


def test_the_base_is_what_the_nearest_normal_windows_would_score(
    several: Detector, footage: list[Clip]
) -> None:
    clip = moved(footage[0], faster=2.0)
    index = cut(clip, several.view_settings, several.skeleton)[0]
    rows = np.array([0, 60])
    windows = index.windows(rows)
    places = [(int(windows.track_id[n]), int(windows.frame[n])) for n in range(2)]
    below = []
    for view, alone in zip(windows.views, several.views, strict=True):
        part = replace(several, views=(alone,))
        space = part.model.space
        normal = ghosts.nearest_normal(part, space.project(view.windows.x))
        weight = view.windows.weight(part.config)
        below.append(attribute(part, view.windows.x, weight, normal).base)
    expected = several.contributions(windows, below)
    young, old = explain(several, clip, places)
    for row, one in zip(expected, (young, old), strict=True):
        np.testing.assert_allclose([view.base for view in one.views], row, atol=1e-3)
    assert old.score > 1.5 * old.base  # so that the joints and meanings have a share


def test_footage_of_another_rate_is_explained_over_its_own_frames(
    several: Detector, footage: list[Clip]
) -> None:
    clip = replace(moved(footage[0], faster=2.0), fps=60.0)
    windows = several.score(clip).windows
    row = len(windows) - 1
    one = at(several, clip, row)
    assert one.score == pytest.approx(windows.A[row], rel=1e-5, abs=1e-4)
    assert one.frames[[0, -1]].tolist() == [windows.frame[row] - 58, windows.frame[row]]
    assert [view.at_hand for view in one.views] == [True] * 5
    look = explain_peak(several, clip, one.track, int(one.frames[-1]), calm=0.0)
    assert len(look.windows) == 2  # the peak's and the one before it


def test_contributions_sum_to_the_score(several: Detector, footage: list[Clip]) -> None:
    windows = cut(footage[1], several.view_settings, several.skeleton)[0].windows(slice(None))
    added = several.contributions(windows)
    assert added.shape == (len(windows), 5)
    A = several.score_windows(windows).A
    np.testing.assert_allclose(added.sum(axis=1), A, rtol=1e-5, atol=1e-6)
    calm = [np.full(len(view.rows), -100.0) for view in windows.views]
    assert (several.contributions(windows, calm)[len(windows) // 2] == 0).all()


def test_who_is_too_fast_is_said_to_be_faster_than_anybody(
    several: Detector, footage: list[Clip]
) -> None:
    clip = moved(footage[0], faster=8.0)
    found = at(several, clip, 60)
    (row,) = (n for n, view in enumerate(found.views) if view.name == "motion over 25 frames")
    assert found.views[row].share > 0.1
    (words,) = (one for one in found.findings if one.subject == "speed")
    assert words.says.startswith("person crosses the picture ")
    assert words.says.endswith("x as fast as anybody before")
    assert found.meanings["speed"] == max(found.meanings.values())
    assert not any(one.speed for one in found.findings if one.subject == "whole body")


def test_who_is_elsewhere_or_too_large_is_said_to_be(
    several: Detector, footage: list[Clip]
) -> None:
    away = at(several, moved(footage[0], by=-2000.0), 60)
    assert away.shares["place"] > 0.5
    assert away.words[0].startswith("person is where nobody was before, frames ")
    large = at(several, moved(footage[0], larger=3.0), 60)
    says = [finding.says for finding in large.findings if finding.subject == "size"]
    assert says
    assert says[0].endswith("x as large as people are there")


def test_a_pose_that_is_unusual_is_told_as_before(several: Detector, footage: list[Clip]) -> None:
    clip = moved(footage[0])
    (track,) = clip.tracks
    turned = track.keypoints.copy()
    middle = turned.mean(axis=1, keepdims=True)
    turned = middle + (turned - middle)[..., ::-1]  # upright becomes lying
    lying = replace(clip, tracks=(Track(track.id, track.frames, turned, track.confidence),))
    found = at(several, lying, 60)
    assert found.shares["pose"] > 0.15
    assert any(words.startswith("whole body lying") for words in found.words)
    assert not any(finding.subject == "width" for finding in found.findings)  # who lies is wide


def test_an_event_and_its_json_show_shares(several: Detector, footage: list[Clip]) -> None:
    clip = moved(footage[0], faster=8.0)
    windows = several.score(clip).windows
    track, frame = int(windows.track_id[0]), int(windows.frame[60])
    look = explain_peak(several, clip, track, frame, calm=0.0)
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


def test_around_a_young_peak_windows_still_touch(several: Detector, footage: list[Clip]) -> None:
    clip = moved(footage[0])
    windows = several.score(clip).windows
    for row in (0, 20):
        look = explain_peak(
            several, clip, int(windows.track_id[0]), int(windows.frame[row]), calm=0.0
        )
        frames = np.concatenate([window.frames for window in look.windows])
        assert (np.diff(frames) == 1).all()
        assert look.peak.frames[-1] == windows.frame[row]


def test_one_view_of_motion_cannot_be_explained(footage: list[Clip]) -> None:
    motion = Detector.fit(footage[:2], replace(QUICK, view="motion", max_steps=4))
    with pytest.raises(ConfigError, match="explain: expected a model of one view, the pose"):
        explain(motion, footage[0])
