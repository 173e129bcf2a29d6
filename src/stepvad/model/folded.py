"""The energy model for scoring, in numpy: σ is known, so its branches are constants (Fig. 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from stepvad.config import Config

LAYER_NORM_EPSILON = 1e-5
"""Added to the variance by LayerNorm."""
ROWS = 128
"""Windows per batch: more would not fit the caches, fewer would make the products too small."""

Weights = Mapping[str, NDArray[np.float32]]
Float32Array = NDArray[np.float32]
Float = TypeVar("Float", np.float32, np.float64)
Blocks = Callable[[Sequence[Float32Array]], Float32Array]
"""The signature of `Folded.blocks`, which a faster engine may replace."""
Energies = Callable[[Float32Array], Float32Array]
"""π(x) `(N, K)` to f_θ(π(x), σ_i) `(N, L)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """f_θ(·, σ_i) for all L scales at once.

    A hidden state is h = s + C, where the constant C per scale sums the contributions of σ. Only s
    is computed; C is folded into the biases. There is no activation between the input layer and
    block 1, so both are one product with π(x).
    """

    W_1z: Float32Array
    """Block 1's linear map after the input layer, `(width, K)`."""
    W_z: Float32Array | None
    """Columns of the input layer for π(x), `(width, K)`; None for a plain MLP, without skips."""
    W: Float32Array
    """Linear maps of the blocks after the first, `(blocks - 1, width, width)`."""
    b: Float32Array
    """Biases of the linear map of every block, `(blocks, L, width)`."""
    head: Float32Array
    """Head weights `(width,)`."""
    constant: NDArray[np.float64]
    """Constants added after the head, `(L,)`."""

    @property
    def L(self) -> int:
        """Number of noise scales."""
        return len(self.constant)

    @property
    def work(self) -> int:
        """Multiplications per window: the entry once, then blocks and head at every scale."""
        entry = self.W_1z.size + (0 if self.W_z is None else self.W_z.size)
        return entry + self.L * (self.W.size + self.head.size)

    def energies(self, pi_x: Float32Array, blocks: Blocks | None = None) -> Float32Array:
        """f_θ(π(x), σ_i), `(N, L)`, from π(x) `(N, K)`; `blocks` replaces `self.blocks`."""
        run = blocks or self.blocks
        parts = [run(self.entry(pi_x[i : i + ROWS])) for i in range(0, len(pi_x), ROWS)]
        together = np.concatenate([np.empty((0, self.L), np.float32), *parts])
        return (together + self.constant).astype(np.float32)

    def entry(self, pi_x: Float32Array) -> list[Float32Array]:
        """Block 1's linear map and, unless the MLP is plain, the input layer, each `(N, width)`."""
        return [pi_x @ W.T for W in (self.W_1z, self.W_z) if W is not None]

    def blocks(self, entry: Sequence[Float32Array]) -> Float32Array:
        """All blocks and the head, `(N, L)`."""
        a, *skip = (values[:, None] for values in entry)  # (N, 1, width)
        s = gelu(a + self.b[0])  # (N, L, width)
        for h in skip:
            s = h + s
        for W, b in zip(self.W, self.b[1:], strict=True):
            y = gelu((_rows(s) @ W.T).reshape(s.shape) + b)
            s = s + y if skip else y
        return (_rows(s) @ self.head).reshape(s.shape[:2])

    def slopes(
        self, pi_x: Float32Array, scale: NDArray[np.int64]
    ) -> tuple[Float32Array, Float32Array]:
        """f_θ(z, σ) `(N,)` and ∇_z f_θ(z, σ) `(N, K)` at points `(N, K)`, each at its own scale.

        With a_i the input of GELU in block i and g = ∂f/∂s, each block turns g into
        g + W_iᵀ (g ⊙ GELU'(a_i)), or into the second term alone in a plain MLP.
        """
        parts = [
            self._slopes(pi_x[i : i + ROWS], scale[i : i + ROWS]) for i in range(0, len(pi_x), ROWS)
        ]
        f = np.concatenate([np.empty(0, np.float32), *(part[0] for part in parts)])
        grad_f = np.concatenate([np.empty((0, pi_x.shape[1]), np.float32), *(p[1] for p in parts)])
        return f, grad_f

    def _slopes(
        self, pi_x: Float32Array, scale: NDArray[np.int64]
    ) -> tuple[Float32Array, Float32Array]:
        a, *skip = self.entry(pi_x)
        s, inner = gelu_and_slope(a + self.b[0, scale])
        slopes = [inner]
        for h in skip:
            s = h + s
        for W, b in zip(self.W, self.b[1:], strict=True):
            y, inner = gelu_and_slope(s @ W.T + b[scale])
            s = s + y if skip else y
            slopes.append(inner)
        g = np.broadcast_to(self.head, s.shape)
        for W, inner in zip(self.W[::-1], slopes[:0:-1], strict=True):
            through = (g * inner) @ W
            g = g + through if skip else through
        grad_f = (g * slopes[0]) @ self.W_1z
        if self.W_z is not None:
            grad_f = grad_f + g @ self.W_z
        return (s @ self.head + self.constant[scale]).astype(np.float32), grad_f


def fold(weights: Weights, config: Config) -> Folded:
    """The trained network with σ folded into constants, computed in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    sigma = config.sigmas[:, None]  # (L, 1)
    W_z, w_sigma = np.split(w["input.weight"], [config.K], axis=1)
    W = [w[f"blocks.{i}.linear.weight"] for i in range(config.blocks)]
    C = sigma @ w_sigma.T + w["input.bias"]  # (L, width)
    b = []
    for i in range(config.blocks):
        b.append(C @ W[i].T + w[f"blocks.{i}.linear.bias"])
        plain = config.network == "vanilla"
        C = np.zeros_like(C) if plain else C + _modulation(w, i, sigma)
    return Folded(
        W_1z=_float32(W[0] @ W_z),
        W_z=None if config.network == "vanilla" else _float32(W_z),
        W=_float32(np.array(W[1:]).reshape(config.blocks - 1, config.width, config.width)),
        b=_float32(np.array(b)),
        head=_float32(w["head.weight"][0]),
        constant=C @ w["head.weight"][0] + w["head.bias"][0],
    )


def gelu(a: NDArray[Float]) -> NDArray[Float]:
    """The exact a Φ(a), in the precision of `a`."""
    half = a.dtype.type(0.5)
    return a * (erf(a * np.sqrt(half)) + 1) * half


def gelu_and_slope(a: NDArray[Float]) -> tuple[NDArray[Float], NDArray[Float]]:
    """GELU(a) = a Φ(a) and its slope Φ(a) + a φ(a), in the precision of `a`."""
    half = a.dtype.type(0.5)
    Phi = (erf(a * np.sqrt(half)) + 1) * half
    phi = np.exp(-half * a * a) * np.sqrt(half / a.dtype.type(np.pi))
    return a * Phi, Phi + a * phi


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


def _rows(values: Float32Array) -> Float32Array:
    """`(N, L, width)` as `(N L, width)`: one large product is faster than N small ones."""
    return values.reshape(-1, values.shape[-1])


def _float32(values: NDArray[np.float64]) -> Float32Array:
    return np.ascontiguousarray(values, dtype=np.float32)
