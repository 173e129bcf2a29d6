"""The estimators of scikit-learn keep its contract and give the method's scores."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from stepvad import Clip
from stepvad.sklearn import MotionWindows, StepDetector

SMALL = {"n_components": 4, "width": 16, "max_steps": 4}
EXPECTED = {
    "check_methods_subset_invariance": "products of float32 matrices round by the size of a batch",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of checks that are skipped
def test_the_estimator_passes_the_checks_of_scikit_learn() -> None:
    results = check_estimator(
        StepDetector(**SMALL),
        expected_failed_checks=EXPECTED,
    )
    found = {status: {one["check_name"] for one in results if one["status"] == status}
             for status in ("passed", "xfail")}  # fmt: skip
    assert len(found["passed"]) > 35
    assert found["xfail"] <= {*EXPECTED}


def blob(n: int, seed: int = 0) -> NDArray[np.float64]:
    """Points on a ring: its middle is as abnormal as what is far away."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.normal(3, 0.1, (n, 1))


@pytest.mark.slow
def test_the_middle_of_a_ring_and_the_space_around_it_are_abnormal() -> None:
    detector = StepDetector(width=32, max_steps=300, learning_rate=2e-3, contamination=0.05).fit(
        blob(500)
    )
    normal, odd = blob(200, 1), np.concatenate([np.zeros((50, 2)), 2 * blob(50, 2)])
    scores = detector.score_samples(np.concatenate([normal, odd]))
    assert roc_auc_score([1] * 200 + [0] * 100, scores) > 0.95
    assert (detector.predict(odd) == -1).mean() > 0.9
    assert (detector.predict(normal) == 1).mean() > 0.8
    np.testing.assert_allclose(
        detector.decision_function(odd), detector.score_samples(odd) - detector.offset_
    )


def test_an_estimator_can_be_cloned_and_pickled() -> None:
    detector = StepDetector(**SMALL).fit(blob(50))
    again = pickle.loads(pickle.dumps(detector))
    np.testing.assert_array_equal(again.score_samples(blob(9)), detector.score_samples(blob(9)))
    same = clone(detector).fit(blob(50))
    np.testing.assert_array_equal(same.score_samples(blob(9)), detector.score_samples(blob(9)))
    other = clone(detector).set_params(random_state=1).fit(blob(50))
    assert not np.array_equal(other.score_samples(blob(9)), detector.score_samples(blob(9)))


def test_rows_that_do_not_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="expected rows that differ, got n_samples = 5 alike"):
        StepDetector().fit(np.ones((5, 3)))


def test_clips_go_through_a_pipeline(walkers: list[Clip]) -> None:
    pipeline = make_pipeline(MotionWindows(T=12), StepDetector(**SMALL))
    scores = pipeline.fit(walkers).score_samples(walkers)
    X = pipeline[0].transform(walkers)
    assert X.shape == (len(scores), 2 * 18 * 12)
    assert len(X) >= sum(len(track) - 11 for clip in walkers for track in clip.tracks)
    np.testing.assert_array_equal(
        pipeline[0].transform(walkers[:1]), X[: len(X) - len(pipeline[0].transform(walkers[1:]))]
    )
    np.testing.assert_allclose(X.reshape(len(X), 2, -1).mean(axis=2), 0, atol=1e-5)
    assert pipeline[0].transform([]).shape == (0, 2 * 18 * 12)
    with pytest.raises(NotFittedError):
        MotionWindows().transform(walkers)


def test_windows_of_clips_serve_other_estimators(walkers: list[Clip]) -> None:
    pipeline = make_pipeline(MotionWindows(), PCA(5), IsolationForest(n_estimators=5))
    assert {*pipeline.fit(walkers).predict(walkers)} == {-1, 1}
