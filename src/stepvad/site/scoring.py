"""The scoring stage: people and poses of all cameras in, event changes out."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.events.camera import (
    KEPT_S,
    MOST_PEOPLE,
    CameraEvents,
    CameraProfile,
    RecordChange,
    seen_of,
)
from stepvad.events.drift import BLOCK_EVERY_S
from stepvad.events.record import EndedBy, Record
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Pose
from stepvad.site import event_writer
from stepvad.site.frames import FrameQueues, Lost, QueuedFrame
from stepvad.site.models import Limit
from stepvad.site.recorder import Recorder
from stepvad.site.stages import FailureLog, Loop
from stepvad.site.status import LiveStatus
from stepvad.site.store.changes import ChangeQueue, EventPoses, PendingChange
from stepvad.site.store.positions import Position, PositionBatch
from stepvad.skeletons import COCO17, Skeleton
from stepvad.stream import Stream, update_each

logger = logging.getLogger(__name__)

BEFORE_S = 4.0
"""Seconds of poses kept from before an event."""
FIRST_WORDS_S, WORDS_EVERY_S = 2.5, 5.0
"""An event is explained so long after its start at the latest, and again as often at most."""
POSITIONS_S = 1.0
"""How often positions are stored at most."""
DEADLINE_S = 8.0
"""Deadline for scoring one frame of every camera."""
WAIT_S = 0.2


class Trail:
    """The latest frames of a camera whose frames can be had again, and how far they are scored."""

    def __init__(self, position: Position | None) -> None:
        self.start_from = position
        self.epoch, self.former = -1, -1
        self.done = -1
        if position is not None:
            self.epoch, self.former = position.epoch, position.former
            self.done = position.done
        self.is_known = position is not None
        """True if a position is stored or queued: a restart would go on from it."""
        self.has_moved = False
        """True if its position is another one than the last that was queued to be stored."""
        self._frames: deque[tuple[int, int]] = deque()
        """Number of each frame, and in the stream: what windows and explanations may need again."""

    def start_connection(self, epoch: int) -> None:
        """Start a connection: frames before it are needed no more."""
        if epoch != self.epoch:
            self.former, self.epoch = self.epoch, epoch
        self._frames.clear()

    def add(self, frame: QueuedFrame, n_needed: int) -> None:
        """Add a frame; those `n_needed` before it and earlier are needed no more."""
        self._frames.append((frame.slot, frame.seq))
        while self._frames[0][0] <= frame.slot - n_needed:
            self._frames.popleft()
        if not frame.is_replayed:
            self.done, self.has_moved = frame.slot, True

    def position(self, people: CameraPeople, connection: int | None) -> Position | None:
        """The position to be stored; None if the camera has not moved."""
        if not self.has_moved or not self._frames:
            return None
        self.has_moved, self.is_known = False, True
        first, seq = self._frames[0]
        return Position(
            camera=people.camera,
            connection=connection,
            epoch=self.epoch,
            former=self.former,
            rate=people.rate,
            done=self.done,
            first=first,
            seq=seq,
            state=people.events.state() if isinstance(people, Watcher) else None,
        )


class CameraPeople:
    """The people of one camera, connection by connection."""

    def __init__(self, camera: str, rate: float, skeleton: Skeleton = COCO17) -> None:
        self.camera, self.skeleton = camera, skeleton
        self.rate = rate
        """Slots per second in this connection."""
        self._wall0 = 0.0
        self.trail: Trail | None = None
        """Of a camera whose frames can be had again."""

    def start_connection(
        self, wall0: float, rate: float | None = None, epoch: int | None = None
    ) -> None:
        """Start a connection, perhaps at another rate; its slot 0 is at wall-clock time `wall0`."""
        self.rate = rate or self.rate
        self.follow_clock(wall0)

    def resume(self, position: Position) -> None:
        """Go on with a connection of the last run; replayed frames give the rest."""

    def replay(self, frame: QueuedFrame, poses: Sequence[Pose]) -> None:
        """Take a frame that was scored before a restart."""
        if self.trail is not None:
            self.trail.add(frame, self.n_needed)

    @property
    def n_needed(self) -> int:
        """Frames that are needed again after a restart."""
        return 1

    def follow_clock(self, wall0: float) -> None:
        """Count from now on from another time of slot 0."""
        self._wall0 = wall0

    def wall(self, slot: int) -> float:
        """Wall-clock time of a slot."""
        return self._wall0 + slot / self.rate

    def sound(self, poses: Sequence[Pose]) -> list[Pose]:
        """Poses with the expected number of joints; none if there are implausibly many people."""
        # a crowd that cannot be, or joints of another skeleton
        if len(poses) > MOST_PEOPLE:
            return []
        return [pose for pose in poses if len(pose.keypoints) == self.skeleton.V]


class Watcher(CameraPeople):
    """Builds the windows of the people of one camera, and holds its events.

    The `Stream` starts fresh with every connection too, so nothing spans two of them.
    """

    def __init__(
        self, profile: CameraProfile, next_epoch: Callable[[], int], skeleton: Skeleton = COCO17
    ) -> None:
        super().__init__(profile.camera, profile.rate, skeleton)
        self.events = CameraEvents(profile, next_epoch, skeleton)
        self.stream = self._new_stream()
        self._slots: deque[int] = deque()
        """The slots of the latest frames."""
        self._explained = ("", 0, 0)
        """The latest event explained, the slot of its peak, and the slot in which it was."""

    @property
    def profile(self) -> CameraProfile:
        """The rules and the model that the camera is watched by at present."""
        return self.events.profile

    def start_connection(
        self, wall0: float, rate: float | None = None, epoch: int | None = None
    ) -> None:
        """Start a connection, perhaps at another rate; its slot 0 is at wall-clock time `wall0`."""
        self.events.profile = replace(self.profile, rate=rate or self.profile.rate)
        self.events.start_connection(wall0, epoch)
        super().start_connection(wall0, rate)
        self.stream = self._new_stream()
        self._slots.clear()

    def resume(self, position: Position) -> None:
        """Go on with a connection of the last run; replayed frames give the rest."""
        if position.state is not None:
            self.events.profile = replace(self.profile, rate=position.rate)
            self.events.restore(position.state)
            super().start_connection(position.state.wall0, position.rate)
            self.stream = self._new_stream()

    def replay(self, frame: QueuedFrame, poses: Sequence[Pose]) -> None:
        """Take a frame that was scored before a restart: windows and kept poses need it again."""
        super().replay(frame, poses)
        self.events.keep(frame.slot, frame.size, poses)
        # cutting windows takes longest: only the last ones matter
        if self.trail is None or frame.slot > self.trail.done - 3 * self.stream.span:
            self._slots.append(frame.slot)
            self.stream.push(frame.slot, poses)

    @property
    def n_needed(self) -> int:
        """Frames that are needed again: three windows, and all that explanations may show."""
        return max(3 * self.stream.span, round(KEPT_S * self.rate))

    def looked(self, slot: int, windows: WindowScores) -> NDArray[np.float32]:
        """Note a frame; the share of each window's slots that had one, `(n,)`."""
        span = self.stream.span
        # a hole in the frames: nobody is judged in it, nor until a window is full again
        hole = slot - self._slots[-1] if self._slots else 0
        if hole > span:
            self.events.miss((hole + span) / self.profile.rate)
        self._slots.append(slot)
        while self._slots[0] <= slot - 3 * span:  # windows of a gap arrive a window later
            self._slots.popleft()
        slots = np.array(self._slots)
        # frames up to the end of each window, less those before its beginning, (n,)
        up_to = np.searchsorted(slots, windows.frame, "right")
        n = up_to - np.searchsorted(slots, windows.frame - span, "right")
        return np.asarray(np.maximum(n, 1) / span, np.float32)

    def follow_clock(self, wall0: float) -> None:
        """Count from now on from another time of slot 0."""
        super().follow_clock(wall0)
        self.events.wall0 = wall0

    def needs_words(self, slot: int) -> bool:
        """True once for each peak of the open event: when all that explains it has been seen."""
        event, peak_slot = self.events.open, self.events.peak_slot
        explained, explained_peak, explained_slot = self._explained
        if event is None or (event.id, peak_slot) == (explained, explained_peak):
            return False
        # an explanation shows the window after the peak, too
        is_whole = slot - peak_slot >= self.stream.span
        if event.id == explained:
            is_due = is_whole and slot - explained_slot >= WORDS_EVERY_S * self.profile.rate
        else:
            is_due = is_whole or slot - event.frame_seq >= FIRST_WORDS_S * self.profile.rate
        if is_due:
            self._explained = event.id, peak_slot, slot
        return is_due

    def _new_stream(self) -> Stream:
        profile = self.profile
        return Stream(
            profile.detector, skeleton=self.skeleton, fps=profile.rate, excuse=profile.excuse
        )


