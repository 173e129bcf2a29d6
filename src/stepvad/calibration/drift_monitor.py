"""Drift of a watched camera since its calibration, with few false alarms."""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import NDArray

from stepvad.calibration.drift import BLOCK_S, LEAST_VARIANCE, BlockStats, Shift
from stepvad.errors import DataError

LOOK_EVERY_S = 120.0
"""Interval between looks at a watched camera, one block each."""
SPAN_LOOKS = 60
"""Looks per span, each judged once: two hours with people."""
FEWEST_SPANS = 4
"""A calibration with fewer spans does not show how much spans of two hours vary."""
SPANS_PER_YEAR = 365 * 12
"""Spans per year of a camera that sees people day and night."""


class DriftMonitor:
    """Compares spans of two hours with all spans of that length in the calibration.

    A span is an *outlier* if it differs from the calibration by more than any span within the
    calibration differs from the rest of it. This allows for mornings, nights and their slow changes
    wherever the calibration covers them. If spans are exchangeable and the calibration has S of
    them, k in a row are outliers with probability 1 / C(S + k, k), the chance that they are the k
    largest of S + k. A change is reported after `needed` in a row, the smallest k for which that
    happens at most once a year by chance.
    """

    def __init__(self, before: BlockStats) -> None:
        self._names = before.names
        self.spans = span_count(before)
        if self.spans < FEWEST_SPANS:
            hours = FEWEST_SPANS * SPAN_LOOKS * LOOK_EVERY_S / 3600
            got = len(before) * BLOCK_S / 3600
            raise DataError(
                f"calibration: expected at least {hours:g} hours with people, got {got:.1f}",
                hint="calibrate with days of footage",
            )
        self.needed = spans_needed(self.spans)
        self._mean = before.values.mean(axis=0)
        deviation = before.values.std(axis=0)
        self._deviation = np.where(deviation > 0, deviation, 1.0)
        z = (before.values - self._mean) / self._deviation
        width, turn = np.linalg.eigh(np.cov(z.T))
        self._evened = turn / np.sqrt(width + LEAST_VARIANCE)
        apart = self._apart(self._calibrated_spans(z))
        self._usual = np.median(apart, axis=0)
        self._bar = float((apart / self._usual).max())
        self._waiting: list[NDArray[np.float64]] = []
        self._latest: NDArray[np.float64] | None = None
        self.spans_seen = 0
        self.in_a_row = 0

    @property
    def has_changed(self) -> bool:
        """Whether enough spans in a row are outliers."""
        return self.in_a_row >= self.needed

    @property
    def missing(self) -> int:
        """Looks until the next span is judged."""
        return SPAN_LOOKS - len(self._waiting)

    def add(self, looks: BlockStats) -> None:
        """Add looks as they arrive; every `SPAN_LOOKS` of them are judged once."""
        for row in looks.values:
            self._waiting.append(row)
            if not self.missing:
                self._latest = np.mean(self._waiting, axis=0)
                self._waiting = []
                self.spans_seen += 1
                apart = self._apart((self._latest - self._mean)[None] / self._deviation)
                is_outlier = float((apart / self._usual).max()) > self._bar
                self.in_a_row = self.in_a_row + 1 if is_outlier else 0

    def changes(self) -> tuple[Shift, ...]:
        """Every statistic in the calibration and in the latest span, the largest change first."""
        if self._latest is None:
            return ()
        sizes = (self._latest - self._mean) / self._deviation
        columns = (self._names, self._mean, self._latest, sizes)
        found = [
            Shift(name, float(was), float(now), float(size))
            for name, was, now, size in zip(*columns, strict=True)
        ]
        return tuple(sorted(found, key=lambda change: -abs(change.size)))

    def _calibrated_spans(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of each span of the calibration minus that of the rest, `(n, D)`.

        Spans overlap, starting every quarter of a span, and hold as many looks, as far apart, as
        those of a watched camera.
        """
        stride, length = _stride(), SPAN_LOOKS * _stride()
        total, n = z.sum(axis=0), len(z)
        rows = []
        for first in range(0, n - length + 1, length // 4):
            inside = z[first : first + length]
            rest = (total - inside.sum(axis=0)) / (n - length)
            rows += [inside[phase::stride].mean(axis=0) - rest for phase in range(stride)]
        return np.array(rows)

    def _apart(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Two sizes of each difference: the largest statistic, and the norm after decorrelation."""
        together = np.sqrt(np.square(differences @ self._evened).sum(axis=1))
        return np.column_stack([np.abs(differences).max(axis=1), together])


def span_count(before: BlockStats) -> int:
    """Number of disjoint spans of two hours in a calibration."""
    return len(before) // (SPAN_LOOKS * _stride())


def spans_needed(spans: int) -> int:
    """Consecutive outliers that indicate a change, for a calibration with this many spans."""
    needed = 1
    while comb(spans + needed, needed) < SPANS_PER_YEAR:
        needed += 1
    return needed


def _stride() -> int:
    """Blocks of the calibration from one look of a watched camera to the next."""
    return round(LOOK_EVERY_S / BLOCK_S)
