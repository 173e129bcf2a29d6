"""Drift: whether recent footage still looks like that of the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
