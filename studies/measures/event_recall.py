"""How many abnormal events are found at a rate of false alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad.events.calibration import RULES
from stepvad.events.rules import Rules, events_in
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import WindowScores, true_runs

RATES = (1.0, 6.0, 60.0)
"""False alarms per hour: one an hour, one in ten minutes, one a minute."""
LEVELS = 64
"""Thresholds that are tried, from the highest normal score downwards."""
ALARMED = 0.05
"""At most this share of the normal windows is above a threshold: no alarm lasts for ever."""
LOWEST = 1e-6
"""Lowest threshold; events need a positive one."""


@dataclass(frozen=True, slots=True, eq=False)
class WatchedClip:
    """A labelled clip with its scores."""

    windows: WindowScores
    labels: FrameLabels
    fps: float

    @property
    def normal(self) -> NDArray[np.bool_]:
        """Frames in which an alert is false, `(n,)`."""
        return self.labels.counted & ~self.labels.abnormal

    @property
    def normal_hours(self) -> float:
        """Hours of normal frames."""
        return float(self.normal.sum()) / self.fps / 3600

    def alerts(self, rules: Rules) -> list[tuple[int, int]]:
        """First frame and end (exclusive) of every event that a site would report."""
        events = events_in(self.windows, self.fps, rules)
        return [(round(one.first_s * self.fps), round(one.last_s * self.fps) + 1) for one in events]

    def false_alarms(self, rules: Rules) -> int:
        """Number of alerts that cover normal frames alone."""
        return sum(bool(self.normal[first:end].all()) for first, end in self.alerts(rules))

    def found(self, truth: NDArray[np.bool_], rules: Rules, *, late: int = 0) -> list[bool]:
        """Whether an alert overlaps each run of true frames, or starts up to `late` frames after.

        Only counted frames matter.
        """
        alerts = self.alerts(rules)
        return [
            any(first < end + late and last > begin for first, last in alerts)
            for begin, end in true_runs(truth & self.labels.counted)
        ]


def thresholds_at(
    normal: Sequence[WatchedClip], rates: Sequence[float] = RATES, *, rules: Rules = RULES
) -> list[float]:
    """The lowest threshold for each rate at which the clips have no more false alarms.

    A rate of less than one alarm in all their normal frames allows none. Thresholds are tried from
    the highest score downwards until there are too many alarms: lower ones merge alarms.
    """
    hours = sum(clip.normal_hours for clip in normal)
    allowed = [math.floor(rate * hours + 1e-9) for rate in rates]
    levels = _levels(normal)
    chosen, most = [levels[0]] * len(rates), 0
    for level in levels[1:]:
        at = replace(rules, threshold=level)
        most = max(most, sum(clip.false_alarms(at) for clip in normal))
        chosen = [level if most <= n else before for n, before in zip(allowed, chosen, strict=True)]
        if most > max(allowed, default=0):
            break
    return chosen


def _levels(clips: Sequence[WatchedClip]) -> list[float]:
    """Thresholds just above scores of normal frames, from the highest one downwards."""
    own = [clip.windows.A[clip.normal[clip.windows.frame]] for clip in clips]
    scores = np.sort(np.concatenate([np.zeros(1, np.float32), *own]))[::-1]
    rows = np.geomspace(1, max(ALARMED * len(scores), 1), LEVELS).astype(np.int64) - 1
    above = np.nextafter(scores[rows], np.float32(np.inf))
    return sorted({max(float(level), LOWEST) for level in above}, reverse=True)


@dataclass(frozen=True, slots=True, eq=False)
class EventsFound:
    """The abnormal events of some clips: the clip and length of each `(n,)`, and which were found.

    `hits (R, n)` has a row for each threshold.
    """

    n_clips: int
    clip: NDArray[np.int64]
    seconds: NDArray[np.float64]
    hits: NDArray[np.bool_]

    @classmethod
    def at(
        cls, clips: Sequence[WatchedClip], thresholds: Sequence[float], *, rules: Rules = RULES
    ) -> EventsFound:
        """The events that an alert overlaps at each threshold; an event is a run of such frames."""
        runs = [true_runs(one.labels.abnormal & one.labels.counted) for one in clips]
        lengths = [
            (end - first) / one.fps
            for one, own in zip(clips, runs, strict=True)
            for first, end in own
        ]
        hits = [
            [
                hit
                for one in clips
                for hit in one.found(one.labels.abnormal, replace(rules, threshold=at))
            ]
            for at in thresholds
        ]
        return cls(
            len(clips),
            np.repeat(np.arange(len(clips)), [len(own) for own in runs]),
            np.array(lengths, np.float64),
            np.array(hits, np.bool_).reshape(len(thresholds), len(lengths)),
        )

    def shares(self) -> NDArray[np.float64]:
        """Share of the events found at each threshold, `(R,)`; NaN if there are none."""
        return self.hits.mean(axis=1) if self.hits.size else np.full(len(self.hits), math.nan)
