"""Recorded poses of a site: what is there to learn from, and what must be left out."""

from __future__ import annotations

import calendar
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

import numpy as np

from stepvad.codec import Count
from stepvad.errors import StepvadError
from stepvad.events.record import Record, Review
from stepvad.formats import read_clip
from stepvad.poses import Clip, Track

logger = logging.getLogger(__name__)

MARGIN_S = 2.0
"""Seconds around an event that are left out with it."""
SEEN = 0.5
"""Footage in which people were seen in less than this share of their frames is left out."""
HOUR_S = 3600.0
AGAIN_S = 600.0
"""Seconds until an unreadable file is tried again: it may be damaged, or the disk busy or away."""

_STAMP = re.compile(r"(?P<camera>.+)-(?P<time>\d{8}T\d{6})-(?P<ms>\d{3})")


BLOCK_S = 600.0
"""Recordings of a camera that begin within ten minutes stay together: people linger."""
MANY_BLOCKS = 12
"""Below so many blocks, recordings are split one by one."""
HOLD_OUT = 3
"""One in so many blocks is held out."""
FILE_HOURS = 1 / 30
"""Hours of one recording, roughly: two minutes."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Time of a camera that is not to be learned from, in Unix seconds."""

    camera: str
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded file: its camera and when it begins."""

    path: Path
    camera: str
    begin: float

    @classmethod
    def of(cls, path: Path) -> Recording | None:
        """Parse the name that the recorder gave a file; None if it is another file."""
        found = _STAMP.fullmatch(path.stem)
        if found is None:
            return None
        seconds = calendar.timegm(time.strptime(found["time"], "%Y%m%dT%H%M%S"))
        return cls(path, found["camera"], seconds + int(found["ms"]) / 1000)

    def clip(self, avoid: Sequence[TimeSpan] = ()) -> Clip:
        """Its poses, without those in the spans to avoid."""
        clip = read_clip(self.path)
        for span in avoid:
            if span.camera == self.camera:
                clip = clip_without(clip, span.first - self.begin, span.last - self.begin)
        return clip


@dataclass(frozen=True, slots=True)
class Amount:
    """How much footage there is."""

    hours: float = 0.0
    """Hours of recordings with people in them."""
    people: Count = 0
    """Tracks, of which a person may have several."""
    poses: Count = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.hours + other.hours, self.people + other.people, self.poses + other.poses
        )


@dataclass(slots=True)
class RecordingIndex:
    """The recordings of a directory with their amounts; every readable file is read once."""

    directory: Path
    _known: dict[Path, Amount] = field(default_factory=dict)
    _unread: dict[Path, float] = field(default_factory=dict)
    """Monotonic time after which an unreadable file is tried again."""

    def update(self, most: int) -> bool:
        """Read up to `most` new files and forget deleted ones; False if some are left to read."""
        now = time.monotonic()
        there = {one.path for one in find(self.directory)}
        self._known = {path: amount for path, amount in self._known.items() if path in there}
        self._unread = {path: at for path, at in self._unread.items() if path in there and at > now}
        new = sorted(there - self._known.keys() - self._unread.keys())
        for path in new[:most]:
            try:
                self._known[path] = _amount(path)
            except (StepvadError, OSError) as error:
                self._set_aside(path, now + AGAIN_S, error)
        return len(new) <= most

    def amount(self, since: float = 0.0) -> Amount:
        """Amount of the recordings read so far that begin after a time."""
        known = ((Recording.of(path), amount) for path, amount in self._known.items())
        return sum((amount for one, amount in known if one and one.begin > since), Amount())

    def _set_aside(self, path: Path, until: float, error: Exception) -> None:
        self._unread[path] = until
        if path.exists():  # not deleted meanwhile
            logger.warning("recording left out of learning for now: %s", error)

    def __len__(self) -> int:
        """Number of recordings with people who were seen well enough."""
        return sum(amount.poses > 0 for amount in self._known.values())


def find(directory: Path) -> list[Recording]:
    """The recordings below a directory, oldest first."""
    found = (Recording.of(path) for path in directory.glob("*/*.parquet"))
    return sorted((one for one in found if one is not None), key=lambda one: (one.begin, one.path))


def spans_of(
    events: Iterable[Record], reviews: Mapping[str, Review], *, unjudged: bool
) -> list[TimeSpan]:
    """The time of right alerts and, with `unjudged`, of alerts that nobody judged."""
    spans = []
    for event in events:
        mark = reviews[event.id].mark if event.id in reviews else None
        if mark == "right" or (mark is None and unjudged):
            last = event.end_time if event.end_time is not None else float("inf")
            spans.append(TimeSpan(event.camera, event.start_time - MARGIN_S, last + MARGIN_S))
    return spans


def clip_without(clip: Clip, first_s: float, last_s: float) -> Clip:
    """A clip without the poses between two times; tracks end before and begin again after them."""
    rate = clip.rate()
    first = int(np.ceil(max(first_s, 0.0) * rate))
    end = clip.n_frames if last_s * rate >= clip.n_frames else int(np.floor(last_s * rate)) + 1
    if first >= clip.n_frames or end <= 0 or first >= end:
        return clip
    parts = [*_parts(clip.tracks, first, end)]
    return replace(clip, tracks=tuple(replace(one, id=id) for id, one in enumerate(parts, 1)))


def is_well_seen(clip: Clip) -> bool:
    """Whether people were seen in most frames, not in a few because the others were dropped."""
    spans = sum(int(track.frames[-1] - track.frames[0]) + 1 for track in clip.tracks if len(track))
    return spans > 0 and clip.n_poses >= SEEN * spans


def _parts(tracks: Iterable[Track], first: int, end: int) -> Iterator[Track]:
    for track in tracks:
        for part in (track.between(0, first), track.between(end, int(track.frames[-1]) + 1)):
            if len(part):
                yield part


def amount_of(clip: Clip) -> Amount:
    """Hours, tracks and poses of a clip."""
    return Amount(clip.n_frames / clip.rate() / HOUR_S, len(clip.tracks), clip.n_poses)


def _amount(path: Path) -> Amount:
    clip = read_clip(path)
    return amount_of(clip) if is_well_seen(clip) else Amount()


def newest(recordings: Sequence[Recording], hours: float) -> list[Recording]:
    """Recordings of up to this many hours, spread evenly over all of their time."""
    share = ceil(len(recordings) * FILE_HOURS / hours)
    return [
        one
        for number, block in enumerate(_blocks(recordings))
        if number % share == 0
        for one in block
    ]


def held_out(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings to calibrate on: whole blocks of time of each camera, if there are enough."""
    held: list[Recording] = []
    for camera in sorted({one.camera for one in recordings}):
        own = [one for one in recordings if one.camera == camera]
        blocks = [*_blocks(own)]
        if len(blocks) < MANY_BLOCKS:
            blocks = [[one] for one in own]
        held += [one for block in blocks[HOLD_OUT - 1 :: HOLD_OUT] for one in block]
    return held


def _blocks(recordings: Sequence[Recording]) -> Iterator[list[Recording]]:
    """Consecutive recordings that begin within `BLOCK_S`."""
    block: list[Recording] = []
    for one in recordings:
        if block and one.begin - block[0].begin >= BLOCK_S:
            yield block
            block = []
        block.append(one)
    if block:
        yield block
