"""One round of learning: what there is to learn from, a fit, and a calibration on newer poses.

A site runs it in a process of its own at low priority: watching comes first.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

import numpy as np

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, StepvadError, silent
from stepvad.events.calibration import (
    Calibration,
    ScoredFootage,
    calibration_path,
    write_calibration,
)
from stepvad.events.marks import repeated
from stepvad.events.record import Mark, Record, Review
from stepvad.events.rules import find_events
from stepvad.events.threshold import duration
from stepvad.formats import read_clip, tracks
from stepvad.poses import Clip
from stepvad.site.learning.versions import Amount, Learned, Versions
from stepvad.site.marks import DIRECTORY as MARKS
from stepvad.site.marks import people_of, skip_unreadable
from stepvad.site.processes import die_with_parent
from stepvad.site.recorder import RECORDINGS, Recording, find_recordings
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import MODEL_NAME, SiteSettings
from stepvad.site.store.events import open_store
from stepvad.windows.runs import at_rate

logger = logging.getLogger(__name__)

NICE = 10
MARGIN_S = 2.0
"""Seconds around an event that are left out with it."""
SEEN = 0.5
"""Footage in which people were seen in less than this share of their frames is left out."""
HOUR_S = 3600.0
AGAIN_S = 600.0
"""Seconds until an unreadable file is tried again: it may be damaged, or the disk busy or away."""

BLOCK_S = 600.0
"""Recordings of a camera that begin within ten minutes stay together: people linger."""
MANY_BLOCKS = 12
"""Below so many blocks, recordings are split one by one."""
HOLD_OUT = 3
"""One in so many blocks is held out."""
FOOTAGE_HOURS = 48.0
"""Maximum footage to fit on, roughly."""
FILE_HOURS = 1 / 30
"""Hours of one recording, roughly: two minutes."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Time of a camera that is not to be learned from, in Unix seconds."""

    camera: str
    first: float
    last: float


@dataclass(slots=True)
class RecordingIndex:
    """The recordings of a directory with their amounts; every readable file is read once."""

    directory: Path
    _known: dict[Path, Amount] = field(default_factory=dict)
    _unread: dict[Path, float] = field(default_factory=dict)
    """Monotonic time after which an unreadable file is tried again."""

    def update(self, most: int) -> bool:
        """Read up to `most` new files and forget deleted ones; False if some are left to read."""
        # what is gone is forgotten; what could not be read is tried again later
        now = time.monotonic()
        there = {one.path for one in find_recordings(self.directory)}
        self._known = {path: amount for path, amount in self._known.items() if path in there}
        self._unread = {path: at for path, at in self._unread.items() if path in there and at > now}
        new = sorted(there - self._known.keys() - self._unread.keys())
        for path in new[:most]:
            try:
                clip = read_clip(path)
                self._known[path] = amount_of(clip) if is_well_seen(clip) else Amount()
            except (StepvadError, OSError) as error:
                self._unread[path] = now + AGAIN_S
                if path.exists():  # not deleted meanwhile
                    logger.warning("recording left out of learning for now: %s", error)
        return len(new) <= most

    def amount(self, since: float = 0.0) -> Amount:
        """Amount of the recordings read so far that begin after a time."""
        known = ((Recording.from_path(path), amount) for path, amount in self._known.items())
        return sum((amount for one, amount in known if one and one.begin > since), Amount())

    def __len__(self) -> int:
        """Number of recordings with people who were seen well enough."""
        return sum(amount.poses > 0 for amount in self._known.values())


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


def read_without(recording: Recording, avoid: Iterable[TimeSpan]) -> Clip:
    """The poses of a recording, without those in the spans to avoid."""
    clip = read_clip(recording.path)
    for span in avoid:
        if span.camera == recording.camera:
            clip = clip_without(clip, span.first - recording.begin, span.last - recording.begin)
    return clip


def clip_without(clip: Clip, first_s: float, last_s: float) -> Clip:
    """A clip without the poses between two times; tracks end before and begin again after them."""
    rate = clip.rate()
    first = int(np.ceil(max(first_s, 0.0) * rate))
    end = clip.n_frames if last_s * rate >= clip.n_frames else int(np.floor(last_s * rate)) + 1
    if first >= clip.n_frames or end <= 0 or first >= end:
        return clip
    # the rows of each track before and after the span, each a track of its own
    spans = ((0, first), (end, clip.n_frames))
    parts = [part for track in clip.tracks for span in spans if len(part := track.between(*span))]
    return replace(clip, tracks=tuple(replace(one, id=id) for id, one in enumerate(parts, 1)))


