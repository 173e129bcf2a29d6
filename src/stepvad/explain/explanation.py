"""A score decomposed over joints, moments and views, beside the nearest normal motion (Eq. 8).

Contributions are integrated gradients along the straight line from a normal window to the observed
one; they sum to the score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.codec import JsonObject, to_plain
from stepvad.config import ViewKind
from stepvad.detector import Detector
from stepvad.explain.ghosts import NORMAL_RANGE, standardised
from stepvad.explain.words import BodyPart, Finding, rank
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import scale_weights
from stepvad.skeletons import Skeleton

NODES = 16
"""Initial number of points on the line; doubled until the contributions add up."""
MAX_NODES = 512
TOLERANCE = 3e-5
"""Largest error of the sum, in units of standardised energy."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """One window's score, decomposed over the joints and frames of the clip.

    `score` is `base` plus all `contributions (T, V)`, to 1e-4; with several views, plus all
    `meanings` too. `observed (T, V, 2)` and the nearest normal motion `ghost (T, V, 2)` are in
    pixels.

    Examples:
        >>> from stepvad.explain import explain_highest
        >>> (worst,) = explain_highest(detector, [clip])
        >>> worst.contributions.shape == (worst.observed.shape[:2])
        True
    """

    clip: str
    track: int
    frames: NDArray[np.int64]
    skeleton: Skeleton
    score: float
    confidence: float
    """The factor by which the score was multiplied."""
    energy: float
    """The score before weighting: standard deviations above the mean of the training windows.

    With several views, the score itself.
    """
    scales: dict[float, float]
    """Noise scales σ that decided, and their weights; a single one if the aggregation is `max`.

    Empty with several views.
    """
    base: float
    """The score of the nearest normal motion, at the same scales and confidence."""
    contributions: NDArray[np.float64]
    observed: NDArray[np.float32]
    ghost: NDArray[np.float32]
    ghost_energy: float
    """Its highest standardised energy over all scales; 0 if it is an average of usual motion."""
    findings: tuple[Finding, ...]
    views: tuple[ViewShare, ...] = ()
    """Contributions of several views, which sum to the score. Empty if there is one view."""
    meanings: Mapping[str, float] = field(default_factory=dict)
    """Contributions of what motion and place mean, such as `speed`."""

    def __repr__(self) -> str:
        """The explanation in one line."""
        when = f"frames={self.frames[0]} to {self.frames[-1]}"
        words = "; ".join(self.words)
        return (
            f"Explanation({self.clip!r}, track={self.track}, {when}, score={self.score:.3g}, "
            f"words={words!r})"
        )

    @property
    def parts(self) -> tuple[BodyPart, ...]:
        """Parts of the body, and meanings, by contribution, the largest first."""
        return rank(self.contributions, self.frames, self.skeleton, self.meanings)

    @property
    def shares(self) -> dict[str, float]:
        """Share of the score of `pose`, `motion` and `place`, with several views."""
        found: dict[str, float] = {}
        for view in self.views:
            found[view.view] = found.get(view.view, 0.0) + view.share
        return found

    @property
    def share_words(self) -> str:
        """The same in words, such as `pose 40 %, motion 55 %, place 5 %`."""
        return ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.shares.items())

    @property
    def words(self) -> tuple[str, ...]:
        """A phrase for each unusual finding; none for a window in the normal range."""
        return tuple(finding.words for finding in self.findings)

    @property
    def taken_off(self) -> float:
        """The reduction of the score due to low pose confidence."""
        return self.energy - self.score

    @property
    def ghost_is_normal(self) -> bool:
        """The descent ended in the normal range at every scale; averages of usual motion are."""
        return self.ghost_energy <= NORMAL_RANGE

    def as_dict(self) -> JsonObject:
        """Everything as plain values for JSON."""
        names = ["clip", "track", "frames", "score", "confidence", "energy", "base", "parts"]
        names += ["contributions", "observed", "ghost", "ghost_energy", "ghost_is_normal", "words"]
        names += ["views", "meanings"] if self.views else []
        scales = [{"sigma": sigma, "weight": weight} for sigma, weight in self.scales.items()]
        shown = {name: getattr(self, name) for name in names}
        return to_plain(shown | {"joints": self.skeleton.joints, "scales": scales})


@dataclass(frozen=True, slots=True)
class ViewShare:
    """The contribution of one of several views to a score."""

    view: ViewKind
    name: str
    """The view, and how long its windows are."""
    contribution: float
    base: float
    """The contribution of its nearest normal window."""
    share: float
    """Fraction of what all views at hand add; 0 if it is not at hand."""
    at_hand: bool
    """The person was there for long enough."""


def attribute(
    detector: Detector,
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    normal: NDArray[np.float32],
) -> Attribution:
    """Attribute scores of windows `x (N, 2, V, T)` of `weight (N,)`, relative to `normal (N, K)`.

    With g the mean of ∇_z Σ_i w_i E_i over the line from z' to π(x), coordinate d contributes
    c (x_d - x'_d) (W_K Λ_K^(-1/2) g)_d. These add up to c Σ_i w_i (E_i(π(x)) - E_i(z')). Motion
    outside the K components contributes zero in total.
    """
    # the scales that decide, (N, L), and the score at both ends of the line
    space = detector.model.space
    pi_x = space.project(x)
    E, E_normal = standardised(detector, pi_x), standardised(detector, normal)
    scales = scale_weights(E, detector.config.aggregation)
    energy, below = (np.sum(scales * values, axis=1) for values in (E, E_normal))
    g = _mean_gradient(detector, scales, normal, pi_x, energy - below)
    # weighted by confidence
    c = weight.astype(np.float64)
    coordinates = c[:, None, None, None] * _by_coordinate(space, g, x, normal)
    return Attribution(c * energy, energy, c * below, coordinates, scales)


def attribute_distance(
    space: PCSpace, x: NDArray[np.float32], normal: NDArray[np.float32]
) -> Attribution:
    """Attribute the distances of windows `x (N, 2, V, T)` to their nearest points `(N, K)`.

    The gradient of |z - z'| is (z - z') / |z - z'| all along the line: contributions, as in
    `attribute`, add up to the distance without quadrature.
    """
    way = space.project(x).astype(np.float64) - normal
    d = np.linalg.norm(way, axis=1)
    g = way / np.maximum(d, np.finfo(np.float64).tiny)[:, None]
    coordinates = _by_coordinate(space, g, x, normal)
    return Attribution(d, d, np.zeros(len(d)), coordinates, np.empty((len(d), 0)))


def _by_coordinate(
    space: PCSpace, g: NDArray[np.float64], x: NDArray[np.float32], normal: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Contributions of the coordinates of windows, by mean gradients `g (N, K)` in PC-space."""
    _, *shape = x.shape
    difference = x - space.reconstruct(normal, (shape[0], shape[1], shape[2]))
    return np.asarray(((g / space.scale) @ space.W_K.T).reshape(x.shape) * difference)


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """Scores of N windows, decomposed: `score = base + contributions.sum()` for each.

    `coordinates (N, 2, V, T)` are contributions; `base (N,)` is the score of the normal window at
    the scales that decided; `energy (N,)` is the score before weighting by confidence;
    `scales (N, L)` are the weights of the scales, none of a distance.
    """

    score: NDArray[np.float64]
    energy: NDArray[np.float64]
    base: NDArray[np.float64]
    coordinates: NDArray[np.float64]
    scales: NDArray[np.float64]

    @property
    def contributions(self) -> NDArray[np.float64]:
        """Contributions of joints in frames, `(N, V, T)`: added over x and y."""
        return self.coordinates.sum(axis=1)


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
    # windows whose sum is still off are computed again, on twice as many nodes
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
    # points on the line of each window and scale that decides, (n, nodes, K)
    window, scale = np.nonzero(scales)
    way = end - start
    lines = start[window, None] + place[:, None] * way[window, None]
    K = start.shape[1]
    _, grad_f = detector.network.folded.slopes(lines.reshape(-1, K), np.repeat(scale, nodes))
    # the mean over nodes, standardised, added over the scales of each window
    mean = np.einsum("j,njk->nk", share, grad_f.reshape(-1, nodes, K).astype(np.float64))
    weight = scales[window, scale] / np.sqrt(detector.model.energy.E_var[scale])
    g = np.zeros(start.shape)
    np.add.at(g, window, weight[:, None] * mean)
    return g
