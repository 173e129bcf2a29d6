"""Ledger of a camera: how long it was watched, and how high the events of that time peaked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from scipy.ndimage import grey_closing

from stepvad.codec import Positive
from stepvad.events.rules import SLACK_S, Rules, Time
from stepvad.model.scoring import WindowScores

DAYS = 7
"""Days of footage that a ledger of a site holds."""
HOUR_S, DAY_S = 3600.0, 86400.0
MOST_PEAKS, FILE_S = 20, 120.0
"""Most quiet peaks kept of a file, or of two minutes of a long one. A limit that more of them
exceed would alert every few seconds: only the highest say where it may be."""
MOST_IN_AN_HOUR = 60
"""Most quiet peaks kept of an hour, of thirty files: one alert a minute."""

TimeSpan = tuple[float, float]
"""Begin and end, in seconds."""
Peaks = tuple[Positive, ...]


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest limit at which an event would still be raised, and when that is, in seconds."""

    limit: float
    first_s: float
    last_s: float

    def overlaps(self, span: TimeSpan, slack_s: float = 0.0) -> bool:
        """True if it is within a span, or within some slack of it."""
        return self.first_s <= span[1] + slack_s and self.last_s >= span[0] - slack_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Footage of a camera: a file, a clip or an hour, with people in it or not."""

    begin: Time = 0.0
    """Unix time; 0 if unknown."""
    watched_s: Annotated[float, Meta(ge=0, le=1e12)]
    """How long the camera was watched."""
    quiet: Peaks = ()
    """Peaks of events that were not raised."""
    alerts: Peaks = ()
    """Peaks of alerts that were raised and that nobody marked as right."""

    @classmethod
    def from_windows(
        cls,
        windows: WindowScores,
        fps: float,
        rules: Rules,
        *,
        watched_s: float,
        begin: float = 0.0,
        alerts: Sequence[TimeSpan] = (),
        left_out: Sequence[TimeSpan] = (),
    ) -> LedgerEntry:
        """An entry of scored footage; spans are by the clock of `begin`.

        `alerts` are those raised and not marked right: the highest event in each counts for it.
        `left_out`, right alerts, leave no trace; widen them by what a window sees.
        """
        alerts = [(first - begin, last - begin) for first, last in alerts]
        left_out = [(first - begin, last - begin) for first, last in left_out]
        peaks = peaks_of(windows, fps, rules, left_out=left_out)
        # what is so near to an alert would be one event with it
        near = [[peak for peak in peaks if peak.overlaps(one, rules.gap_s)] for one in alerts]
        raised = {id(peak) for some in near for peak in some}
        quiet = [peak.limit for peak in peaks if id(peak) not in raised]
        most = MOST_PEAKS * max(round(watched_s / FILE_S), 1)
        return cls(
            begin=begin,
            watched_s=watched_s,
            quiet=tuple(quiet[:most]),
            alerts=tuple(some[0].limit for some in near if some),
        )

    @property
    def highest(self) -> float:
        """Its highest peak; 0 if there is none."""
        return max((*self.quiet, *self.alerts), default=0.0)


def by_hour(entries: Iterable[LedgerEntry], since: float = 0.0) -> tuple[LedgerEntry, ...]:
    """Join entries that begin in the same hour, from the hour of `since` on, in their order.

    Seconds watched add up: those of files, or of a clock with the files' at 0.
    """
    hours: dict[float, list[LedgerEntry]] = {}
    for one in entries:
        if (hour := one.begin // HOUR_S * HOUR_S) > since - HOUR_S:
            hours.setdefault(hour, []).append(one)
    return tuple(
        LedgerEntry(
            begin=hour,
            watched_s=sum(one.watched_s for one in some),
            quiet=tuple(sorted((p for one in some for p in one.quiet), reverse=True))[
                :MOST_IN_AN_HOUR
            ],
            alerts=tuple(sorted((p for one in some for p in one.alerts), reverse=True)),
        )
        for hour, some in sorted(hours.items())
    )


def days_since_as_strange(entries: Iterable[LedgerEntry], peak: float, at: float) -> float:
    """Days from the latest footage with a higher peak to a time; else from the first footage.

    As in *the strangest of the last 9 days*.
    """
    past = [one for one in entries if one.begin <= at]
    higher = [one.begin for one in past if one.highest > peak]
    return (at - max(higher or [min((one.begin for one in past), default=at)])) / DAY_S


def peaks_of(
    windows: WindowScores, fps: float, rules: Rules, *, left_out: Sequence[TimeSpan] = ()
) -> list[Peak]:
    """The events of a clip with the highest limit at which each is raised, highest first.

    `rules` apply but for their threshold. Two events that are one at a lower limit count as two.
    `left_out` are times in seconds whose windows are ignored.
    """
    counts = np.ones(len(windows), np.bool_)
    for first, last in left_out:
        counts &= (windows.frame < first * fps) | (windows.frame > last * fps)
    # windows of one person after another, each in time, (N,)
    order = np.lexsort((windows.frame, windows.track_id))
    order = order[counts[order]]
    muted = rules.muted(windows)[order]
    # muted windows calm nobody, but let people start anew who have not lasted: their number so far
    n_muted = np.cumsum(muted, dtype=np.int64)[~muted]
    order = order[~muted]
    if not len(order):
        return []
    track, frame = windows.track_id[order], windows.frame[order]
    A = np.maximum(windows.A[order].astype(np.float64), 0.0)
    gap = int((rules.gap_s + SLACK_S) * fps)
    begins = np.concatenate(([True], (np.diff(track) != 0) | (np.diff(frame) > gap)))
    raised = _raised(A, frame, begins, n_muted, rules, fps)
    # the highest limit at which each window belongs to an event: the one raised there, or one that
    # was raised before and has not been calm since, (N,)
    level, levels = 0.0, []
    rows = zip(raised.tolist(), (A / rules.release).tolist(), begins.tolist(), strict=True)
    for new, stays, is_new in rows:
        level = max(new, 0.0 if is_new else min(level, stays))
        levels.append(level)
    return _maxima(frame, np.array(levels), gap, fps)


def _raised(
    A: NDArray[np.float64],
    frame: NDArray[np.int64],
    begins: NDArray[np.bool_],
    n_muted: NDArray[np.int64],
    rules: Rules,
    fps: float,
) -> NDArray[np.float64]:
    """The highest limit at which somebody has lasted with each window, `(N,)`; 0 if at none.

    The window in which they pass the limit is above it, all others since are above the calm level.
    """
    lasting = max(math.ceil((rules.min_s - SLACK_S) * fps), 0)
    # the first window so late after each one, of the same run: past its end if there is none, (N,)
    run, n = np.cumsum(begins), len(A)
    far = int(frame.max()) + lasting + 1
    key = run * far + frame
    last = np.searchsorted(key, key + lasting)
    ok = (last < n) & (run[np.minimum(last, n - 1)] == run)
    ok &= n_muted[np.minimum(last, n - 1)] == n_muted
    first, last = np.flatnonzero(ok), last[ok]
    # the lowest score after the first, up to the last; infinite if they are one, (n,)
    padded = np.append(A, np.inf)
    pairs = np.stack((np.minimum(first + 1, n), last + 1), axis=1).ravel()
    lowest = np.minimum.reduceat(padded, pairs)[::2] if len(pairs) else np.empty(0)
    lowest = np.where(last > first, lowest, np.inf)
    raised = np.zeros(n)
    np.maximum.at(raised, last, np.minimum(A[first], lowest / rules.release))
    return raised


def _maxima(
    frame: NDArray[np.int64], levels: NDArray[np.float64], gap: int, fps: float
) -> list[Peak]:
    """The maxima of the levels of all people over time, silences of up to `gap` frames bridged."""
    # one level a frame; a longer silence than events outlast is as good as a short one
    some, at = np.unique(frame, return_inverse=True)
    place = gap + 1 + np.concatenate(([0], np.cumsum(np.minimum(np.diff(some), gap + 1))))
    line = np.zeros(int(place[-1]) + gap + 2)
    np.maximum.at(line, place[at], levels)
    # at each limit, events closer than the gap are one: a closing of the line
    closed = grey_closing(line, size=(gap,)) if gap > 1 else line
    starts = np.concatenate(([0], np.flatnonzero(np.diff(closed)) + 1))
    heights = closed[starts]
    is_top = np.zeros(len(starts), np.bool_)
    is_top[1:-1] = (heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:])
    peaks = []
    for number in np.flatnonzero(is_top).tolist():
        first, end = np.searchsorted(place, (starts[number], starts[number + 1]))
        times = float(some[first] / fps), float(some[end - 1] / fps)
        peaks.append(Peak(float(heights[number]), *times))
    return sorted(peaks, key=lambda peak: -peak.limit)
