"""Frames of many cameras scored together, and what that changes in their events."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.events import Kind
from stepvad.fleet.camera import Camera
from stepvad.fleet.crowd import Crowd
from stepvad.fleet.wire import Batch
from stepvad.live.record import Record
from stepvad.scoring import WindowScores
from stepvad.windows import Windows

logger = logging.getLogger(__name__)

MOST = 512
"""People scored in one call, about: what fits into the processor's caches."""


class Work(NamedTuple):
    """Frames of a camera that are due, and when the broker took them."""

    camera: Camera
    batch: Batch
    time: float


class Change(NamedTuple):
    """A change of an event, to be announced."""

    site: str
    kind: Kind
    before: Record | None
    after: Record
    slot: int
    time: float
    """When the broker took the frame that made it; 0: nobody waits for it."""


@dataclass(slots=True)
class Counts:
    """What was done since the worker began."""

    frames: int = 0
    windows: int = 0
    flat_windows: int = 0
    duplicate_poses: int = 0
    failed: int = 0
    """Frames that could not be scored."""


@dataclass(slots=True, eq=False)
class Scorer:
    """Scores frames of all cameras; those that share a detector in one call."""

    counts: Counts = field(default_factory=Counts)
    _crowds: dict[int, Crowd] = field(default_factory=dict)
    _numbers: int = 0

    def number(self) -> int:
        """A number for a connection that no other has."""
        self._numbers += 1
        return self._numbers

    def forget(self, camera: Camera) -> None:
        """No window of this camera goes on."""
        self._crowd(camera.subject.detector).forget(camera.number)

    def score(self, works: Sequence[Work]) -> list[Change]:
        """What frames change; of each camera they come in order."""
        groups: dict[tuple[int, str], list[Work]] = {}
        for work in works:
            key = id(work.camera.subject.detector), work.batch.skeleton.name
            groups.setdefault(key, []).append(work)
        found: list[Change] = []
        for group in (part for whole in groups.values() for part in _parts(whole)):
            try:
                found += self._score(group)
            except Exception:  # whatever a message brings about, other cameras go on
                logger.exception("frames of %d cameras could not be scored", len(group))
                self.counts.failed += sum(len(work.batch) for work in group)
                for camera, batch, _ in group:
                    self.forget(camera)
                    camera.scored = max(camera.scored, batch.end)
        return found

    def _crowd(self, detector: Detector) -> Crowd:
        if id(detector) not in self._crowds:
            self._crowds[id(detector)] = Crowd(detector)
        return self._crowds[id(detector)]

    def _score(self, works: Sequence[Work]) -> list[Change]:
        detector = works[0].camera.subject.detector
        batches = [work.batch for work in works]
        sizes = np.array([len(batch) for batch in batches])
        of_work = np.repeat(np.arange(len(works)), sizes)  # by frame, as all below
        slots = np.concatenate([batch.slots for batch in batches])
        people = np.concatenate([batch.people for batch in batches])
        seqs = np.arange(len(slots)) + np.repeat(
            [work.batch.seq for work in works] - np.cumsum(sizes) + sizes, sizes
        )
        is_new = seqs >= np.array([work.camera.scored for work in works])[of_work]
        windows, frame = self._windows(detector, works, of_work, slots, people)
        if not is_new.all():
            wanted = np.flatnonzero(is_new[frame])
            windows, frame = windows.part(wanted), frame[wanted]
        scores = detector.score_windows(windows)
        self.counts.frames += int(is_new.sum())
        self.counts.windows += len(windows)
        self.counts.flat_windows += int(windows.flat.sum())
        found = self._changes(works, of_work, is_new, scores, frame)
        for camera, batch, _ in works:
            camera.scored = max(camera.scored, batch.end)
        return found

    def _windows(
        self,
        detector: Detector,
        works: Sequence[Work],
        of_work: NDArray[np.int64],
        slots: NDArray[np.int64],
        people: NDArray[np.int64],
    ) -> tuple[Windows, NDArray[np.int64]]:
        """The windows of some frames, and the frame that completed each."""
        crowd = self._crowd(detector)
        frame = np.repeat(np.arange(len(slots)), people)  # by person
        numbers = np.array([work.camera.number for work in works])
        windows, rows = crowd.push(
            numbers[of_work[frame]],
            slots[frame],
            np.concatenate([work.batch.tracks for work in works]),
            np.concatenate([work.batch.keypoints for work in works]),
            np.concatenate([work.batch.confidence for work in works]),
            works[0].batch.skeleton,
        )
        self.counts.duplicate_poses = sum(one.duplicate_poses for one in self._crowds.values())
        return windows, frame[rows]

    def _changes(
        self,
        works: Sequence[Work],
        of_work: NDArray[np.int64],
        is_new: NDArray[np.bool_],
        scores: WindowScores,
        frame: NDArray[np.int64],
    ) -> list[Change]:
        """Hand the scores to cameras where they matter: few, at most times."""
        thresholds = np.array([work.camera.subject.rules.threshold for work in works])
        loud = thresholds[of_work[frame]] <= scores.A
        busy = {id(works[i].camera) for i in np.unique(of_work[frame[loud]]).tolist()}
        busy |= {id(work.camera) for work in works if not work.camera.watcher.is_idle}
        if not busy:
            return []
        order = np.argsort(frame, kind="stable")
        ends = np.searchsorted(frame[order], np.arange(len(of_work) + 1))
        found: list[Change] = []
        for at in np.flatnonzero(is_new).tolist():
            camera, batch, time = works[of_work[at]]
            if id(camera) in busy:
                i = at - int(np.searchsorted(of_work, of_work[at]))
                own = scores.part(order[ends[at] : ends[at + 1]])
                found += _seen(camera, batch, i, own, time)
        return found


def _parts(works: Sequence[Work]) -> Iterator[Sequence[Work]]:
    """The same works, some at a time."""
    first, people = 0, 0
    for at, work in enumerate(works):
        people += len(work.batch.tracks)
        if people >= MOST:
            yield works[first : at + 1]
            first, people = at + 1, 0
    if first < len(works):
        yield works[first:]


def _seen(camera: Camera, batch: Batch, i: int, windows: WindowScores, time: float) -> list[Change]:
    """What the scores of one frame change."""
    slot = int(batch.slots[i])
    told = camera.watcher.see(slot, batch.size, batch.poses(i), windows)
    return [changed(camera, kind, record, slot, time) for kind, record in told]


def changed(camera: Camera, kind: Kind, record: Record, slot: int, time: float) -> Change:
    """A change, after what was told before it."""
    change = Change(camera.site, kind, camera.told, record, slot, time)
    camera.told = None if kind == "end" else record
    return change
