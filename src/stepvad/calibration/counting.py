"""Counts of events in normal footage at every threshold, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from stepvad.errors import DataError
from stepvad.incidents.events import Rules, find, that_matter
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip

BLOCK_S = 300.0
"""Footage is cut into blocks of this many seconds, which are assumed to be independent."""
MAX_HOURS = 10_000
"""Longest clip, more than a year."""
LEVELS = 100
"""Thresholds at which events are counted."""
LOWEST = 0.95
"""The lowest threshold is this quantile of the scores of all windows."""


@dataclass(frozen=True, slots=True, eq=False)
class NormalClip:
    """Normal footage of one clip with its scores."""

    windows: WindowScores
    n_frames: int
    fps: float
    first_frame: int = 0
    """The first frame watched; anything before it does not count as footage without events."""

    @classmethod
    def of(cls, clip: Clip, scores: Scores, fps: float | None = None) -> NormalClip:
        """A clip with its scores; `fps` is for clips without a rate."""
        return cls(scores.windows, clip.n_frames, clip.rate(fps), clip.first_frame)

    @property
    def watched_s(self) -> tuple[float, float]:
        """Start and end of the time in which people could have been seen."""
        return self.first_frame / self.fps, self.n_frames / self.fps


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """False events at every threshold level, `(B, J)`, in blocks of `hours (B,)`."""

    levels: NDArray[np.float64]
    """Ascending, `(J,)`."""
    events: NDArray[np.int64]
    """Never fewer at a lower level."""
    hours: NDArray[np.float64]

    @classmethod
    def of(cls, clips: Sequence[NormalClip], levels: NDArray[np.float64], rules: Rules) -> Counted:
        """Count the events of clips; `rules` apply except for their threshold."""
        parts = [_count(clip, levels, rules) for clip in clips]
        events = np.concatenate([events for events, _ in parts])
        # A long event may split at a higher threshold: count as many at the lower one.
        events = np.maximum.accumulate(events[:, ::-1], axis=1)[:, ::-1]
        return cls(levels, events, np.concatenate([hours for _, hours in parts]))

    @property
    def total_hours(self) -> float:
        """Hours of footage counted."""
        return float(self.hours.sum())

    @property
    def totals(self) -> NDArray[np.int64]:
        """Events of all blocks at every level, `(J,)`."""
        return self.events.sum(axis=0)

    def at(self, threshold: float) -> int:
        """Events left at a threshold; never underestimated."""
        level = int(np.searchsorted(self.levels, threshold, side="right")) - 1
        return int(self.totals[max(level, 0)]) if threshold < self.levels[-1] else 0

    def joined(self, others: Iterable[Counted]) -> Counted:
        """Append blocks that were counted at the same levels."""
        every = [self, *others]
        return replace(
            self,
            events=np.concatenate([one.events for one in every]),
            hours=np.concatenate([one.hours for one in every]),
        )

    def dispersion(self, level: int) -> float:
        """Variance of block counts relative to rare independent events, at least 1.

        Incidents cluster: a burst of events in one block is weaker evidence than as many events
        in separate blocks.
        """
        counts = self.events[:, level]
        expected = counts.sum() * self.hours / self.total_hours
        if len(counts) < 2 or not counts.any():
            return 1.0
        return max(1.0, float(((counts - expected) ** 2 / expected).sum() / (len(counts) - 1)))


def upper_rate(events: int, hours: float, confidence: float, dispersion: float = 1.0) -> float:
    """Upper confidence bound on the hourly rate, given `events` in `hours`.

    Exact for Poisson counts; a dispersion of d widens the bound as if there were d times less data.
    """
    mean = chi2.ppf(confidence, 2 * (events / dispersion + 1)) / 2
    return float(dispersion * mean / hours)


def levels_of(scores: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Thresholds to count at, from one that many windows exceed up to the highest score."""
    every = np.concatenate([np.empty(0, np.float32), *scores])
    highest = float(every.max()) if len(every) else 0.0
    if highest <= 0:
        raise DataError(
            f"expected footage with people who are scored above 0, got {len(every):,} windows "
            "and none above",
            hint="calibrate with footage of the camera in which people move normally",
        )
    lowest = max(float(np.quantile(every, LOWEST)), 0.01 * highest)
    return np.geomspace(lowest, highest, LEVELS)


def _count(
    clip: NormalClip, levels: NDArray[np.float64], rules: Rules
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Events of one clip by block and level, and the hours of its blocks."""
    begin, end = clip.watched_s
    if end - begin > MAX_HOURS * 3600:
        raise DataError(
            f"expected clips of up to {MAX_HOURS:,} hours, got {(end - begin) / 3600:.3g}",
            hint="check the frames per second, or split the recording",
        )
    edges = np.linspace(begin, end, max(round((end - begin) / BLOCK_S), 1) + 1)
    some = that_matter(clip.windows, replace(rules, threshold=float(levels[0])))
    events = np.zeros((len(edges) - 1, len(levels)), dtype=np.int64)
    for number, level in enumerate(levels.tolist()):
        if not len(some) or level > some.A.max():
            break
        starts = [event.first_s for event in find(some, clip.fps, replace(rules, threshold=level))]
        events[:, number] = np.histogram(starts, edges)[0]
    return events, np.diff(edges) / 3600
