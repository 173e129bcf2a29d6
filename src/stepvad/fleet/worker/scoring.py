"""Score frames of many cameras together and update their events."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.events.camera import CameraProfile
from stepvad.events.record import Record
from stepvad.events.rules import ChangeKind, Rules
from stepvad.fleet.wire import Batch
from stepvad.fleet.worker.camera import FleetCamera
from stepvad.model.scoring import WindowScores
from stepvad.windows.live import WindowAssembler
from stepvad.windows.runs import Sampling

logger = logging.getLogger(__name__)


class Work(NamedTuple):
    """Frames of a camera that are due, and when the broker received them."""

    camera: FleetCamera
    batch: Batch
    time: float


class _Frames(NamedTuple):
    """All frames of some works in order, as columns with one value per frame."""

    work: NDArray[np.int64]
    """Index of the frame's work."""
    slot: NDArray[np.int64]
    people: NDArray[np.int64]
    is_new: NDArray[np.bool_]
    """Whether to score the frame; others only complete windows."""

    @classmethod
    def of(cls, works: Sequence[Work]) -> _Frames:
        """The frames in their order."""
        sizes = np.array([len(work.batch) for work in works])
        work = np.repeat(np.arange(len(works)), sizes)
        done = [one.camera.scored - one.batch.seq for one in works]
        place = np.arange(len(work)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return cls(
            work=work,
            slot=np.fromiter(chain.from_iterable(one.batch.slots for one in works), np.int64),
            people=np.fromiter(chain.from_iterable(one.batch.people for one in works), np.int64),
            is_new=place >= np.array(done)[work],
        )


class Announcement(NamedTuple):
    """A change of an event to publish."""

    site: str
    kind: ChangeKind
    before: Record | None
    after: Record
    slot: int
    time: float
    """When the broker received the frame that caused it; 0 excludes it from the latency."""


@dataclass(slots=True)
class ScoringStats:
    """Counters since the worker started."""

    frames: int = 0
    windows: int = 0
    flat_windows: int = 0
    muted_windows: int = 0
    """Windows of mostly interpolated poses, which make no event."""
    duplicate_poses: int = 0
    failed: int = 0
    """Frames that could not be scored."""


@dataclass(slots=True, eq=False)
class BatchScorer:
    """Scores frames of all cameras, with one call per detector, frame rate and skeleton."""

    counts: ScoringStats = field(default_factory=ScoringStats)
    _assemblers: dict[tuple[int, float], WindowAssembler] = field(default_factory=dict)
    """By detector and frames of the camera per frame of the model."""
    _by_rate: dict[tuple[int, float], WindowAssembler] = field(default_factory=dict)
    """The same by detector and frame rate: there is one lookup per message."""
    _numbers: int = 0

    def number(self) -> int:
        """A unique number for a connection."""
        self._numbers += 1
        return self._numbers

    def forget(self, camera: FleetCamera) -> None:
        """Discard the windows in progress of this camera."""
        self._assembler(camera.profile).forget(camera.number)

    def score(self, works: Sequence[Work]) -> list[Announcement]:
        """Score frames and return the event changes; frames of a camera must be in order."""
        groups: dict[tuple[int, str], list[Work]] = {}
        for work in works:
            assembler = self._assembler(work.camera.profile)
            key = id(assembler), work.batch.connection.skeleton.name
            groups.setdefault(key, []).append(work)
        return [change for group in groups.values() for change in self._score(group)]

    def _assembler(self, profile: CameraProfile) -> WindowAssembler:
        """The assembler of all cameras with this model whose windows span as many frames."""
        detector, rate = profile.detector, profile.rate
        found = self._by_rate.get((id(detector), rate))
        if found is None:
            key = id(detector), Sampling.for_rate(detector.config, rate).ratio
            if key not in self._assemblers:
                self._assemblers[key] = WindowAssembler(
                    detector.view_settings, detector.skeleton, rate
                )
            found = self._by_rate[id(detector), rate] = self._assemblers[key]
        return found

    def _score(self, works: Sequence[Work]) -> list[Announcement]:
        """Score frames of cameras that share a detector, a frame rate and a skeleton.

        If that fails, score each camera alone: only the faulty camera loses its frames.
        """
        assembler = self._assembler(works[0].camera.profile)
        mark = assembler.mark()
        try:
            frames = _Frames.of(works)
            scores, frame = self._scored(works, frames)
        except Exception:  # a bad message must not affect other cameras
            assembler.undo(mark)
            by_camera: dict[int, list[Work]] = {}
            for work in works:
                by_camera.setdefault(id(work.camera), []).append(work)
            if len(by_camera) > 1:
                return [change for own in by_camera.values() for change in self._score(own)]
            logger.exception("camera %s: frames could not be scored", works[0].camera.name)
            self._give_up(works)
            return []
        self.counts.frames += int(frames.is_new.sum())
        self.counts.windows += len(scores)
        found = self._changes(works, frames, scores, frame)
        for camera, batch, _ in works:
            camera.scored = max(camera.scored, batch.end)
        return found

    def _give_up(self, works: Sequence[Work]) -> None:
        """Skip frames of one camera that cannot be scored; its windows restart after them."""
        self.forget(works[0].camera)
        for camera, batch, _ in works:
            self.counts.failed += max(batch.end - max(camera.scored, batch.seq), 0)
            camera.scored = max(camera.scored, batch.end)

    def _scored(
        self, works: Sequence[Work], frames: _Frames
    ) -> tuple[WindowScores, NDArray[np.int64]]:
        """Scores of the windows of new frames, and the frame that completed each."""
        profile = works[0].camera.profile
        detector, assembler = profile.detector, self._assembler(profile)
        frame = np.repeat(np.arange(len(frames.slot)), frames.people)  # by person
        numbers = np.array([work.camera.number for work in works])
        scores, of, flat = [], [], 0
        for windows, rows in assembler.push(
            numbers[frames.work[frame]],
            frames.slot[frame],
            np.concatenate([work.batch.tracks for work in works]).astype(np.int64),
            np.concatenate([work.batch.keypoints for work in works]),
            np.concatenate([work.batch.confidence for work in works]),
            works[0].batch.connection.skeleton,
        ):
            at = frame[rows]
            if not frames.is_new[at].all():
                wanted = np.flatnonzero(frames.is_new[at])
                windows, at = windows.part(wanted), at[wanted]
            flat += int(windows.flat.sum())
            scores.append(detector.score_windows(windows))
            of.append(at)
        self.counts.flat_windows += flat
        self.counts.duplicate_poses = sum(one.duplicate_poses for one in self._assemblers.values())
        if len(scores) == 1:
            return scores[0], of[0]
        nothing = np.empty(0, np.int64)
        return WindowScores.join(scores, detector.columns), np.concatenate([nothing, *of])

    def _changes(
        self,
        works: Sequence[Work],
        frames: _Frames,
        scores: WindowScores,
        frame: NDArray[np.int64],
    ) -> list[Announcement]:
        """Pass the scores to cameras with an anomaly or an open event: few, most of the time.

        A camera that raises an exception skips the rest of these frames.
        """
        rules = [work.camera.profile.rules for work in works]
        of = frames.work[frame]
        self.counts.muted_windows += _muted(rules, scores, of)
        loud = np.array([one.threshold for one in rules])[of] <= scores.A
        busy = {id(works[i].camera) for i in {*frames.work[frame[loud]].tolist()}}
        busy |= {id(work.camera) for work in works if not work.camera.events.is_idle}
        if not busy:
            return []
        order = np.argsort(frame, kind="stable")
        ends = np.searchsorted(frame[order], np.arange(len(frames.work) + 1))
        found: list[Announcement] = []
        for at in np.flatnonzero(frames.is_new).tolist():
            camera, batch, time = works[frames.work[at]]
            if id(camera) not in busy:
                continue
            i = at - int(np.searchsorted(frames.work, frames.work[at]))
            own = scores.part(order[ends[at] : ends[at + 1]])
            try:
                found += _seen(camera, batch, i, own, time)
            except Exception:  # a faulty camera must not affect the others
                logger.exception("camera %s: its events could not be computed", camera.name)
                busy.discard(id(camera))
                self.counts.failed += int(
                    frames.is_new[at:][frames.work[at:] == frames.work[at]].sum()
                )
        return found


def _muted(rules: Sequence[Rules], scores: WindowScores, of: NDArray[np.int64]) -> int:
    """How many windows count for no event, by the rules of the camera that each is `of`."""
    unsure = np.flatnonzero(scores.seen < 1)
    which = of[unsure]
    return sum(
        int(rules[one].muted(scores.part(unsure[which == one])).sum()) for one in np.unique(which)
    )


def _seen(
    camera: FleetCamera, batch: Batch, i: int, windows: WindowScores, time: float
) -> list[Announcement]:
    """Event changes caused by the scores of one frame."""
    slot = batch.slots[i]
    changes = camera.events.observe(slot, batch.connection.size, batch.poses(i), windows)
    return [changed(camera, kind, record, slot, time) for kind, record in changes]


def changed(
    camera: FleetCamera, kind: ChangeKind, record: Record, slot: int, time: float
) -> Announcement:
    """Build an announcement that follows the last published one."""
    change = Announcement(camera.site, kind, camera.reported, record, slot, time)
    camera.reported = None if kind == "end" else record
    return change