def is_well_seen(clip: Clip) -> bool:
    """True if people were seen in most frames, not in a few because the others were dropped."""
    spans = sum(int(track.frames[-1] - track.frames[0]) + 1 for track in clip.tracks if len(track))
    return spans > 0 and clip.n_poses >= SEEN * spans


def amount_of(clip: Clip) -> Amount:
    """Hours, tracks and poses of a clip."""
    return Amount(clip.n_frames / clip.rate() / HOUR_S, len(clip.tracks), clip.n_poses)


def newest(recordings: Sequence[Recording], hours: float) -> list[Recording]:
    """Recordings of up to this many hours, spread evenly over all of their time."""
    # one in so many blocks, so that all times of day are in it
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
        # too few blocks: recordings one by one
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


SMALL_POSES = 20_000
"""Below so many poses the network is small: it is replaced soon."""
SMALL_WIDTH = 256


@dataclass(frozen=True, slots=True)
class JudgedEvents:
    """The events of a site, what was said of them, and the poses of those that were judged."""

    events: list[Record]
    reviews: dict[str, Review]
    clips: dict[str, Clip]

    @classmethod
    def from_store(cls, data: Path) -> JudgedEvents:
        """Read them from the store, and the poses of older normal ones from where they are kept."""
        with open_store(data) as store:
            events, reviews = store.events(limit=None), store.reviews()
            judged = [id for id, review in reviews.items() if review.mark is not None]
            bodies = {id: body for id in judged if (body := store.poses(id)) is not None}
        kept = {path.stem: path for path in (data / MARKS).glob("*/*.parquet")}
        clips = {}
        for id in judged:
            with skip_unreadable(f"event {id}"):
                if id in bodies:
                    clips[id] = tracks.from_bytes(bodies[id])
                elif id in kept:
                    clips[id] = read_clip(kept[id])
        return cls(events, reviews, clips)

    def marked(self, mark: Mark) -> list[Clip]:
        """The poses of the people in events with this mark."""
        events = {event.id: event for event in self.events}
        return [
            people_of(events[id], clip)
            for id, clip in self.clips.items()
            if self.reviews[id].mark == mark and id in events
        ]


def fit(settings: SiteSettings, *, now: float | None = None, report: Report = silent) -> Learned:
    """Fit and calibrate a new model on the recordings, and make it the current one."""
    at = time.time() if now is None else now
    judged, versions = JudgedEvents.from_store(settings.data), Versions(settings.data)
    before = versions.current
    # one recording in three is held out, for the calibration
    recordings = newest(find_recordings(settings.data / RECORDINGS), FOOTAGE_HOURS)
    held = held_out(recordings)
    names = {one.path.stem for one in held}
    clips = _clips([one for one in recordings if one.path.stem not in names], judged, fitting=True)
    fitted = sum(map(amount_of, clips), Amount())
    if not fitted.poses:
        raise DataError(
            f"{settings.data}: expected recorded poses to learn from, got none",
            hint="people must be in view, and not only during alerts",
        )
    # alerts that were marked as false count as normal footage, as often as they weigh enough
    config = config_for(settings, fitted.poses)
    normal = [at_rate(clip, config) for clip in judged.marked("normal")]
    detector = Detector.fit(
        [*clips, *repeated(normal, fitted.poses, config.T)], config, report=report
    )
    # the threshold is measured with the model as it will be loaded
    made = versions.new_directory(at)
    detector.save(made / MODEL_NAME)
    detector = Detector.load(made / MODEL_NAME)
    calibration, measured = _calibrate(detector, held, judged, settings, report)
    write_calibration(calibration, calibration_path(made / MODEL_NAME))
    until, threshold = max(one.begin for one in recordings), calibration.threshold
    learned = Learned(
        name=made.stem,
        made=at,
        fitted=fitted,
        measured=measured,
        marks=len(normal),
        threshold=threshold.value,
        words=threshold.words,
        is_provisional=False,
        changed="",
        held_out=tuple(sorted(names)),
        until=until,
        measured_until=until,
    )
    words = changes(before, learned, detector, calibration, judged)
    replace(learned, changed=words).save(made)
    return Learned.load(versions.finish(made, keep=settings.learning.keep))


