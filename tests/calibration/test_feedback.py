"""False alerts that somebody marks, and what thresholds and training make of them."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.calibration import RULES, Counted, Marked, from_counts
from stepvad.calibration.feedback import cut_out, repeated, with_marked
from stepvad.incidents.events import Event
from stepvad.poses import Clip, Track

LEVELS = np.geomspace(1.0, 4.0, 50)


def counted(hours: float = 100.0, seed: int = 0) -> Counted:
    """Exponential peaks in blocks of an hour."""
    rng = np.random.default_rng(seed)
    blocks = [rng.exponential(0.3, rng.poisson(3)) + 1 for _ in range(round(hours))]
    events = np.array([[(block >= level).sum() for level in LEVELS] for block in blocks])
    return Counted(LEVELS, events, np.ones(len(blocks)))


def threshold(marked: dict[str, Marked], **cameras: Counted) -> float:
    found = from_counts(
        cameras or {"door": counted()},
        model_sha256="",
        alerts_per_hour=0.1,
        confidence=0.95,
        rules=RULES,
        marked=marked,
    )
    return found.threshold.value


def alerts(n: int, peak: float, camera: str = "door") -> dict[str, Marked]:
    return {f"e{number}": Marked(camera=camera, peak=peak) for number in range(n)}


def test_thresholds_rise_with_what_is_marked_and_never_fall() -> None:
    without = threshold({})
    values = [threshold(alerts(n, 3.5)) for n in (1, 4, 12)]
    assert without <= values[0] < values[1] < values[2]
    assert values[2] > 3.5  # so many may not alert again


def test_alerts_below_the_threshold_change_little() -> None:
    assert threshold(alerts(3, 1.05)) == pytest.approx(threshold({}), rel=0.05)


def test_an_alert_is_one_more_event_up_to_its_peak_even_beyond_all_levels() -> None:
    before = counted()
    after = with_marked({"door": before}, alerts(2, 9.0))["door"]
    assert after.levels[-1] == pytest.approx(9.0)
    assert np.array_equal(after.levels[: len(LEVELS)], LEVELS)
    assert (after.totals[: len(LEVELS)] == before.totals + 2).all()
    assert (after.totals[len(LEVELS) :] == 2).all()
    assert after.total_hours == before.total_hours


def test_an_alert_counts_for_its_camera_and_an_unknown_one_for_somebody() -> None:
    both = {"door": counted(), "hall": counted(seed=1)}
    after = with_marked(both, alerts(3, 3.0, "hall"))
    assert (after["door"].events == both["door"].events).all()
    assert after["hall"].totals[0] == both["hall"].totals[0] + 3
    after = with_marked(both, alerts(4, 3.0, ""))
    assert [after[name].totals[0] - both[name].totals[0] for name in both] == [2, 2]


def clip() -> Clip:
    def track(id: int, first: int, n: int) -> Track:
        frames = np.arange(first, first + n)
        keypoints = np.zeros((n, 17, 2), np.float32) + frames[:, None, None]
        return Track(id, frames, keypoints, np.ones((n, 17), np.float32))

    return Clip("a", 10.0, 200, (track(1, 0, 150), track(2, 50, 100), track(3, 0, 200)))


def test_the_poses_of_an_event_are_those_of_its_windows() -> None:
    event = Event(first_s=6.0, last_s=9.0, tracks=(2, 1), peak=3, peak_s=7, peak_track=2)
    cut = cut_out(clip(), event, 10.0, 12)
    assert [track.id for track in cut.tracks] == [1, 2]
    first, second = cut.tracks
    assert (first.frames[0], first.frames[-1]) == (49, 90)
    assert (second.frames[0], second.frames[-1]) == (50, 90)
    assert second.keypoints[0, 0, 0] == 50
    assert cut.n_frames == 91


def test_marked_clips_are_repeated_to_a_share_of_the_training() -> None:
    event = Event(first_s=2.0, last_s=6.1, tracks=(1,), peak=3, peak_s=3, peak_track=1)
    cut = cut_out(clip(), event, 10.0, 12)  # 42 windows
    again = list(repeated([cut], 8400, 12, share=0.05))
    assert len(again) == 10
    assert len({one.name for one in again}) == 10
    assert len(list(repeated([cut], 10, 12))) == 1
