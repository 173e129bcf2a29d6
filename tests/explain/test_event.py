from __future__ import annotations

import json

import numpy as np
import pytest

from stepvad.codec import to_plain
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.explain.event import ExplainedPeak, explain_peak
from stepvad.poses import Clip


@pytest.fixture(scope="module")
def peak(detector: Detector, odd_clip: Clip) -> tuple[int, int, float]:
    """Track, last frame and score of the strangest window."""
    windows = detector.score(odd_clip).windows
    at = int(np.argmax(windows.A))
    return int(windows.track_id[at]), int(windows.frame[at]), float(windows.A[at])


@pytest.fixture(scope="module")
def look(detector: Detector, odd_clip: Clip, peak: tuple[int, int, float]) -> ExplainedPeak:
    track, frame, score = peak
    return explain_peak(detector, odd_clip, track, frame, calm=0.5 * score)


def test_the_peak_has_the_score_that_the_clip_has_there(
    look: ExplainedPeak, peak: tuple[int, int, float]
) -> None:
    track, frame, score = peak
    assert (look.peak.track, int(look.peak.frames[-1])) == (track, frame)
    assert look.peak.score == pytest.approx(score, abs=1e-4)


def test_windows_lie_side_by_side(look: ExplainedPeak) -> None:
    frames = np.concatenate([window.frames for window in look.windows])
    assert (np.diff(frames) == 1).all()


def test_poses_far_from_the_peak_change_nothing(
    detector: Detector, odd_clip: Clip, look: ExplainedPeak, peak: tuple[int, int, float]
) -> None:
    track, frame, score = peak
    T = detector.config.T
    near = Clip(
        odd_clip.name,
        odd_clip.fps,
        odd_clip.n_frames,
        tuple(
            type(one)(one.id, one.frames[kept], one.keypoints[kept], one.confidence[kept])
            for one in odd_clip.tracks
            if one.id == track
            for kept in [np.abs(one.frames - frame) <= 3 * T]
        ),
        odd_clip.skeleton,
    )
    again = explain_peak(detector, near, track, frame, calm=0.5 * score)
    assert again.explanation(25.0) == look.explanation(25.0)


def test_it_is_plain_json_with_words_parts_and_motion(look: ExplainedPeak) -> None:
    made = look.explanation(25.0)
    told = json.loads(json.dumps(to_plain(made), allow_nan=False))
    assert told["words"][0]["says"] == look.findings[0].says
    assert made.summary.startswith(look.findings[0].says)
    assert sum(part["share"] for part in told["parts"]) == pytest.approx(1.0, abs=0.01)
    motion = told["motion"]
    assert len(motion["observed"]) == len(motion["ghost"]) == len(motion["heat"])
    assert motion["first"] + motion["peak"] == told["frame"]


def test_a_moment_without_a_window_is_refused(
    detector: Detector, odd_clip: Clip, peak: tuple[int, int, float]
) -> None:
    with pytest.raises(DataError, match="expected a window that ends in frame 2"):
        explain_peak(detector, odd_clip, peak[0], 2, calm=1.0)