class ScoringQueues(NamedTuple):
    """Input and output queues of scoring; the last one comes back to it."""

    frames: FrameQueues
    changes: ChangeQueue
    """Event changes."""
    tasks: event_writer.TaskQueue
    """Recorded clips and footage for the comparison with the calibration."""
    limits: deque[Limit]
    """Changed thresholds, zones and hours."""


ScoringWork = tuple[Watcher, QueuedFrame, Sequence[Pose]]


class SiteScorer:
    """Scores frames; cameras that share a detector are scored in one call.

    It has exclusive ownership of the cameras: the stage `scoring` is the only thread that has them.
    """

    def __init__(
        self,
        queues: ScoringQueues,
        cameras: Mapping[str, CameraPeople],
        status: LiveStatus,
        *,
        recorders: Mapping[str, Recorder] | None = None,
        drift: Mapping[str, Callable[[Clip], None]] | None = None,
        interrupt: Callable[[str], None] = lambda camera: None,
    ) -> None:
        """People of cameras that have no `Watcher`, for want of a model, are shown and recorded.

        `drift` takes recent footage of a camera, in the background; `interrupt` ends what the last
        run left open of a camera whose position is lost.
        """
        frames = queues.frames
        self.stage = Loop(
            "scoring", self._score_next, DEADLINE_S, on_stop=frames.close, at_end=self._end_all
        )
        self._queues, self._cameras, self._status = queues, cameras, status
        self._watchers = {name: one for name, one in cameras.items() if isinstance(one, Watcher)}
        self._recorders, self._drift = recorders or {}, drift or {}
        self._interrupt = interrupt
        self._drift_at = time.monotonic() + BLOCK_EVERY_S
        self._connections: dict[str, int | None] = dict.fromkeys(cameras)
        self._trails = {name: one.trail for name, one in cameras.items() if one.trail is not None}
        for name, trail in self._trails.items():
            if trail.start_from is not None:
                self._connections[name] = trail.start_from.connection
        self._batch = PositionBatch((), is_over=True)
        self._batch_at = time.monotonic()
        self._failures = FailureLog(logger)

    def _score_next(self, loop: Loop) -> bool:
        items = self._queues.frames.next(timeout_s=WAIT_S)
        self.score(items)
        return bool(items)

    def _end_all(self) -> None:
        for people in self._cameras.values():
            if people.trail is None:
                self._end_connection(people, "stopped")
            else:  # the next run goes on with it
                self._finish_recording(people)

    def score(self, items: Sequence[tuple[str, QueuedFrame | Lost]]) -> None:
        """Score a batch of frames, at most one per camera."""
        # what has changed of the rules of a camera
        while self._queues.limits:
            limit = self._queues.limits.popleft()
            one = self._watchers.get(limit.camera.name)
            if one is not None:  # else the camera waits for its first model
                one.events.use(limit.applied_to(one.profile))
                one.stream.excuse = one.profile.excuse
                show_limit(self._status, one, limit)
        self._send_footage()
        # frames to poses, by detector
        groups: dict[int, list[ScoringWork]] = {}
        for camera, item in items:
            people = self._cameras[camera]
            if isinstance(item, Lost):
                self._end_connection(people, item.by)
                if item.by == "interrupted":
                    self._interrupt(camera)
            elif (poses := self._poses(people, item)) is None:
                continue
            elif item.is_replayed:
                people.replay(item, poses)
            elif isinstance(people, Watcher):
                detector = people.profile.detector
                groups.setdefault(id(detector), []).append((people, item, poses))
            else:
                wall = people.wall(item.slot)
                self._status.frame(camera, item.slot, wall, item.size, poses, {})
                self._count_scored(people, item, poses)
        # poses to windows, scores and events
        for group in groups.values():
            self._score_group(group)
        self._queue_positions()

    def _queue_positions(self) -> None:
        """Have the positions of cameras stored behind the changes so far, one batch at a time.

        The first one of a camera waits for no other, nor for words: it is stored before the first
        event. Without it a restart would end that event, and read the frames that make it again.
        """
        changes, now = self._queues.changes, time.monotonic()
        if firsts := self._positions(is_known=False):
            changes.put_positions(PositionBatch(firsts, is_explained=True))
        if not self._batch.is_over or now < self._batch_at + POSITIONS_S:
            return
        if positions := self._positions(is_known=True):
            self._batch, self._batch_at = PositionBatch(positions), now
            changes.put_positions(self._batch)

    def _positions(self, *, is_known: bool) -> list[Position]:
        """The positions of cameras that have moved: of those that have one, or have none yet."""
        made = (
            trail.position(self._cameras[name], self._connections[name])
            for name, trail in self._trails.items()
            if trail.is_known == is_known
        )
        return [one for one in made if one is not None]

    def _send_footage(self) -> None:
        """Hand recent footage of the cameras to the comparison with their calibration."""
        if not self._drift or time.monotonic() < self._drift_at:
            return
        self._drift_at = time.monotonic() + BLOCK_EVERY_S
        for camera, add_footage in self._drift.items():
            _, clip = self._watchers[camera].events.clip()
            self._queues.tasks.put("upkeep", partial(add_footage, clip))

    def _poses(self, people: CameraPeople, frame: QueuedFrame) -> list[Pose] | None:
        """The poses of a frame; None if it cannot be scored."""
        camera = people.camera
        try:
            # a new connection: nothing spans two of them
            if self._connections[camera] != frame.connection:
                self._end_connection(people, "camera lost")
                people.start_connection(frame.wall0, frame.rate, frame.epoch)
                if people.trail is not None:
                    people.trail.start_connection(frame.epoch or 0)
                if camera in self._recorders:
                    self._recorders[camera].rate = frame.rate
                self._connections[camera] = frame.connection
            people.follow_clock(frame.wall0)
            sound = people.sound(frame.poses)
            if len(sound) < len(frame.poses):
                self._status.count(camera, "skipped")
            return sound
        except Exception as error:
            # usually the store failing to assign an epoch; the next frame retries
            self._skip(camera, error)
            return None

    def _skip(self, camera: str, error: Exception) -> None:
        self._failures.log(f"camera {camera}: a frame could not be scored", error)
        self._status.count(camera, "skipped")

    def _score_group(self, group: Sequence[ScoringWork]) -> None:
        """Score a group; a camera that fails does not affect the others."""
        scored = update_each([(w.stream, frame.slot, poses) for w, frame, poses in group])
        for (watcher, frame, poses), windows in zip(group, scored, strict=True):
            if isinstance(windows, Exception):
                self._skip(watcher.camera, windows)
                self._end_connection(watcher, "camera lost")
            else:
                self._observe(watcher, frame, poses, windows)

    def _observe(
        self, watcher: Watcher, frame: QueuedFrame, poses: Sequence[Pose], windows: WindowScores
    ) -> None:
        """Report the events and the scores of a frame."""
        camera, status = watcher.camera, self._status
        looked = watcher.looked(frame.slot, windows)
        changes = watcher.events.observe(frame.slot, frame.size, poses, windows, looked)
        self._announce(watcher, changes, frame.arrived)
        if watcher.events.open is not None and watcher.needs_words(frame.slot):
            self._announce(watcher, [("update", watcher.events.open)], explain=True)
        # windows that end in this frame, (n,), and those seen too rarely to raise an alert, (n,)
        muted = watcher.profile.rules.muted(seen_of(windows, looked))
        now = windows.frame == frame.slot
        scores = by_track(windows, windows.A, now)
        unsure = by_track(windows, windows.seen, now & muted)
        wall = watcher.events.wall(frame.slot)
        status.frame(camera, frame.slot, wall, frame.size, poses, scores, unsure)
        status.count(camera, "windows", len(windows))
        if muted.any():
            status.count(camera, "muted_windows", int(muted.sum()))
        if flat := watcher.stream.flat_windows:
            status.count(camera, "flat_windows", flat)
            watcher.stream.flat_windows = 0
        self._count_scored(watcher, frame, poses)

    def _count_scored(
        self, people: CameraPeople, frame: QueuedFrame, poses: Sequence[Pose]
    ) -> None:
        """Count a frame that was scored or shown, and record its poses."""
        camera = people.camera
        if people.trail is not None:
            people.trail.add(frame, people.n_needed)
        self._status.count(camera, "scored")
        self._status.observe_latency(camera, time.monotonic() - frame.arrived)
        if camera in self._recorders:
            recorder = self._recorders[camera]
            self._save(recorder, recorder.record(frame.slot, people.wall(frame.slot), poses))

    def _end_connection(self, people: CameraPeople, by: EndedBy) -> None:
        """End the open event and recording of a camera; the next frame starts a new connection."""
        if isinstance(people, Watcher):
            self._announce(people, people.events.end_open(by))
        self._connections[people.camera] = None
        if people.trail is not None:
            people.trail.has_moved = True
        self._finish_recording(people)

    def _finish_recording(self, people: CameraPeople) -> None:
        if people.camera in self._recorders:
            recorder = self._recorders[people.camera]
            self._save(recorder, recorder.finish())

    def _save(self, recorder: Recorder, clip: Clip | None) -> None:
        if clip is not None:
            self._queues.tasks.put("recording", partial(recorder.save, clip))

    def _announce(
        self,
        watcher: Watcher,
        changes: Sequence[RecordChange],
        arrived: float | None = None,
        *,
        explain: bool = False,
    ) -> None:
        for kind, record in changes:
            poses = poses_of(watcher, record) if explain or kind == "end" else None
            change = PendingChange(kind, record, arrived or time.monotonic(), poses)
            self._queues.changes.put(change)


def show_limit(status: LiveStatus, watcher: Watcher, limit: Limit) -> None:
    """Show by what a camera is watched."""
    rules, profile = limit.rules, watcher.profile
    status.camera(
        watcher.camera,
        rate=limit.camera.rate,
        threshold=rules.threshold,
        model=profile.model_id,
        zones=profile.zones,
        skeleton=watcher.skeleton,
    )
    status.limit(watcher.camera, rules.threshold, limit.words)


def by_track(
    windows: WindowScores, values: NDArray[np.float32], rows: NDArray[np.bool_]
) -> dict[int, float]:
    """The values of some windows by the track of each."""
    return dict(zip(windows.track_id[rows].tolist(), values[rows].tolist(), strict=True))


def poses_of(watcher: Watcher, record: Record) -> EventPoses:
    """The poses of everybody in view from `BEFORE_S` before an event, as far as buffered."""
    # from some seconds and one window before the event
    first = record.frame_seq - round(BEFORE_S * watcher.profile.rate) - watcher.stream.span
    since, clip = watcher.events.clip(first=max(first, 0))
    return EventPoses(clip, watcher.events.peak_slot - since, record.track_id)
