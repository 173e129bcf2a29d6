"""From scores to events: one per incident, however many people take part, at any frame rate."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from stepvad.codec import Integer, Number
from stepvad.errors import ConfigError
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip

ChangeKind = Literal["new", "update", "end"]
SLACK_S = 1e-6
"""Tolerance of the rules: times of frames are not exact."""
LATE_S = 60.0
"""No window arrives later than this after its last frame."""
MOST_BLIND_S = 10.0
"""Most time without frames that an event outlasts."""
LATEST_S = 1e12
"""Upper bound for times in untrusted data, by any clock."""
Time = Annotated[float, Meta(ge=-LATEST_S, le=LATEST_S)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules that turn scores into events. Times are in seconds.

    Examples:
        >>> Rules(threshold=2.5, min_s=1.0).release
        0.8
    """

    threshold: float
    release: float = 0.8
    """Fraction of the threshold below which a person is calm again."""
    min_s: float = 0.4
    """How long a person must stay above the threshold to count."""
    gap_s: float = 3.0
    """Silence after which an event ends; anything sooner joins it, no matter which person."""
    max_interpolated: float = 0.5
    """Largest share of interpolated poses; a window with more begins and raises no event."""

    def __post_init__(self) -> None:
        """Reject rules that yield no events, or one that never ends."""
        if not (np.isfinite(self.threshold) and self.threshold > 0):
            raise ConfigError(
                f"threshold: expected a number above 0, got {self.threshold}",
                hint="0 is the mean of normal footage; calibrate finds a threshold",
            )
        if not 0 < self.release <= 1:
            raise ConfigError(f"release: expected more than 0 and at most 1, got {self.release}")
        for name, value in (("min_s", self.min_s), ("gap_s", self.gap_s)):
            if not (np.isfinite(value) and value >= 0):
                raise ConfigError(f"{name}: expected at least 0 seconds, got {value}")
        if not 0 <= self.max_interpolated <= 1:
            raise ConfigError(
                f"max_interpolated: expected a share from 0 to 1, got {self.max_interpolated}"
            )

    @property
    def calm(self) -> float:
        """The score below which a person is calm again."""
        return self.release * self.threshold

    def muted(self, windows: WindowScores) -> NDArray[np.bool_]:
        """Windows with too many interpolated poses to count for events, `(N,)`."""
        return windows.seen < 1 - self.max_interpolated - 1e-6  # shares are rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One incident: when it happened, who took part, and its peak score.

    Examples:
        >>> event = find_events(clip, detector.score(clip), Rules(threshold=1.0))[0]
        >>> event.first_s <= event.peak_s <= event.last_s
        True
    """

    first_s: Time
    last_s: Time
    tracks: Annotated[tuple[Integer, ...], Meta(min_length=1)]
    """In the order in which they joined."""
    peak: Number
    peak_s: Time
    peak_track: Integer

    def joined(self, other: Event) -> Event:
        """Merge both; start and id remain this event's, even if `other` starts earlier."""
        higher = other if other.peak > self.peak else self
        same = self.tracks == other.tracks
        return Event(
            first_s=self.first_s,
            last_s=max(self.last_s, other.last_s),
            tracks=self.tracks if same else tuple(dict.fromkeys(self.tracks + other.tracks)),
            peak=higher.peak,
            peak_s=higher.peak_s,
            peak_track=higher.peak_track,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """One step in the life of an event: new, update or end."""

    kind: ChangeKind
    event: Event


@dataclass(frozen=True, slots=True)
class EventDetectorState:
    """State of an `EventDetector`."""

    alarmed: tuple[tuple[Integer, Event], ...]
    """Tracks that passed the threshold and are not calm again, each with its candidate event."""
    open: Event | None
    blind_s: Time = 0.0
    """Time since the latest high score of the open event in which nobody could be judged."""


class EventDetector:
    """Detects the events of one camera as its scores arrive."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._alarmed: dict[int, Event] = {}
        """Candidate event of each person who passed the threshold and is not calm again."""
        self._open: Event | None = None
        self._blind_s = 0.0
        """Time since the latest high score of the open event in which nobody could be judged."""

    def use(self, rules: Rules) -> None:
        """Switch to other rules; people who never reached their threshold count as calm."""
        self.rules = rules
        self._alarmed = {
            track: event for track, event in self._alarmed.items() if event.peak >= rules.threshold
        }

    def state(self) -> EventDetectorState:
        """A snapshot of its state."""
        return EventDetectorState(tuple(self._alarmed.items()), self._open, self._blind_s)

    def restore(self, state: EventDetectorState) -> None:
        """Resume from `state`."""
        self._alarmed, self._open = dict(state.alarmed), state.open
        self._blind_s = state.blind_s

    def peaks(self) -> list[Event]:
        """Events whose peak may become that of a later event, besides future scores."""
        return [*self._alarmed.values(), *([] if self._open is None else [self._open])]

    def miss(self, seconds: float) -> None:
        """Note time in which nobody could be judged; it is no silence that ends an event."""
        if self._open is not None:
            self._blind_s = min(self._blind_s + seconds, MOST_BLIND_S)

    def update(self, now_s: float, windows: WindowScores, fps: float) -> list[Change]:
        """Process the scores of one frame and return the changes, including events that ended.

        Windows of frames in which a person was missed arrive late; an event that had ended by the
        previous frame stays ended.
        """
        windows = blank_muted(windows, self.rules)
        # by time, then by person, as the windows of a finished clip are sorted
        order = np.lexsort((windows.track_id, windows.frame))
        columns = (windows.track_id, windows.frame / fps, windows.A)
        arrived = zip(*(column[order].tolist() for column in columns), strict=True)
        changes = [*self.step(now_s - 1 / fps, arrived), *self._pass_time(now_s)]
        # no window can arrive any more that joins these candidates
        self._alarmed = {
            track: event
            for track, event in self._alarmed.items()
            if not self._is_past(event, now_s - LATE_S)
        }
        return changes

    def step(
        self, before_s: float, arrived: Iterable[tuple[int, float, float]]
    ) -> Iterator[Change]:
        """Process the track, time and score of windows that arrived after `before_s`."""
        yield from self._pass_time(before_s)
        for track, time_s, score in arrived:
            yield from self._observe(track, time_s, score)

    def _observe(self, track: int, time_s: float, score: float) -> Iterator[Change]:
        """Process one score and yield the changes; NaN is that of a muted window."""
        if math.isnan(score):
            # a muted window neither calms a person nor counts; before an event, they start anew
            candidate = self._alarmed.get(track)
            if candidate is not None and not self._lasts(candidate):
                del self._alarmed[track]
            return
        candidate = self._candidate(track, time_s, score)
        if candidate is None or not self._lasts(candidate):
            return
        # the event may have ended before this late window
        yield from self._pass_time(time_s)
        before, now = self._open, self.insert(candidate)
        if before is None:
            yield Change("new", now)
        elif (before.tracks, before.peak) != (now.tracks, now.peak):
            yield Change("update", now)

    def insert(self, event: Event) -> Event:
        """Open an event, or join it to the open one; return the open one."""
        before = self._open
        self._open = event if before is None else before.joined(event)
        if before is None or self._open.last_s > before.last_s:
            self._blind_s = 0.0
        return self._open

    def _pass_time(self, now_s: float) -> Iterator[Change]:
        """End the open event if it has been silent for long enough."""
        if self._open is not None and self._is_past(self._open, now_s - self._blind_s):
            yield from self.finish()

    def finish(self) -> Iterator[Change]:
        """End the open event; people who continue in late windows start a new one."""
        if self._open is not None:
            over, self._open = self._open, None
            # a candidate that is part of the event ends with it, unless it began later
            self._alarmed = {
                track: candidate
                for track, candidate in self._alarmed.items()
                if track not in over.tracks or candidate.first_s > over.last_s
            }
            yield Change("end", over)

    def _is_past(self, event: Event, now_s: float) -> bool:
        """True if it is too late now for anything to join the event."""
        return now_s - event.last_s > self.rules.gap_s + SLACK_S

    def _lasts(self, event: Event) -> bool:
        """True if a person was above the threshold for long enough."""
        return event.last_s - event.first_s >= self.rules.min_s - SLACK_S

    def _candidate(self, track: int, time_s: float, score: float) -> Event | None:
        """The person's candidate event since passing the threshold; None if calm."""
        before = self._alarmed.pop(track, None)
        if before is not None and self._is_past(before, time_s):
            before = None
        if not score >= (self.rules.threshold if before is None else self.rules.calm):
            return None
        now = Event(
            first_s=time_s,
            last_s=time_s,
            tracks=(track,),
            peak=score,
            peak_s=time_s,
            peak_track=track,
        )
        self._alarmed[track] = now if before is None else before.joined(now)
        return self._alarmed[track]


def find_events(
    clip: Clip, scores: Scores, rules: Rules | float, *, fps: float | None = None
) -> list[Event]:
    """The events of a finished clip, as a site watching it would report them.

    `rules` turn scores into events; a number is a threshold with the default rules. `fps` is the
    frame rate of a clip that does not store one. Times count from the start of the clip.

    Examples:
        >>> len(find_events(clip, detector.score(clip), 1000.0))
        0
    """
    chosen = rules if isinstance(rules, Rules) else Rules(threshold=rules)
    return events_in(scores.windows, clip.rate(fps), chosen, clip)


def events_in(
    windows: WindowScores, fps: float, rules: Rules, clip: Clip | None = None
) -> list[Event]:
    """The events of a finished clip, as an `EventDetector` finds them.

    With `clip`, windows arrive when a `Stream` would return them: those of missed poses with the
    next pose. Without it, each arrives with its last frame, which occasionally merges two events.
    """
    changes = changes_of(windows, fps, rules, clip)
    return [change.event for _, change in changes if change.kind == "end"]


def changes_of(
    windows: WindowScores, fps: float, rules: Rules, clip: Clip | None = None
) -> Iterator[tuple[float, Change]]:
    """Yield the changes of the events of a clip, and when each is known, in seconds."""
    detector = EventDetector(rules)
    some = relevant(windows, rules)
    # the frame at which a stream returns each window, that of the person's next pose, (n,)
    arrival = some.frame.copy()
    for track in () if clip is None else clip.tracks:
        own = some.track_id == track.id
        arrival[own] = track.frames[np.searchsorted(track.frames, some.frame[own])]
    # windows in the order in which they arrive, and by time and person within a frame
    order = np.lexsort((some.track_id, some.frame, arrival))
    columns = (arrival, some.track_id, some.frame / fps, some.A)
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    now = -1
    for now, group in groupby(rows, key=lambda row: row[0]):
        arrived = ((track, time_s, score) for _, track, time_s, score in group)
        yield from ((now / fps, change) for change in detector.step((now - 1) / fps, arrived))
    yield from ((now / fps, change) for change in detector.finish())


def without_muted(windows: WindowScores, rules: Rules) -> WindowScores:
    """The windows that count for events."""
    muted = rules.muted(windows)
    return windows.part(np.flatnonzero(~muted)) if muted.any() else windows


def blank_muted(windows: WindowScores, rules: Rules) -> WindowScores:
    """The windows, the scores of muted ones being NaN."""
    muted = rules.muted(windows)
    if not muted.any():
        return windows
    return replace(windows, A=np.where(muted, np.float32(np.nan), windows.A))


def relevant(windows: WindowScores, rules: Rules) -> WindowScores:
    """Scores above the calm level and those right after them, sorted by time, muted ones NaN.

    They yield the same events as all scores, at this threshold and at any higher one.
    """
    windows = blank_muted(windows, rules)
    # windows of one person after another, each in time, (N,)
    by_track = np.lexsort((windows.frame, windows.track_id))
    score, track_id = windows.A[by_track], windows.track_id[by_track]
    above = np.float32(rules.calm) - 1e-6 * abs(rules.calm) <= score
    # the row of the latest window that is not muted, before each window; -1 if there is none
    rows = np.where(np.isnan(score), -1, np.arange(len(score)))
    latest = np.concatenate(([-1], np.maximum.accumulate(rows)))[:-1]
    # the first window of the same person after a high one ends that person's alarm
    follows = (latest >= 0) & above[latest] & (track_id[latest] == track_id)
    kept = by_track[above | follows]
    return windows.part(kept[np.lexsort((windows.track_id[kept], windows.frame[kept]))])


DAY_MIN = 24 * 60
_SPAN = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class WatchHours:
    """Spans of the day, in minutes since midnight: from the first one on, before the second.

    A span that ends before it starts goes over midnight. Without any span it is never time.
    """

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, hours: Sequence[str]) -> Self:
        """Parse spans such as `08:00-18:00`."""
        return cls(tuple(_minutes(one) for one in hours))

    def include(self, wall: float) -> bool:
        """True if a Unix time is in one of the spans, by the clock on the wall."""
        local = time.localtime(wall)
        now = 60 * local.tm_hour + local.tm_min
        # a span that goes over midnight is what lies outside the hours between its ends
        return any(
            first <= now < last if first < last else now >= first or now < last
            for first, last in self.spans
        )


def _minutes(text: str) -> tuple[int, int]:
    """Parse one span into the minutes since midnight at which it begins and ends."""
    if found := _SPAN.fullmatch(text):
        hour, minute, last_hour, last_minute = map(int, found.groups())
        first, last = 60 * hour + minute, 60 * last_hour + last_minute
        if first < DAY_MIN and last <= DAY_MIN and first != last:
            return first, last
    raise ConfigError(
        f"expected hours as HH:MM-HH:MM, got {text!r}",
        hint='such as "08:00-18:00", or "22:00-06:00" over midnight; "00:00-24:00" is all day',
    )
