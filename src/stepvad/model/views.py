"""One view of a detector: its energy model, and how rare a score of it is.

The paper has one view, whose score is Eq. 8. The scores of several are ranked among windows of
normal footage that the model was not fitted on. A young window, of a person who has just come,
scores differently from a whole one: it is ranked among windows of about as many poses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, Runtime
from stepvad.errors import DataError
from stepvad.model.engines import EngineNetwork
from stepvad.model.folded import Weights, fold
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import anomaly_score, standardise_energies
from stepvad.windows.values import Windows
from stepvad.windows.views import Pace, ViewSettings


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What a fit learned and measured for one view."""

    space: PCSpace
    weights: Weights
    E_mean: NDArray[np.float64]
    """Ē_i over the training windows, `(L,)`."""
    E_var: NDArray[np.float64]
    """Var(E_i) over the training windows, `(L,)`."""
    noise: tuple[float, ...] = ()
    """Spread of joints by confidence; see `ViewSettings`."""
    pace: Pace | None = None
    """Usual speeds, of a motion alone."""
    usual: NDArray[np.float64] | None = None
    """Quantiles of how much there is of each meaning in normal footage, `(meanings, QUANTILES)`.

    Of a motion among several views alone.
    """


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One view: its settings, its energy model on an engine, and how rare its scores are."""

    config: Config
    model: Model
    surprise: SurpriseByAge | None = None
    """The rarity of a score among several views; None for a single one."""
    runtime: Runtime = "auto"
    """Engine that computes the energies, or `auto` or `fastest` to pick one."""
    threads: int | None = None
    """Threads per call; None uses OMP_NUM_THREADS or, if it is unset, all cores."""
    network: EngineNetwork = field(init=False)

    def __post_init__(self) -> None:
        """Fold the network for scoring and load it into its engine."""
        folded = fold(self.model.weights, self.config)
        network = EngineNetwork.load(folded, self.runtime, self.threads)
        object.__setattr__(self, "network", network)

    @property
    def settings(self) -> ViewSettings:
        """All that cutting its windows needs."""
        return ViewSettings(self.config, self.model.noise, self.model.pace)

    def energies(self, windows: Windows) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`."""
        return self.network.energies(self.model.space.project(windows.x))

    def score(self, windows: Windows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Standardised energies E `(N, L)` and scores A(x) `(N,)` of its windows (Eq. 8)."""
        E = standardise_energies(self.energies(windows), self.model.E_mean, self.model.E_var)
        return E, anomaly_score(E, windows.weight(self.config), self.config.aggregation)

    def rarity(self, A: NDArray[np.float32], n_poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """-log p of its scores `(N,)` of windows with so many poses at hand, `(N,)`."""
        return A if self.surprise is None else self.surprise(A, n_poses)


COMMON = 0.01
"""Share of normal windows above the last level; beyond it the tail is exponential."""
LEVELS = 128
"""Levels at which the distribution is kept."""
FEWEST = 200
"""Normal windows needed for a distribution: two of them in the tail."""
DOUBLING = 2
"""A band of ages ends where windows have twice the poses of its first ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Surprise:
    """-log p of a score: `nats (M,)` at `levels (M,)`, interpolated in between.

    Above the last level it grows by one nat per `scale`, as an exponential tail does.
    """

    levels: NDArray[np.float64]
    nats: NDArray[np.float64]
    scale: float

    @classmethod
    def measure(cls, A: NDArray[np.float32]) -> Surprise:
        """The distribution of these scores of normal windows."""
        if len(A) < FEWEST:
            raise DataError(
                f"views: expected at least {FEWEST} windows of held-out footage, got {len(A)}",
                hint="fit on more footage, or with a single view",
            )
        p = np.geomspace(1.0, COMMON, LEVELS)
        levels, kept = np.unique(np.quantile(A.astype(np.float64), 1 - p), return_index=True)
        excess = A[levels[-1] < A] - levels[-1]
        scale = float(excess.mean()) if len(excess) else 0.0
        spread = float(np.ptp(levels)) / LEVELS
        return cls(levels, -np.log(p[kept]), max(scale, spread, float(np.finfo(np.float32).eps)))

    def __call__(self, A: NDArray[np.float32]) -> NDArray[np.float32]:
        """-log p of scores `(N,)`; 0 for the most ordinary ones."""
        inside = np.interp(A, self.levels, self.nats)
        beyond = np.maximum(A - self.levels[-1], 0) / self.scale
        return np.asarray(inside + beyond, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class SurpriseByAge:
    """A distribution for each band of ages: windows of at least `first[i]` poses at hand."""

    first: tuple[int, ...]
    bands: tuple[Surprise, ...]

    @classmethod
    def measure(
        cls, A: NDArray[np.float32], n_poses: NDArray[np.int64], config: Config
    ) -> SurpriseByAge:
        """The distributions of these scores of normal windows; bands with too few are joined."""
        first: list[int] = []
        bands: list[Surprise] = []
        age, end = config.T, config.T + 1
        while True:
            own = A[(n_poses >= age) & (n_poses < end)]
            if len(own) >= FEWEST:
                first.insert(0, age)
                bands.insert(0, Surprise.measure(own))
                end = age
            if age <= config.shortest:
                break
            age = max(-(-age // DOUBLING), config.shortest)
        return cls(tuple(first), tuple(bands)) if bands else cls((age,), (Surprise.measure(A),))

    def __call__(self, A: NDArray[np.float32], n_poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """-log p of scores `(N,)` of windows with so many poses at hand, `(N,)`."""
        band = np.maximum(np.searchsorted(self.first, n_poses, side="right") - 1, 0)
        nats = np.zeros(len(A), np.float32)
        for number in np.unique(band):
            rows = band == number
            nats[rows] = self.bands[number](A[rows])
        return nats
