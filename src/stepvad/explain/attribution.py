"""Contribution of every coordinate of a window to its score; contributions sum to it (Eq. 8).

Integrated gradients along the straight line from a normal window to the observed one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.explain.ghosts import standardised
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import scale_weights

NODES = 16
"""Initial number of points on the line; doubled until the contributions add up."""
MAX_NODES = 512
TOLERANCE = 3e-5
"""Largest error of the sum, in units of standardised energy."""


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """Scores of N windows, decomposed: `score = base + contributions.sum()` for each.

    `coordinates (N, 2, V, T)`, and added over x and y `contributions (N, V, T)`; `base (N,)` is
    the score of the normal window at the scales that decided; `energy (N,)` is the score before
    weighting by confidence; `scales (N, L)` are the weights of the scales.
    """

    score: NDArray[np.float64]
    energy: NDArray[np.float64]
    base: NDArray[np.float64]
    coordinates: NDArray[np.float64]
    contributions: NDArray[np.float64]
    scales: NDArray[np.float64]


def attribute(
    detector: Detector,
    space: PCSpace,
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    normal: NDArray[np.float32],
) -> Attribution:
    """Attribute scores of windows `x (N, 2, V, T)` of `weight (N,)`, relative to `normal (N, K)`.

    With g the mean of ∇_z Σ_i w_i E_i over the line from z' to π(x), coordinate d contributes
    c (x_d - x'_d) (W_K Λ_K^(-1/2) g)_d. These add up to c Σ_i w_i (E_i(π(x)) - E_i(z')). Motion
    outside the K components contributes zero in total.
    """
    pi_x = space.project(x)
    E, E_normal = standardised(detector, pi_x), standardised(detector, normal)
    scales = scale_weights(E, detector.config.aggregation)
    energy, below = (np.sum(scales * values, axis=1) for values in (E, E_normal))
    g = _mean_gradient(detector, scales, normal, pi_x, energy - below)
    _, _, V, T = x.shape
    difference = x - space.reconstruct(normal, (2, V, T))
    by_coordinate = ((g / space.scale) @ space.W_K.T).reshape(x.shape) * difference
    c = weight.astype(np.float64)
    contributions = c[:, None, None] * by_coordinate.sum(axis=1)
    coordinates = c[:, None, None, None] * by_coordinate
    return Attribution(c * energy, energy, c * below, coordinates, contributions, scales)


def _mean_gradient(
    detector: Detector,
    scales: NDArray[np.float64],
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    rise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mean of ∇_z Σ_i w_i E_i over each line `(N, K)`, on as many nodes as its `rise` requires."""
    g = np.zeros(start.shape)
    rows, nodes = np.arange(len(start)), NODES
    while len(rows):
        g[rows] = _quadrature(detector, scales[rows], start[rows], end[rows], nodes)
        along = np.sum(g[rows] * (end[rows] - start[rows]), axis=1)
        missing = np.abs(along - rise[rows])
        nodes *= 2
        rows = rows[missing > TOLERANCE] if nodes <= MAX_NODES else rows[:0]
    return g


def _quadrature(
    detector: Detector,
    scales: NDArray[np.float64],
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    nodes: int,
) -> NDArray[np.float64]:
    """The same mean by Gauss-Legendre quadrature."""
    place, share = np.polynomial.legendre.leggauss(nodes)
    place, share = ((place + 1) / 2).astype(np.float32), share / 2
    window, scale = np.nonzero(scales)
    way = end - start
    lines = start[window, None] + place[:, None] * way[window, None]  # (n, nodes, K)
    K = start.shape[1]
    _, grad_f = detector.network.folded.slopes(lines.reshape(-1, K), np.repeat(scale, nodes))
    mean = np.einsum("j,njk->nk", share, grad_f.reshape(-1, nodes, K).astype(np.float64))
    g = np.zeros(start.shape)
    np.add.at(
        g, window, (scales[window, scale] / np.sqrt(detector.model.E_var[scale]))[:, None] * mean
    )
    return g
