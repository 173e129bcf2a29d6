"""Extrapolated tail of false events, by the peaks-over-threshold method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import boxcox, inv_boxcox

from stepvad.calibration.counting import Counted

PEAKS = 60
"""Number of events that the tail is fitted to, the highest ones."""
FEWEST = 20
"""Minimum number of events for a tail."""
SHAPES = np.linspace(1e-6, 0.7, 61)
"""From an exponential tail to a very heavy one. Negative shapes are excluded: they would assume an
upper bound on scores."""
TYPICAL_SHAPE = 0.15
"""Mean of the exponential prior on the shape: heavier tails are less likely."""
SCALES = np.geomspace(0.2, 4.0, 81)
"""Scales of the tail, relative to the mean excess over the base; the prior is log-uniform."""
DRAWS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Generalised Pareto tails given the footage: draws `(S,)` from their posterior.

    Above a threshold u of at least `level`, `rate (1 + shape (u - level) / scale)^(-1 / shape)`
    events occur per hour.
    """

    level: float
    rate: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, counted: Counted, base: int, *, seed: int = 0) -> Tails:
        """Tails above the level with index `base`; clustered events have less weight."""
        rng = np.random.default_rng(seed)
        excess, dispersion = _excess(counted, base), counted.dispersion(base)
        scales = SCALES * excess.mean()
        likelihood = _log_likelihood(excess, scales) / dispersion
        posterior = likelihood - SHAPES[:, None] / TYPICAL_SHAPE
        chance = np.exp(posterior - posterior.max()).ravel()
        drawn = rng.choice(len(chance), size=DRAWS, p=chance / chance.sum())
        shape, scale = np.unravel_index(drawn, likelihood.shape)
        events = dispersion * rng.gamma(len(excess) / dispersion + 0.5, size=DRAWS)
        return cls(
            float(counted.levels[base]),
            events / counted.total_hours,
            SHAPES[shape],
            scales[scale],
        )

    def rates(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Events per hour above each of n thresholds of at least `level`, `(n, S)`."""
        z = (thresholds[:, None] - self.level) / self.scale
        return np.asarray(self.rate / inv_boxcox(z, self.shape))

    def thresholds(self, rate: float) -> NDArray[np.float64]:
        """Thresholds at which this rate is left, `(S,)`."""
        excess = self.scale * boxcox(np.maximum(self.rate / rate, 1.0), self.shape)
        return np.asarray(self.level + excess)


def base_level(counted: Counted) -> int:
    """The highest level reached by `PEAKS` events, or else the lowest."""
    enough = np.flatnonzero(counted.totals >= PEAKS)
    return int(enough[-1]) if len(enough) else 0


def _log_likelihood(
    excess: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log-likelihood of every shape and scale, `(61, 81)`."""
    z = excess / scales[:, None]
    each = np.stack([(1 + shape) / shape * np.log1p(shape * z).sum(axis=1) for shape in SHAPES])
    return -each - len(excess) * np.log(scales)


def _excess(counted: Counted, base: int) -> NDArray[np.float64]:
    """The excess of each event over the base level, ascending.

    An event is placed midway between the last level that it reaches and the next.
    """
    totals, levels = counted.totals[base:], counted.levels[base:]
    ends = np.append(totals[:-1] - totals[1:], totals[-1])
    middles = np.append((levels[:-1] + levels[1:]) / 2, levels[-1])
    return np.repeat(middles - levels[0], ends)
