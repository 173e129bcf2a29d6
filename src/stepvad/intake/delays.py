"""Histograms of delays, for the page and the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

BUCKETS_S = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the histogram buckets for delays."""
RECENT = 1000
"""Number of latest delays used for quantiles."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Histogram of delays: counts by `BUCKETS_S` plus overflow, and the latest delays."""

    counts: tuple[int, ...]
    total_s: float
    recent: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of delays observed."""
        return sum(self.counts)

    def quantiles(self, *shares: float) -> list[float | None]:
        """Quantiles of the latest delays; None before the first."""
        ranked = sorted(self.recent)
        if not ranked:
            return [None for _ in shares]
        return [ranked[min(int(share * len(ranked)), len(ranked) - 1)] for share in shares]


class DelayHistogram:
    """Mutable histogram behind `Delays`."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        """Count a delay."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds
        self.recent.append(seconds)

    def view(self) -> Delays:
        """An immutable copy."""
        return Delays(tuple(self.counts), self.total_s, tuple(self.recent))
