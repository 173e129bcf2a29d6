"""The whitened space of principal components π(x) (Sec. 3.2, Eq. 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError

RANK_TOLERANCE = 1e-9
"""An eigenvalue below this fraction of the largest is rounding noise, not motion."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Count, mean `(D,)` and covariance `(D, D)` of vectors seen in batches, in float64."""

    n: int
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @classmethod
    def measure(cls, batches: Iterable[NDArray[np.float32]], D: int) -> Moments:
        """One pass over batches `(n, D)`; each is centred on its own mean, so sums stay small."""
        n = 0
        mean, scatter = np.zeros(D), np.zeros((D, D))
        for batch in batches:
            rows = batch.astype(np.float64)
            batch_mean = rows.mean(axis=0)
            rows -= batch_mean
            # moments of both parts about their common mean
            shift = batch_mean - mean
            total = n + len(rows)
            scatter += rows.T @ rows + np.outer(shift, shift) * (n * len(rows) / total)
            mean = mean + shift * (len(rows) / total)
            n = total
        return cls(n, mean, scatter / max(n, 1))


@dataclass(frozen=True, slots=True, eq=False)
class PCSpace:
    """Mean `mu (D,)`, top-K components `W_K (D, K)`, their eigenvalues `Lambda_K (K,)`; D = 2VT."""

    mu: NDArray[np.float32]
    W_K: NDArray[np.float32]
    Lambda_K: NDArray[np.float32]
    whitening: float = 1.0
    """How much of the whitening is done, from none to all of it; see `Reference.whitening`."""
    scale: NDArray[np.float32] = field(init=False)
    """Λ_K^(1/2), `(K,)`: the divisor of each component; ones without whitening.

    Between the two, powers of Λ_K, such that the mean square of π(x) stays 1.
    """

    def __post_init__(self) -> None:
        """Take the roots once, not for every window."""
        scale = np.sqrt(self.Lambda_K) if self.whitening else np.ones_like(self.Lambda_K)
        if 0 < self.whitening < 1:
            left = np.sqrt(np.mean(self.Lambda_K ** (1 - self.whitening)))
            scale = np.asarray(self.Lambda_K ** (self.whitening / 2) * left, dtype=np.float32)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def fit(cls, moments: Moments, K: int | None, *, whitening: float = 1.0) -> PCSpace:
        """The K directions along which the training windows vary most; None keeps all of them."""
        # directions (D, D) by falling variance; rounding noise has no direction
        eigenvalues, eigenvectors = np.linalg.eigh(moments.covariance)
        Lambda, W = eigenvalues[::-1], eigenvectors[:, ::-1]
        rank = int((Lambda > RANK_TOLERANCE * Lambda[0]).sum()) if Lambda[0] > 0 else 0
        if K is not None and rank < K:
            raise DataError(
                f"K: expected at most {rank}, the rank of {moments.n} windows of "
                f"{len(moments.mean)} numbers, got {K}",
                hint="choose a smaller K or fit on more footage",
            )
        kept = rank if K is None else K
        largest = np.abs(W).argmax(axis=0)
        W = W * np.sign(W[largest, np.arange(W.shape[1])])  # a fixed sign per component
        return cls(
            moments.mean.astype(np.float32),
            np.ascontiguousarray(W[:, :kept], dtype=np.float32),
            Lambda[:kept].astype(np.float32),
            whitening,
        )

    @classmethod
    def identity(cls, D: int) -> PCSpace:
        """Raw coordinates: π(x) = x."""
        ones = np.ones(D, dtype=np.float32)
        return cls(np.zeros_like(ones), np.diag(ones), ones)

    @classmethod
    def unit_spread(cls, moments: Moments) -> PCSpace:
        """The numbers themselves, each divided by its deviation."""
        variance = np.maximum(moments.covariance.diagonal(), np.finfo(np.float32).eps)
        return cls(
            moments.mean.astype(np.float32),
            np.eye(len(moments.mean), dtype=np.float32),
            variance.astype(np.float32),
        )

    def project(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """π(x) = Λ_K^(-1/2) W_Kᵀ (x - μ) (Eq. 6): windows `(N, 2, V, T)` to `(N, K)`."""
        pi_x = (x.reshape(len(x), len(self.mu)) - self.mu) @ self.W_K / self.scale
        return pi_x.astype(np.float32, copy=False)

    def reconstruct(
        self, pi_x: NDArray[np.float32], shape: tuple[int, int, int]
    ) -> NDArray[np.float32]:
        """μ + W_K Λ_K^(1/2) π(x): points `(N, K)` back to windows of `shape` (2, V, T)."""
        x = self.mu + (pi_x * self.scale) @ self.W_K.T
        return x.reshape(-1, *shape).astype(np.float32, copy=False)
