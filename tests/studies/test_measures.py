"""Measures of the studies: events found by a score, and mixtures of Gaussians."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from stepvad.events.calibration import RULES
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import WindowScores
from studies.measures.event_recall import ALARMED, WatchedClip, recall, thresholds_at
from studies.measures.mixture import RIDGE, Mixture

FPS = 10.0
N = 6000
"""Ten minutes."""


def clip(*peaks: tuple[int, float], abnormal: tuple[tuple[int, int], ...] = ()) -> WatchedClip:
    """Scores below 0.1, and for a second from each frame on those of a peak."""
    A = np.random.default_rng(0).uniform(0.0, 0.1, N).astype(np.float32)
    for first, score in peaks:
        A[first : first + 10] = score
    truth = np.zeros(N, np.bool_)
    for first, end in abnormal:
        truth[first:end] = True
    ones = np.ones(N, np.float32)
    windows = WindowScores(
        np.ones(N, np.int64), np.arange(N), ones, np.empty((N, 0), np.float32), A
    )
    return WatchedClip(windows, FrameLabels.all_counted(truth), FPS)


NORMAL = clip((1000, 9.0), (2000, 8.0), (3000, 7.0), (4000, 6.0))
"""Ten minutes with four peaks: 6 an hour are one of them, 18 an hour three, 1 an hour none."""


def test_a_rate_allows_as_many_false_alarms_as_it_says() -> None:
    none, one, three = thresholds_at([NORMAL], (1.0, 6.0, 18.0))
    assert none > 9.0
    assert one == pytest.approx(8.0)
    assert three == pytest.approx(6.0)
    assert [NORMAL.false_alarms(replace(RULES, threshold=t)) for t in (none, one, three)] == [
        *(0, 1, 3)
    ]


def test_twice_the_footage_allows_twice_as_many() -> None:
    quiet = clip()
    (at,) = thresholds_at([NORMAL, quiet], (6.0,))
    assert at == pytest.approx(7.0)


def test_events_are_found_where_an_alert_overlaps() -> None:
    test = clip(
        *((500, 9.5), (1500, 8.5), (2500, 6.5), (3500, 9.5), (4500, 9.5)),
        abnormal=((505, 520), (1400, 1501), (2500, 2510), (3510, 3520), (4490, 4500)),
    )  # the fourth begins when its alert is over, the fifth is over when its alert begins
    thresholds = thresholds_at([NORMAL], (1.0, 6.0, 18.0))
    assert [recall([test], t) for t in thresholds] == [0.2, 0.4, 0.6]


def test_classes_and_uncounted_frames() -> None:
    made = clip((500, 9.5), abnormal=((500, 510), (900, 910)))
    fall, run = (np.zeros(N, np.bool_) for _ in range(2))
    fall[500:510] = run[900:910] = True
    labels = replace(made.labels, classes={"fall": fall, "run": run})
    both = replace(made, labels=labels)
    assert [recall([both], 9.0, name) for name in ("", "fall", "run")] == [0.5, 1.0, 0.0]
    assert np.isnan(recall([both], 9.0, "fight"))
    part = replace(both, labels=replace(labels, counted=np.arange(N) < 800))
    assert recall([part], 9.0) == 1.0
    assert part.normal_hours == pytest.approx(790 / 36_000)


def test_on_test_clips_alerts_on_anomalies_are_not_false() -> None:
    own = clip((500, 9.5), (1500, 8.5), abnormal=((505, 520),))
    assert own.false_alarms(replace(RULES, threshold=8.0)) == 1
    none, one = thresholds_at([own], (1.0, 6.1))  # one alarm in ten minutes less the anomaly
    assert 8.5 < none < 9.0
    assert one <= 8.5
    (within,) = thresholds_at([own], (5.9,))
    assert within == none


def test_no_threshold_is_so_low_that_an_alarm_never_ends() -> None:
    (at,) = thresholds_at([NORMAL], (1000.0,))
    assert (at <= NORMAL.windows.A).mean() <= ALARMED
    half = replace(NORMAL.windows, A=np.where(NORMAL.windows.A > 1, 9, 2).astype(np.float32))
    (at,) = thresholds_at([replace(NORMAL, windows=half)], (1000.0,))
    assert at == pytest.approx(2.0)
    assert at > 2.0  # which is the score of nearly all


def test_scores_that_are_never_positive_find_nothing() -> None:
    low = clip((10, -1.0))
    low = replace(low, windows=replace(low.windows, A=low.windows.A - 5))
    assert recall([clip((10, 1.0), abnormal=((10, 20),))], thresholds_at([low], (1.0,))[0]) == 1.0
    nobody = replace(low, windows=low.windows.part(slice(0, 0)))
    assert thresholds_at([nobody], (1.0,))[0] > 0


SHARES = (0.7, 0.3)
MEANS = (np.array([-2.0, 0.0]), np.array([2.0, 1.0]))
COVARIANCES = (np.array([[1.0, 0.6], [0.6, 0.5]]), np.array([[0.2, -0.1], [-0.1, 0.8]]))


def drawn(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = rng.random(n) < SHARES[0]
    one, two = (rng.multivariate_normal(m, C, n) for m, C in zip(MEANS, COVARIANCES, strict=True))
    return np.where(kind[:, None], one, two).astype(np.float32)


def energies_of_the_truth(x: np.ndarray) -> np.ndarray:
    parts = zip(SHARES, MEANS, COVARIANCES, strict=True)
    return -np.log(sum(w * multivariate_normal(m, C).pdf(x) for w, m, C in parts))


@pytest.mark.parametrize("seed", range(3))
def test_a_known_mixture_is_found(seed: int) -> None:
    mixture = Mixture.fit(drawn(20_000, 1), 2, seed=seed)
    order = np.argsort(mixture.mean[:, 0])
    np.testing.assert_allclose(mixture.share[order], SHARES, atol=0.02)
    np.testing.assert_allclose(mixture.mean[order], MEANS, atol=0.05)
    precision = np.linalg.inv(np.stack(COVARIANCES) + RIDGE * np.eye(2))
    found = mixture.W @ mixture.W.transpose(0, 2, 1)
    np.testing.assert_allclose(found[order], precision, rtol=0.08, atol=0.1)


def test_energies_are_minus_the_log_density() -> None:
    new = drawn(2_000, 2)
    energies = Mixture.fit(drawn(20_000, 1), 2).energies(new)
    np.testing.assert_allclose(energies, energies_of_the_truth(new), atol=0.15)
    assert energies.mean() == pytest.approx(energies_of_the_truth(new).mean(), abs=0.01)


def test_one_gaussian_is_the_sample_mean_and_covariance() -> None:
    x = drawn(500, 3)
    mixture = Mixture.fit(x, 1)
    covariance = np.cov(x.T.astype(np.float64), bias=True) + RIDGE * np.eye(2)
    expected = -multivariate_normal(x.mean(axis=0), covariance).logpdf(x)
    np.testing.assert_allclose(mixture.energies(x), expected, rtol=1e-4)


def test_it_fits_as_well_as_another_implementation() -> None:
    x, new = drawn(5_000, 1), drawn(5_000, 2)
    theirs = GaussianMixture(4, random_state=0, reg_covar=RIDGE).fit(x)
    assert Mixture.fit(x, 4).energies(new).mean() < -theirs.score(new) + 0.01


def test_points_that_are_all_the_same_do_no_harm() -> None:
    energies = Mixture.fit(np.ones((50, 3), np.float32), 3).energies(np.eye(3, dtype=np.float32))
    assert np.isfinite(energies).all()
