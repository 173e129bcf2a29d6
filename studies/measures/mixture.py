"""Gaussian mixtures with full covariances, fitted by expectation maximisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

ITERATIONS = 100
LEAST_GAIN = 1e-3
"""EM stops when the mean log likelihood grows by less."""
RIDGE = 1e-3
"""Added to the variances, which are about 1 in a whitened space."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """M Gaussians: `share (M,)`, `mean (M, K)` and `W (M, K, K)`, with W Wᵀ the precision."""

    share: NDArray[np.float64]
    mean: NDArray[np.float64]
    W: NDArray[np.float64]

    @classmethod
    def fit(cls, points: NDArray[np.float32], n: int, *, seed: int = 0) -> Mixture:
        """Fit n Gaussians to points `(N, K)`."""
        x = points.astype(np.float64)
        near = np.square(x[:, None] - _spread_out(x, n, seed)).sum(axis=2).argmin(axis=1)
        mixture, before = cls._of(x, np.eye(n)[near]), -np.inf
        for _ in range(ITERATIONS):
            joint = mixture._log_joint(x)
            total = logsumexp(joint, axis=1)
            mixture = cls._of(x, np.exp(joint - total[:, None]))
            if total.mean() - before < LEAST_GAIN:
                break
            before = total.mean()
        return mixture

    @classmethod
    def _of(cls, x: NDArray[np.float64], r: NDArray[np.float64]) -> Mixture:
        """The Gaussians of points with responsibilities `r (N, M)`: the M-step."""
        n = r.sum(axis=0) + np.finfo(np.float64).tiny
        mean = (r.T @ x) / n[:, None]
        apart = [x - one for one in mean]
        covariance = [(r[:, m, None] * d).T @ d / n[m] for m, d in enumerate(apart)]
        root = np.linalg.cholesky(np.stack(covariance) + RIDGE * np.eye(x.shape[1]))
        return cls(n / len(x), mean, np.linalg.inv(root).transpose(0, 2, 1))

    def _log_joint(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithm of share times density of each Gaussian at each point, `(N, M)`."""
        squares = [
            np.square((x - m) @ W).sum(axis=1) for m, W in zip(self.mean, self.W, strict=True)
        ]
        log_det = np.log(np.diagonal(self.W, axis1=1, axis2=2)).sum(axis=1)
        constant = np.log(self.share) + log_det - x.shape[1] / 2 * np.log(2 * np.pi)
        return np.asarray(constant - np.stack(squares, axis=1) / 2)

    def energies(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """-log p of points, `(N,)`."""
        joint = self._log_joint(points.astype(np.float64))
        return np.asarray(-logsumexp(joint, axis=1), dtype=np.float32)


def _spread_out(x: NDArray[np.float64], n: int, seed: int) -> NDArray[np.float64]:
    """Choose n of the points, each drawn by its squared distance to those before (k-means++)."""
    rng = np.random.default_rng(seed)
    chosen = [x[rng.integers(len(x))]]
    while len(chosen) < n:
        apart = np.min([np.square(x - one).sum(axis=1) for one in chosen], axis=0)
        share = apart / apart.sum() if apart.any() else None
        chosen.append(x[rng.choice(len(x), p=share)])
    return np.stack(chosen)
