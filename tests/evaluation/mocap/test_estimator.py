"""The simulated estimator is as confident, as unsteady and as forgetful as a real one."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.evaluation.mocap import estimator
from stepvad.evaluation.mocap.identities import Detections, identify


def scores(
    hidden: bool, seed: int = 0, n: int = 400
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    return estimator.confidence(
        rng, np.full((n, 17), hidden), np.full(n, estimator.SMALL_PX), fps=15.0
    )


def test_hidden_joints_are_less_confident() -> None:
    seen = np.mean([scores(False, seed).mean() for seed in range(20)])
    hidden = np.mean([scores(True, seed).mean() for seed in range(20)])
    assert seen - hidden > 0.2


def test_people_far_away_are_less_confident() -> None:
    rng = np.random.default_rng
    hidden = np.zeros((50, 17), dtype=np.bool_)
    near = estimator.confidence(rng(0), hidden, np.full(50, 400.0), fps=15.0)
    far = estimator.confidence(rng(0), hidden, np.full(50, 100.0), fps=15.0)
    assert (near >= far).all()
    assert near.mean() - far.mean() > 0.1


def test_confidence_changes_little_from_frame_to_frame() -> None:
    tracks = [scores(False, seed) for seed in range(40)]
    now = np.concatenate([c[:-1].ravel() for c in tracks])
    later = np.concatenate([c[1:].ravel() for c in tracks])
    assert np.corrcoef(now, later)[0, 1] == pytest.approx(0.936, abs=0.03)  # PoseLift's


def test_keypoints_err_by_their_lack_of_confidence() -> None:
    rng = np.random.default_rng(0)
    height = np.full(4000, 200.0)
    for confidence in (0.1, 0.5, 0.9):
        off = estimator.jitter(rng, np.full((4000, 17), confidence), height, fps=25.0)
        spread = estimator.JITTER_FLOOR + estimator.JITTER * (1 - confidence) ** 3
        assert off.std() == pytest.approx(200 * spread, rel=0.05)


def test_unsure_poses_are_missed_and_sure_ones_seldom() -> None:
    rng = np.random.default_rng(0)
    assert estimator.missed(rng, np.full((100, 17), 0.1), fps=25.0).all()
    lost = estimator.missed(rng, np.full((50_000, 17), 0.8), fps=25.0)
    expected = estimator.GAP_RATE_S * (estimator.GAP_S + 1 / 25)
    assert lost.mean() == pytest.approx(expected, rel=0.4)


def walker(first: int, n: int, x0: float, speed: float) -> Detections:
    keypoints = np.zeros((n, 17, 2))
    keypoints[..., 0] = (x0 + speed * np.arange(n))[:, None]
    keypoints[..., 1] = np.linspace(100, 300, 17)
    return Detections(first + np.arange(n), keypoints, np.full((n, 17), 0.9))


def test_people_who_stay_apart_keep_their_ids() -> None:
    found = [walker(0, 100, 100.0, 1.0), walker(20, 60, 900.0, 1.0)]
    tracks = identify(np.random.default_rng(0), found, 100, fps=25.0)
    assert [(t.id, len(t)) for t in tracks] == [(1, 100), (2, 60)]


def test_ids_are_swapped_when_people_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepvad.evaluation.mocap.identities.SWAP", 1.0)
    found = [walker(0, 100, 0.0, 10.0), walker(0, 100, 990.0, -10.0)]
    one, other = identify(np.random.default_rng(0), found, 100, fps=25.0)
    assert one.keypoints[0, 0, 0] == 0.0
    assert one.keypoints[-1, 0, 0] == 0.0  # it went on as the other, who came back here
    assert len(one) == len(other) == 100


def test_a_long_gap_may_cost_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepvad.evaluation.mocap.identities.FORGET", 1.0)
    person = walker(0, 100, 0.0, 1.0)
    kept = np.r_[0:40, 60:100]
    gone = Detections(person.frames[kept], person.keypoints[kept], person.confidence[kept])
    tracks = identify(np.random.default_rng(0), [gone], 100, fps=25.0)
    assert [t.frames[0] for t in tracks] == [0, 60]


def test_nobody_gives_no_tracks() -> None:
    assert identify(np.random.default_rng(0), [], 100, fps=25.0) == ()
