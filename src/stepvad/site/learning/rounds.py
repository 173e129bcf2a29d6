"""One round of learning: what there is to learn from, a fit, and the ledgers of what it knows.

A site runs it in a process of its own at low priority: watching comes first.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import get_args

import numpy as np

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, StepvadError, silent
from stepvad.events.calibration import Calibration, calibration_path, write_calibration
from stepvad.events.exceptions import exceptions_for, people_of
from stepvad.events.record import Mark, Record
from stepvad.events.rules import events_in
from stepvad.events.threshold import duration
from stepvad.formats import read_clip
from stepvad.model.usual import FOLDS
from stepvad.poses import Clip
from stepvad.site.learning.ledgers import (
    JudgedEvents,
    RecordingScorer,
    by_clock,
    since,
    with_limits,
)
from stepvad.site.learning.versions import Amount, Learned, Versions
from stepvad.site.marks import skip_unreadable
from stepvad.site.processes import die_with_parent
from stepvad.site.recorder import RECORDINGS, Recording, find_recordings
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import MODEL_NAME, SiteSettings
from stepvad.site.store.events import open_store

logger = logging.getLogger(__name__)

NICE = 10
SEEN = 0.5
"""Footage in which people were seen in less than this share of their frames is left out."""
LEAST_POSES = 10
"""A shorter track is nobody to learn from."""
HOUR_S = 3600.0
AGAIN_S = 600.0
"""Seconds until an unreadable file is tried again: it may be damaged, or the disk busy or away."""

BLOCK_S = 600.0
"""Recordings that begin within ten minutes stay together: people linger."""
MANY_BLOCKS = 12
"""Below so many blocks, recordings are split one by one."""
HOLD_OUT = 3
"""Of the paper's energy, one in so many blocks is not fitted: its limit needs some unseen."""
FOOTAGE_HOURS = 48.0
"""Maximum footage to fit on, roughly."""
FILE_HOURS = 1 / 30
"""Hours of one recording, roughly: two minutes."""


@dataclass(slots=True)
class RecordingIndex:
    """The recordings of some cameras with their amounts; every readable file is read once."""

    directory: Path
    amounts: dict[Recording, Amount] = field(default_factory=dict)
    """Of recordings that could be read, oldest first; none of those seen too rarely."""
    _unread: dict[Recording, float] = field(default_factory=dict)
    """Monotonic time after which an unreadable file is tried again."""

    def update(self, cameras: Collection[str], most: int) -> bool:
        """Read up to `most` new files and forget deleted ones; False if some are left to read."""
        # what is gone is forgotten; what could not be read is tried again later
        now = time.monotonic()
        there = recordings_of(self.directory, cameras)
        known = {one: self.amounts.get(one) for one in there}
        self._unread = {one: at for one, at in self._unread.items() if one in known and at > now}
        new = [one for one, amount in known.items() if amount is None and one not in self._unread]
        for one in new[:most]:
            try:
                clip = read_clip(one.path)
                known[one] = amount_of(clip) if is_well_seen(clip) else Amount()
            except (StepvadError, OSError) as error:
                self._unread[one] = now + AGAIN_S
                if one.path.exists():  # not deleted meanwhile
                    logger.warning("recording left out of learning for now: %s", error)
        self.amounts = {one: amount for one, amount in known.items() if amount is not None}
        return len(new) <= most

    def by_camera(self) -> dict[str, Amount]:
        """Amount of the recordings of each camera."""
        found: dict[str, Amount] = {}
        for one, amount in self.amounts.items():
            found[one.camera] = found.get(one.camera, Amount()) + amount
        return found

    def total(self, since: float) -> Amount:
        """Amount of all recordings that begin after a time."""
        return sum((some for one, some in self.amounts.items() if one.begin > since), Amount())


def recordings_of(directory: Path, cameras: Collection[str]) -> list[Recording]:
    """The recordings of some cameras, oldest first."""
    return [one for one in find_recordings(directory) if one.camera in cameras]


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
    """Hours of a clip and its tracks."""
    people = sum(len(track) >= LEAST_POSES for track in clip.tracks)
    return Amount(clip.n_frames / clip.rate() / HOUR_S, people)


def thinned(recordings: Sequence[Recording], hours: float) -> list[Recording]:
    """Recordings of up to this many hours, spread evenly over all of their time."""
    # one in so many blocks, so that all times of day are in it
    share = max(ceil(len(recordings) * FILE_HOURS / hours), 1)
    return [one for block in [*_blocks(recordings)][::share] for one in block]


def parts_of(footage: Sequence[tuple[Recording, Clip]]) -> dict[str, int]:
    """The fold of each recording, by name: whole blocks of time if there are enough of them.

    Each goes to the fold that has the fewest tracks so far.
    """
    n_tracks = {one: amount_of(clip).people for one, clip in footage}
    parts, n = dict[str, int](), [0] * FOLDS
    for block in _blocks_or_files([one for one, _ in footage]):
        fold = n.index(min(n))
        n[fold] += sum(n_tracks[one] for one in block)
        parts |= {one.path.stem: fold for one in block}
    return parts


