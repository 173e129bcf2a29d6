"""Drift: whether recent footage still looks like that of the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import DataError, Report, silent
from stepvad.model.scoring import Scores, WindowScores, score_clip
from stepvad.poses import Clip
from stepvad.windows.views import Windows

BLOCK_S = 30.0
"""Footage is compared in blocks of this many seconds: windows of one person are too similar."""
FEWEST_WINDOWS = 20
"""Blocks with fewer windows are dropped."""
FEWEST_BLOCKS = 5
COMPONENTS = 12
"""Number of leading components of PC-space compared."""
LEAST_VARIANCE = 0.3
"""Added to the variance of every direction: few blocks estimate the smallest ones poorly."""


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


def score_with_stats(
    detector: Detector, clip: Clip, fps: float, *, report: Report = silent
) -> tuple[Scores, BlockStats]:
    """Score a clip and compute its block statistics."""
    config, is_usual = detector.config, detector.config.scored_by == "usual"
    components = 0 if is_usual else min(COMPONENTS, config.K)
    names = ["score", "confidence"]
    if is_usual:
        names += [view.config.view_name for view in detector.views]
    else:
        names += [f"energy {i}" for i in range(1, config.L + 1)]
        names += [f"component {k}" for k in range(1, components + 1)]
        names += [f"spread of component {k}" for k in range(1, components + 1)]
        names += ["jitter of joints"]
    first_square = len(names) if is_usual else 2 + config.L + components
    parts = [np.empty((0, len(names) - 2 - detector.columns))]

    def score_windows(windows: Windows) -> WindowScores:
        """Score windows; collect their positions in PC-space and the jitter of their joints."""
        if is_usual:
            parts.append(np.empty((len(windows), 0)))
        else:
            pi_x = detector.model.space.project(windows.x)[:, :components].astype(np.float64)
            shaking = np.diff(windows.x, n=min(2, windows.x.shape[3] - 1), axis=3)
            jitter = np.square(shaking, dtype=np.float64).mean(axis=(1, 2, 3))
            parts.append(np.column_stack([pi_x, np.square(pi_x), jitter]))
        return detector.score_windows(windows)

    scores = score_clip(
        clip, detector.view_settings, detector.skeleton, score_windows, report=report
    )
    windows = scores.windows
    each = np.column_stack([windows.A, windows.c, windows.E, np.concatenate(parts)])  # (N, D)
    block = (windows.frame / fps // BLOCK_S).astype(np.int64)
    rows = [
        each[block == number].mean(axis=0)
        for number, count in zip(*np.unique(block, return_counts=True), strict=True)
        if count >= FEWEST_WINDOWS
    ]
    values = np.array(rows).reshape(len(rows), len(names))
    # squares, which vary by orders of magnitude, as logarithms
    values[:, first_square:] = np.log(np.maximum(values[:, first_square:], 1e-12))
    return scores, BlockStats(tuple(names), values)


class _Measure:
    """The distance between means of footage, in the deviations of some of its blocks.

    Two sizes: the largest difference of any statistic, and the norm of the difference after
    decorrelation, which emphasises directions in which blocks hardly differ.
    """

    def __init__(self, blocks: BlockStats) -> None:
        self._names = blocks.names
        self.mean = blocks.values.mean(axis=0)
        deviation = blocks.values.std(axis=0)
        self._deviation = np.where(deviation > 0, deviation, 1.0)
        # columns turn standardised statistics into directions of nearly equal variance, (D, D)
        width, turn = np.linalg.eigh(np.cov(self.standardise(blocks.values).T))
        self._whitening = turn / np.sqrt(width + LEAST_VARIANCE)

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Statistics `(n, D)` as deviations from the mean."""
        return (values - self.mean) / self._deviation

    def sizes(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Both sizes of standardised differences `(n, D)`, `(n, 2)`."""
        together = np.sqrt(np.square(differences @ self._whitening).sum(axis=1))
        return np.column_stack([np.abs(differences).max(axis=1), together])

    def changes(self, before: NDArray[np.float64], now: NDArray[np.float64]) -> tuple[Shift, ...]:
        """Every statistic in two means, the largest change first."""
        columns = before, now, (now - before) / self._deviation
        rows = zip(*(column.tolist() for column in columns), strict=True)
        shifts = [Shift(name, *row) for name, row in zip(self._names, rows, strict=True)]
        return tuple(sorted(shifts, key=lambda change: -abs(change.size)))


BLOCK_EVERY_S = 120.0
"""Interval between the blocks that a watched camera is judged by."""
SPAN_BLOCKS = 60
"""Blocks per span, each judged once: two hours with people."""
FEWEST_SPANS = 4
"""A calibration with fewer spans does not show how much spans of two hours vary."""
SPANS_PER_YEAR = 365 * 12
"""Spans per year of a camera that sees people day and night."""
STRIDE = round(BLOCK_EVERY_S / BLOCK_S)
"""Blocks of the calibration from one block of a watched camera to the next."""


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
        self.spans = span_count(before)
        if self.spans < FEWEST_SPANS:
            hours = FEWEST_SPANS * SPAN_BLOCKS * BLOCK_EVERY_S / 3600
            got = len(before) * BLOCK_S / 3600
            raise DataError(
                f"calibration: expected at least {hours:g} hours with people, got {got:.1f}",
                hint="calibrate with days of footage",
            )
        self.needed = spans_needed(self.spans)
        self._measure = _Measure(before)
        sizes = self._measure.sizes(_spans_apart(self._measure.standardise(before.values)))
        # both sizes relative to their usual value, so that the larger one counts
        self._usual = np.median(sizes, axis=0)
        self._bar = float((sizes / self._usual).max())
        self._waiting: list[NDArray[np.float64]] = []
        self._latest: NDArray[np.float64] | None = None
        self.spans_seen = 0
        self.in_a_row = 0

    @property
    def has_changed(self) -> bool:
        """True if enough spans in a row are outliers."""
        return self.in_a_row >= self.needed

    @property
    def missing(self) -> int:
        """Blocks until the next span is judged."""
        return SPAN_BLOCKS - len(self._waiting)

    def observe(self, blocks: BlockStats) -> None:
        """Take blocks as they arrive; every `SPAN_BLOCKS` of them are judged once."""
        for row in blocks.values:
            self._waiting.append(row)
            if not self.missing:
                self._latest = np.mean(self._waiting, axis=0)
                self._waiting = []
                self.spans_seen += 1
                sizes = self._measure.sizes(self._measure.standardise(self._latest[None]))
                is_outlier = float((sizes / self._usual).max()) > self._bar
                self.in_a_row = self.in_a_row + 1 if is_outlier else 0

    def changes(self) -> tuple[Shift, ...]:
        """Every statistic in the calibration and in the latest span, the largest change first."""
        if self._latest is None:
            return ()
        return self._measure.changes(self._measure.mean, self._latest)


def _spans_apart(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each span of the calibration minus that of the rest, `(n, D)`.

    Spans overlap, starting every quarter of a span, and hold as many blocks, as far apart, as
    those of a watched camera.
    """
    length = SPAN_BLOCKS * STRIDE
    total, n = z.sum(axis=0), len(z)
    rows = []
    for first in range(0, n - length + 1, length // 4):
        inside = z[first : first + length]
        rest = (total - inside.sum(axis=0)) / (n - length)
        rows += [inside[phase::STRIDE].mean(axis=0) - rest for phase in range(STRIDE)]
    return np.array(rows)


def span_count(before: BlockStats) -> int:
    """Number of disjoint spans of two hours in a calibration."""
    return len(before) // (SPAN_BLOCKS * STRIDE)


def spans_needed(spans: int) -> int:
    """Consecutive outliers that indicate a change, for a calibration with this many spans."""
    needed = 1
    while comb(spans + needed, needed) < SPANS_PER_YEAR:
        needed += 1
    return needed
