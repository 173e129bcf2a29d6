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
    """How long something took, in seconds; quantiles are those of the latest delays."""

    n: int
    p50: float | None
    """None before the first delay."""
    p95: float | None
    p99: float | None
    counts: tuple[int, ...]
    """How many there were in each step of the histogram of `/metrics`, and above its last."""
    total_s: float


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
        ranked = sorted(self.recent)
        p50, p95, p99 = (
            ranked[int(share * len(ranked))] if ranked else None for share in (0.5, 0.95, 0.99)
        )
        return Delays(sum(self.counts), p50, p95, p99, tuple(self.counts), self.total_s)