def calibrate(settings: SiteSettings, *, report: Report = silent) -> Learned:
    """Calibrate the current model on all recordings that it was not fitted on."""
    judged, versions = JudgedEvents.from_store(settings.data), Versions(settings.data)
    before = versions.current
    if before is None:
        raise DataError(f"{settings.data}: expected a learned model, got none", hint="fit one")
    # what was held out, and what was recorded since
    held = {*before.held_out}
    unseen = [
        one
        for one in find_recordings(settings.data / RECORDINGS)
        if one.path.stem in held or one.begin > before.until
    ]
    detector = Detector.load(versions.model)
    calibration, measured = _calibrate(detector, unseen, judged, settings, report)
    write_calibration(calibration, calibration_path(versions.model))
    threshold = calibration.threshold
    after = replace(
        before,
        measured=measured,
        threshold=threshold.value,
        words=threshold.words,
        is_provisional=False,
        measured_until=max(one.begin for one in unseen),
    )
    after.save(versions.model.parent.resolve())
    return after


def config_for(settings: SiteSettings, poses: int) -> Config:
    """The settings of a fit: by the clock, at the usual rate of the cameras."""
    # the usual rate of the cameras, and a small network for little footage
    rate = statistics.mode(camera.rate for camera in settings.cameras)
    config = replace(Config.footage(), fps=rate)
    return config if poses >= SMALL_POSES else replace(config, width=SMALL_WIDTH)


def _clips(recordings: Sequence[Recording], judged: JudgedEvents, *, fitting: bool) -> list[Clip]:
    """The poses of recordings, without right alerts and, to fit, without unjudged ones."""
    # right alerts are never learned from, and unjudged ones are not fitted
    avoid = spans_of(judged.events, judged.reviews, unjudged=fitting)
    clips = []
    for one in recordings:
        with skip_unreadable(f"recording {one.path.name}"):
            clips += [clip] if is_well_seen(clip := read_without(one, avoid)) else []
    return clips


def _calibrate(
    detector: Detector,
    recordings: Sequence[Recording],
    judged: JudgedEvents,
    settings: SiteSettings,
    report: Report,
) -> tuple[Calibration, Amount]:
    """Thresholds from recordings that the model was not fitted on."""
    footage, amount = ScoredFootage(), Amount()
    for camera in sorted({one.camera for one in recordings}):
        # each camera has a threshold of its own
        own = [one for one in recordings if one.camera == camera]
        clips = _clips(own, judged, fitting=False)
        amount = sum(map(amount_of, clips), amount)
        footage.score(detector, camera, clips, report=report)
    rate = settings.learning.alerts_per_day
    return footage.calibrate(detector.sha256, alerts_per_day=rate), amount


def changes(
    before: Learned | None,
    after: Learned,
    detector: Detector,
    calibration: Calibration,
    judged: JudgedEvents,
) -> str:
    """A summary for an operator: footage, promise, and judged alerts scored again."""
    amount = after.fitted + after.measured
    seen = f"Learned from {duration(amount.hours)} of motion and {amount.people} tracks of people"
    if before is not None:
        seen += f" (before: {duration((before.fitted + before.measured).hours)})"
    said = [seen, f"Threshold: {after.words}"]
    normal, right = judged.marked("normal"), judged.marked("right")
    if normal:
        quiet = len(normal) - _raised(normal, detector, calibration)
        said.append(f"{quiet} of {len(normal)} alerts marked as normal would not come again")
    if right:
        again = _raised(right, detector, calibration)
        said.append(f"{again} of {len(right)} right alerts would come again")
    return ". ".join(said) + "."


def _raised(clips: Sequence[Clip], detector: Detector, calibration: Calibration) -> int:
    """Number of clips in which the model still finds an event."""
    raised = 0
    for clip in clips:
        try:
            scores = detector.score(clip)
        except StepvadError:  # too short for a window
            continue
        raised += bool(find_events(clip, scores, calibration.rules))
    return raised


def main() -> None:
    """Fit or calibrate the model of a site, then exit; errors go to stderr."""
    parser = argparse.ArgumentParser(prog="stepvad.site.learning.rounds")
    parser.add_argument("kind", choices=("fit", "calibrate"))
    parser.add_argument("settings", type=Path)
    options = parser.parse_args()
    die_with_parent()
    os.nice(NICE)
    run = fit if options.kind == "fit" else calibrate
    try:
        run(load(options.settings))
    except StepvadError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
