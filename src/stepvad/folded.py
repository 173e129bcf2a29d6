"""The energy model for scoring, in numpy: σ is known, so its branches are constants (Fig. 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from stepvad.config import Config

LAYER_NORM_EPSILON = 1e-5
"""What LayerNorm adds to the variance."""
ROWS = 256
"""Windows computed at once: their hidden states at ten scales fit the cache of a small machine."""

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """f_θ(·, σ_i) for all L scales at once.

    No activation stands between the input layer and block 1, so both are one product with π(x).
    """

    W_z: NDArray[np.float32]
    """Input layer, its columns for π(x), `(width, K)`."""
    h_sigma: NDArray[np.float32]
    """Input layer, its part from σ and bias, `(L, width)`."""
    W_1z: NDArray[np.float32]
    """Block 1's linear map after the input layer, `(width, K)`."""
    a_sigma: NDArray[np.float32]
    """The same, its part from σ and biases, `(L, width)`."""
    W: NDArray[np.float32]
    """Linear maps of the blocks after the first, `(blocks - 1, width, width)`."""
    b: NDArray[np.float32]
    """Their biases, `(blocks - 1, width)`."""
    modulation: NDArray[np.float32] | None
    """LayerNorm(W₂ GELU(W₁ σ)) · α(σ) of every block, `(blocks, L, width)`; None: a plain MLP."""
    head: NDArray[np.float32]
    """Head weights `(width,)`."""
    head_bias: np.float32

    def energies(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`, from π(x) `(N, K)`."""
        parts = [self._energies(pi_x[i : i + ROWS]) for i in range(0, len(pi_x), ROWS)]
        return np.concatenate([np.empty((0, len(self.h_sigma)), np.float32), *parts])

    def _energies(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        h = (pi_x @ self.W_z.T)[:, None] + self.h_sigma  # (N, L, width)
        a = (pi_x @ self.W_1z.T)[:, None] + self.a_sigma
        h = self._block(0, h, a)
        for i, (W, b) in enumerate(zip(self.W, self.b, strict=True), start=1):
            a = (_rows(h) @ W.T).reshape(h.shape) + b
            h = self._block(i, h, a)
        return (
            (_rows(h) @ self.head + self.head_bias)
            .reshape(h.shape[:2])
            .astype(np.float32, copy=False)
        )

    def _block(
        self, i: int, h: NDArray[np.float32], a: NDArray[np.float32]
    ) -> NDArray[np.floating]:
        """The next hidden state, from the last one and its linear map `a`."""
        return gelu(a) if self.modulation is None else h + (gelu(a) + self.modulation[i])


def fold(weights: Weights, config: Config) -> Folded:
    """The trained network with σ folded into constants, computed in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    sigma = config.sigmas[:, None]  # (L, 1)
    W_z, w_sigma = np.split(w["input.weight"], [config.K], axis=1)
    h_sigma = sigma @ w_sigma.T + w["input.bias"]
    linear = [w[f"blocks.{i}.linear.weight"] for i in range(config.blocks)]
    bias = [w[f"blocks.{i}.linear.bias"] for i in range(config.blocks)]
    shape = (config.blocks - 1, config.width, config.width)
    return Folded(
        W_z=_float32(W_z),
        h_sigma=_float32(h_sigma),
        W_1z=_float32(linear[0] @ W_z),
        a_sigma=_float32(h_sigma @ linear[0].T + bias[0]),
        W=_float32(np.array(linear[1:]).reshape(shape)),
        b=_float32(np.array(bias[1:]).reshape(shape[:2])),
        modulation=None
        if config.network == "vanilla"
        else _float32(np.array([_modulation(w, i, sigma) for i in range(config.blocks)])),
        head=_float32(w["head.weight"][0]),
        head_bias=np.float32(w["head.bias"][0]),
    )


def gelu(a: NDArray[np.floating]) -> NDArray[np.floating]:
    """The exact a Φ(a), in the precision of `a`."""
    return a * (erf(a * a.dtype.type(np.sqrt(0.5))) + 1) * a.dtype.type(0.5)


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the network."""
    width, sigma_width = config.width, config.sigma_width
    shapes: dict[str, tuple[int, ...]] = {
        "input.weight": (width, config.K + 1),
        "input.bias": (width,),
        "head.weight": (1, width),
        "head.bias": (1,),
    }
    for i in range(config.blocks):
        shapes |= {
            f"blocks.{i}.linear.weight": (width, width),
            f"blocks.{i}.linear.bias": (width,),
        }
        if config.network == "vanilla":
            continue
        shapes |= {
            f"blocks.{i}.sigma_in.weight": (sigma_width, 1),
            f"blocks.{i}.sigma_in.bias": (sigma_width,),
            f"blocks.{i}.sigma_out.weight": (width, sigma_width),
            f"blocks.{i}.sigma_out.bias": (width,),
            f"blocks.{i}.norm.weight": (width,),
            f"blocks.{i}.norm.bias": (width,),
            f"blocks.{i}.alpha.weight": (width, 1),
        }
    return shapes


def _modulation(
    w: Mapping[str, NDArray[np.float64]], i: int, sigma: NDArray[np.float64]
) -> NDArray[np.float64]:
    """LayerNorm(W₂ GELU(W₁ σ)) · α(σ) of block i, `(L, width)`."""
    block = f"blocks.{i}."
    inner = gelu(sigma @ w[block + "sigma_in.weight"].T + w[block + "sigma_in.bias"])
    outer = inner @ w[block + "sigma_out.weight"].T + w[block + "sigma_out.bias"]
    centred = outer - outer.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + LAYER_NORM_EPSILON)
    normed = centred / spread * w[block + "norm.weight"] + w[block + "norm.bias"]
    return normed * (sigma @ w[block + "alpha.weight"].T)


def _rows(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`(N, L, width)` as `(N L, width)`: one large product is faster than N small ones."""
    return values.reshape(-1, values.shape[-1])


def _float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.ascontiguousarray(values, dtype=np.float32)
