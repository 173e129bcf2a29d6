"""The tail of false events beyond what footage shows: peaks over a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import boxcox, inv_boxcox

from stepvad.calibration.counting import Counted

PEAKS = 60
"""Events that the tail is fitted to: the highest ones."""
FEWEST = 20
"""Events that a tail needs at least."""
SHAPES = np.linspace(1e-6, 0.7, 61)
"""From an exponential tail to a very heavy one. That scores have an upper end, a negative shape, is
not ours to assume."""
TYPICAL_SHAPE = 0.15
"""Before footage is seen, shapes are the less likely the heavier: exponentially, of this mean."""
SCALES = np.geomspace(0.2, 4.0, 81)
"""Of the tail, in means of the events above the base; all as likely on the log scale."""
DRAWS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Generalised Pareto tails as the footage lets them be: draws `(S,)` from their posterior.

    Above a threshold u from `level` on, `rate (1 + shape (u - level) / scale)^(-1 / shape)` events
    happen per hour.
    """

    level: float
    rate: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, counted: Counted, base: int, *, seed: int = 0) -> Tails:
        """The tails above the level numbered `base`; events in groups count for fewer."""
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
        """Events per hour above each of the n thresholds from the level on, `(n, S)`."""
        z = (thresholds[:, None] - self.level) / self.scale
        return np.asarray(self.rate / inv_boxcox(z, self.shape))

    def thresholds(self, rate: float) -> NDArray[np.float64]:
        """Where that many events per hour are left, `(S,)`."""
        excess = self.scale * boxcox(np.maximum(self.rate / rate, 1.0), self.shape)
        return np.asarray(self.level + excess)


def base_level(counted: Counted) -> int:
    """The highest level that enough events reach, or else the lowest."""
    enough = np.flatnonzero(counted.totals >= PEAKS)
    return int(enough[-1]) if len(enough) else 0


def _log_likelihood(
    excess: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of every shape and scale, `(61, 81)`."""
    z = excess / scales[:, None]
    each = np.stack([(1 + shape) / shape * np.log1p(shape * z).sum(axis=1) for shape in SHAPES])
    return -each - len(excess) * np.log(scales)


def _excess(counted: Counted, base: int) -> NDArray[np.float64]:
    """By how much each event passes the base level, ascending.

    An event is somewhere between the last level that it reaches and the next.
    """
    totals, levels = counted.totals[base:], counted.levels[base:]
    ends = np.append(totals[:-1] - totals[1:], totals[-1])
    middles = np.append((levels[:-1] + levels[1:]) / 2, levels[-1])
    return np.repeat(middles - levels[0], ends)
