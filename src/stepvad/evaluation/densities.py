"""Other densities in the place of the energy model, in the same space of each view.

Everything else stays the detector's own: windows, projection, confidence, the ranking among unseen
normal footage, and how views are joined. What differs in a figure is the density.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector, rank_scores
from stepvad.errors import ConfigError
from stepvad.evaluation.baselines.mixture import Mixture
from stepvad.evaluation.baselines.neighbours import Neighbours
from stepvad.model.footage import BATCH, hold_out
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent
from stepvad.windows import cut_in_pieces

Density = Literal["step", "knn", "gmm"]
TITLES: dict[Density, str] = {"step": "energy", "knn": "kNN", "gmm": "mixture"}
Energies = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""One energy `(n,)` for each point `(n, K)`."""
MAX_POINTS = 50_000
"""Training windows that a density is fitted to, evenly spread."""
GAUSSIANS = 8
"""Gaussians of a mixture; fixed beforehand, tuned on nothing."""


@dataclass(frozen=True, slots=True)
class _Network:
    """In the place of a view's network: the same energy at every noise scale."""

    of: Energies
    L: int

    def energies(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The energy of each point, `(n, L)`."""
        return np.repeat(self.of(pi_x)[:, None], self.L, axis=1)


def with_density(
    detector: Detector,
    density: Density,
    clips: Sequence[Clip],
    *,
    seed: int = 0,
    report: Report = silent,
) -> Detector:
    """A detector with views whose energy models are replaced; `clips` are those it was fitted on.

    The density learns from the clips that the energy model learned from, and is standardised and
    ranked on those that were held out from it.
    """
    if not detector.parts:
        raise ConfigError("densities: expected a detector with several views, got one view")
    if density == "step":
        return detector
    learned, ranked = hold_out(clips)
    parts = []
    for number, part in enumerate(detector.parts):
        report(Progress("densities", number, len(detector.parts), part.config.view_name))
        own, unseen = (_points(part, some) for some in (learned, ranked))
        parts.append(_replaced(part, _fitted(density, own, seed), unseen))
    report(Progress("densities", len(parts), len(parts)))
    rankings = [rank_scores(part, ranked) for part in parts]
    views = zip(detector.model.views, rankings, strict=True)
    model = replace(
        detector.model, views=tuple(replace(view, surprise=ranking) for view, ranking in views)
    )
    return _with(detector, parts=tuple(parts), model=model)


def _fitted(density: Density, points: NDArray[np.float32], seed: int) -> Energies:
    rows = np.linspace(0, len(points) - 1, min(len(points), MAX_POINTS)).astype(np.int64)
    if density == "knn":
        return Neighbours(points[rows]).distances
    return Mixture.fit(points[rows], min(GAUSSIANS, len(rows)), seed=seed).energies


def _points(part: Detector, clips: Sequence[Clip]) -> NDArray[np.float32]:
    """π(x) of all windows of these clips as one view sees them."""
    points = [
        part.model.space.project(windows.x)
        for clip in clips
        for index, _ in cut_in_pieces(clip, part.config, part.skeleton)
        for windows in index.batches(BATCH)
    ]
    return np.concatenate([np.empty((0, part.config.K), np.float32), *points])


def _replaced(part: Detector, of: Energies, unseen: NDArray[np.float32]) -> Detector:
    """A view with another density, its energies standardised on unseen points."""
    energies, scales = of(unseen).astype(np.float64), part.config.L
    mean, var = (np.full(scales, one) for one in (energies.mean(), max(energies.var(), 1e-12)))
    return _with(
        part, network=_Network(of, scales), model=replace(part.model, E_mean=mean, E_var=var)
    )


def _with(detector: Detector, **changes: object) -> Detector:
    """A copy with other attributes, also those that a detector makes for itself."""
    other = copy.copy(detector)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other
