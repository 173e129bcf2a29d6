"""A mixture finds the Gaussians that its points were drawn from, and their density."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from studies.measures.mixture import RIDGE, Mixture

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
