"""A non-linear projection in place of PCA, for scoring (Supp., PCA vs. Autoencoders)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """W_2 ReLU(W_1 x + b_1) + b_2, with `W_1 (H, D)` and `W_2 (K, H)`; D = 2VT."""

    W_1: NDArray[np.float32]
    b_1: NDArray[np.float32]
    W_2: NDArray[np.float32]
    b_2: NDArray[np.float32]

    def project(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The latents π(x): windows `(N, 2, V, T)` to `(N, K)`."""
        hidden = np.maximum(x.reshape(len(x), self.W_1.shape[1]) @ self.W_1.T + self.b_1, 0)
        return (hidden @ self.W_2.T + self.b_2).astype(np.float32, copy=False)

    def then(self, W: NDArray[np.float32], mu: NDArray[np.float32]) -> Encoder:
        """Replace latents z by (z - μ) W, with `W (K, K)`: folds whitening into the encoder."""
        b_2 = ((self.b_2 - mu) @ W).astype(np.float32, copy=False)
        return Encoder(self.W_1, self.b_1, W.T @ self.W_2, b_2)
