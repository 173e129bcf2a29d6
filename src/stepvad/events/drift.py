"""Drift: whether recent footage still looks like that of the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import DataError, Report, silent
from stepvad.model.footage import score_clip
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows.values import Windows

BLOCK_S = 30.0
"""Footage is compared in blocks of this many seconds: windows of one person are too similar."""
FEWEST_WINDOWS = 20
"""Blocks with fewer windows are dropped."""
FEWEST_BLOCKS = 5
COMPONENTS = 12
"""Number of leading components of PC-space compared."""
PERMUTATIONS = 4999
LEAST_VARIANCE = 0.3
"""Added to the variance of every direction: few blocks estimate the smallest ones poorly."""
SURE = 0.005
"""Probability of calling footage of the same kind changed."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockStats:
    """Statistics of footage, one row of `values (B, D)` per block."""

    names: tuple[str, ...]
    """Names of the D statistics."""
    values: NDArray[np.float64]

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.values)

    @classmethod
    def join(cls, parts: Sequence[BlockStats]) -> BlockStats:
        """All blocks in order."""
        return cls(parts[0].names, np.concatenate([part.values for part in parts]))


@dataclass(frozen=True, slots=True)
class Shift:
    """One statistic before and now; `size` is the difference in standard deviations of blocks."""

    name: str
    before: float
    now: float
    size: float


@dataclass(frozen=True, slots=True)
class Drift:
    """How recent footage differs from that of calibration."""

    p: float
    """Probability of a difference this large if nothing has changed."""
    changes: tuple[Shift, ...]
    """The largest first."""

    @property
    def is_real(self) -> bool:
        """Whether it is time to calibrate again."""
        return self.p < SURE


def look(
    detector: Detector, clip: Clip, fps: float, *, report: Report = silent
) -> tuple[Scores, BlockStats]:
    """Score a clip and compute its block statistics."""
    seen = _Seen(detector)
    scores = score_clip(clip, detector.config, detector.skeleton, seen.score_windows, report=report)
    return scores, seen.looks(scores.windows, fps)


def compare(before: BlockStats, now: BlockStats, *, seed: int = 0) -> Drift:
    """Test whether footage has changed, and report what has.

    A permutation test of two measures: the largest difference of any statistic, and the sum of
    squared differences after decorrelation, which emphasises directions in which blocks hardly
    differ. The rarer of the two is compared with that of randomly assigned blocks, so neither many
    statistics nor two measures make a false alarm more likely.
    """
    for words, looks in (("calibration", before), ("recent footage", now)):
        if len(looks) < FEWEST_BLOCKS:
            raise DataError(
                f"{words}: expected at least {FEWEST_BLOCKS} blocks of {BLOCK_S:g} seconds with "
                f"people, got {len(looks)}",
                hint="give more footage",
            )
    every = np.concatenate([before.values, now.values])
    deviation = every.std(axis=0)
    z = (every - every.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    rng = np.random.default_rng(seed)
    order = np.arange(len(z))[::-1]  # the true assignment first: recent blocks are the last
    dealt = np.stack([order, *(rng.permutation(len(z)) for _ in range(PERMUTATIONS))]) < len(now)
    weights = np.where(dealt, 1 / len(now), -1 / len(before))
    largest = np.abs(weights @ z).max(axis=1)
    together = np.square(weights @ _evened(z)).sum(axis=1)
    rarest = np.minimum(_rarity(largest), _rarity(together))
    sizes = weights[0] @ z
    means = before.values.mean(axis=0), now.values.mean(axis=0)
    changes = [
        Shift(name, float(was), float(is_), float(size))
        for name, was, is_, size in zip(before.names, *means, sizes, strict=True)
    ]
    changes.sort(key=lambda change: -abs(change.size))
    return Drift(float((rarest <= rarest[0]).mean()), tuple(changes))


def _evened(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Decorrelate the statistics of blocks and scale them to nearly equal variance."""
    width, turn = np.linalg.eigh(np.cov(z.T))
    return np.asarray(z @ turn / np.sqrt(width + LEAST_VARIANCE))


def _rarity(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fraction of assignments with a difference at least as large as each one's."""
    return (len(sizes) - np.searchsorted(np.sort(sizes), sizes - 1e-9)) / len(sizes)


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """Statistics of windows, collected while a clip is scored."""

    detector: Detector
    parts: list[NDArray[np.float64]] = field(default_factory=list)

    @property
    def components(self) -> int:
        return min(COMPONENTS, self.detector.config.K)

    @property
    def columns(self) -> tuple[str, ...]:
        """What is known of a window beside its score: noise scales and PC-space, or views."""
        config, K = self.detector.config, self.components
        if config.views:
            return tuple(view.view_name for view in config.views)
        return (
            *(f"energy {i}" for i in range(1, config.L + 1)),
            *(f"component {k}" for k in range(1, K + 1)),
            *(f"spread of component {k}" for k in range(1, K + 1)),
            "jitter of joints",
        )

    def score_windows(self, windows: Windows) -> WindowScores:
        """Score windows; collect their positions in PC-space and the jitter of their joints."""
        if self.detector.config.views:
            return self.detector.score_windows(windows)
        pi_x = self.detector.model.space.project(windows.x)
        first = pi_x[:, : self.components].astype(np.float64)
        shaking = np.diff(windows.x, n=min(2, windows.x.shape[3] - 1), axis=3)
        jitter = np.square(shaking, dtype=np.float64).mean(axis=(1, 2, 3))
        self.parts.append(np.column_stack([first, np.square(first), jitter]))
        return self.detector.score_windows(windows)

    def looks(self, windows: WindowScores, fps: float) -> BlockStats:
        """Means over blocks, with squares as logarithms."""
        config, names = self.detector.config, ("score", "confidence", *self.columns)
        nothing = np.empty((len(windows), len(names) - 2 - config.columns))
        kept = np.concatenate(self.parts) if self.parts else nothing
        each = np.column_stack([windows.A, windows.c, windows.E, kept])
        block = (windows.frame / fps // BLOCK_S).astype(np.int64)
        rows = [
            each[block == number].mean(axis=0)
            for number, count in zip(*np.unique(block, return_counts=True), strict=True)
            if count >= FEWEST_WINDOWS
        ]
        values = np.array(rows).reshape(len(rows), len(names))
        squares = slice(2 + config.columns + (0 if config.views else self.components), None)
        values[:, squares] = np.log(np.maximum(values[:, squares], 1e-12))
        return BlockStats(names, values)


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