def not_held_out(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings to fit the paper's energy on: two blocks in three of each camera."""
    held: set[Recording] = set()
    for camera in {one.camera for one in recordings}:
        blocks = _blocks_or_files([one for one in recordings if one.camera == camera])
        held.update(one for block in blocks[HOLD_OUT - 1 :: HOLD_OUT] for one in block)
    return [one for one in recordings if one not in held]


def _blocks_or_files(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Blocks of time; of too few of those, the recordings one by one."""
    blocks = [*_blocks(recordings)]
    return blocks if len(blocks) >= MANY_BLOCKS else [[one] for one in recordings]


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


def fit(settings: SiteSettings, *, now: float | None = None, report: Report = silent) -> Learned:
    """Fit a new model on the recordings, count their ledgers, and make it the current one."""
    at = time.time() if now is None else now
    versions, method = Versions(settings.data), settings.learning.method
    before = versions.current
    with open_store(settings.data) as store:
        judged = JudgedEvents.from_store(store, with_poses=True)
        watched = store.watched(since(at))
    cameras = [camera.name for camera in settings.cameras if settings.learns(camera)]
    recordings = recordings_of(settings.data / RECORDINGS, cameras)
    # what there is, and of it what is fitted: without alerts that were right or not judged
    amount, footage = Amount(), list[tuple[Recording, Clip]]()
    for one in thinned(recordings, FOOTAGE_HOURS):
        with skip_unreadable(f"recording {one.path.name}"):
            clip = read_clip(one.path)
            amount += amount_of(clip) if is_well_seen(clip) else Amount()
            for first, last in judged.not_normal(one.camera):
                clip = clip_without(clip, first - one.begin, last - one.begin)
            footage += [(one, clip)] if is_well_seen(clip) else []
    if method == "step":
        fitted = {*not_held_out([one for one, _ in footage])}
        footage = [(one, clip) for one, clip in footage if one in fitted]
    if not footage:
        raise DataError(
            f"{settings.data}: expected recorded poses to learn from, got none",
            hint="people must be in view, and not only during alerts",
        )
    folds, clips = parts_of(footage), [clip for _, clip in footage]
    detector = Detector.fit(
        clips,
        config_for(settings),
        folds=[folds[one.path.stem] for one, _ in footage],
        report=report,
    )
    # the ledgers are counted with the model as it will be loaded
    made = versions.new_directory(at)
    detector.save(made / MODEL_NAME)
    detector = Detector.load(made / MODEL_NAME)
    learned = Learned(
        name=made.stem,
        made=at,
        method=method,
        footage=amount,
        cameras=tuple(sorted({one.camera for one, _ in footage})),
        folds=folds,
        until=max(one.begin for one in recordings),
    )
    exceptions = exceptions_for(detector, judged.events, judged.reviews, judged.clips)
    scorer = RecordingScorer(detector, learned, judged, settings, exceptions)
    for one in recordings:
        if one.begin >= since(at) and scorer.is_unseen(one):
            with skip_unreadable(f"recording {one.path.name}"):
                scorer.score(one)
    calibration = scorer.footage.calibrate(
        detector.sha256, alerts_per_day=settings.learning.alerts_per_day
    )
    ledgers = {
        camera: by_clock(entries, watched.get(camera, {}), at)
        for camera, entries in scorer.footage.ledgers.items()
        if camera in learned.cameras
    }
    calibration = with_limits(calibration, ledgers, settings.learning)
    write_calibration(calibration, calibration_path(made / MODEL_NAME))
    words = changes(before, learned, detector, calibration, judged)
    replace(learned, changed=words).save(made)
    return Learned.load(versions.finish(made, keep=settings.learning.keep))


def config_for(settings: SiteSettings) -> Config | tuple[Config, ...]:
    """The settings of a fit: by the clock, at the usual rate of the cameras."""
    rate = statistics.mode(camera.rate for camera in settings.cameras)
    if settings.learning.method == "usual":
        return Config.usual(rate)
    return replace(Config.footage(), fps=rate)


def changes(
    before: Learned | None,
    after: Learned,
    detector: Detector,
    calibration: Calibration,
    judged: JudgedEvents,
) -> str:
    """A summary for an operator: footage, and judged alerts scored again."""
    said = (
        f"Learned from {duration(after.footage.hours)} with people, {after.footage.people} tracks"
    )
    if before is not None:
        said += f" (before: {duration(before.footage.hours)})"
    for mark in get_args(Mark):
        own = [one for one in judged.events if judged.mark(one) == mark and one.id in judged.clips]
        again = sum(_is_raised(one, judged.clips[one.id], detector, calibration) for one in own)
        if own:
            said += f". {again} of {len(own)} alerts marked as {mark} would come again"
    return f"{said}."


def _is_raised(event: Record, clip: Clip, detector: Detector, calibration: Calibration) -> bool:
    """True if its people would still raise an event at its camera, by its limit and exceptions."""
    clip = people_of(event, clip)
    try:
        windows = detector.score(clip).windows
    except StepvadError:  # too short for a window
        return False
    windows = calibration.excuse(detector, event.camera).in_clip(clip, windows)
    return bool(events_in(windows, clip.rate(), calibration.rules_of(event.camera), clip))


def main() -> None:
    """Fit the model of a site, then exit; errors go to stderr."""
    parser = argparse.ArgumentParser(prog="stepvad.site.learning.rounds")
    parser.add_argument("settings", type=Path)
    options = parser.parse_args()
    die_with_parent()
    os.nice(NICE)
    try:
        fit(load(options.settings))
    except StepvadError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
