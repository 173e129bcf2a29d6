"""The scoring stage: people and poses of all cameras in, event changes out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.events.camera import MOST_PEOPLE, CameraEvents, CameraProfile, RecordChange
from stepvad.events.record import EndedBy, Record
from stepvad.model.scoring import WindowScores
from stepvad.people import People
from stepvad.poses import Clip, Pose
from stepvad.site.event_writer import (
    ChangeQueue,
    EventPoses,
    ExplainedQueue,
    PendingChange,
    TaskQueue,
)
from stepvad.site.housekeeping import DRIFT_BLOCK_EVERY_S, CameraDrift, latest_block
from stepvad.site.intake.frame_queues import FrameQueues, Lost, QueuedFrame
from stepvad.site.intake.status import LiveStatus
from stepvad.site.marks import LimitQueue
from stepvad.site.recorder import Recorder
from stepvad.site.stages import FailureLog, Heartbeat
from stepvad.skeletons import COCO17, Skeleton
from stepvad.stream import Stream, update_each
from stepvad.tracker import Tracker

logger = logging.getLogger(__name__)

BEFORE_S = 4.0
"""Seconds of poses kept from before an event."""
DEADLINE_S = 8.0
"""Deadline for scoring one frame of every camera."""
WAIT_S = 0.2


class CameraPeople:
    """Tracks the people of one camera; the tracker starts fresh with every connection."""

    def __init__(
        self, camera: str, rate: float, min_confidence: float, skeleton: Skeleton = COCO17
    ) -> None:
        self.camera, self.skeleton = camera, skeleton
        self._rate, self._min_confidence = rate, min_confidence
        self._wall0 = 0.0
        self._tracker = Tracker()

    def start_connection(self, wall0: float) -> None:
        """Start a connection; its slot 0 is at wall-clock time `wall0`."""
        self._wall0 = wall0
        self._tracker.reset()

    def wall(self, slot: int) -> float:
        """Wall-clock time of a slot."""
        return self._wall0 + slot / self._rate

    def follow(self, people: People, slot: int) -> list[Pose]:
        """Track the people of the image of a time slot with sufficient confidence."""
        certain = people.certain(self._min_confidence)
        return self._tracker.update(people.select(certain), time_s=slot / self._rate)

    def sound(self, poses: Sequence[Pose]) -> list[Pose]:
        """Poses with the expected number of joints; none if there are implausibly many people."""
        if len(poses) > MOST_PEOPLE:
            return []
        return [pose for pose in poses if len(pose.keypoints) == self.skeleton.V]


class Watcher(CameraPeople):
    """Tracks the people of one camera, builds their windows and holds its events.

    The `Stream` starts fresh with every connection too, so nothing spans two of them.
    """

    def __init__(
        self, profile: CameraProfile, next_epoch: Callable[[], int], skeleton: Skeleton = COCO17
    ) -> None:
        super().__init__(profile.camera, profile.rate, profile.min_confidence, skeleton)
        self.events = CameraEvents(profile, next_epoch, skeleton)
        self.stream = self._new_stream()

    @property
    def profile(self) -> CameraProfile:
        """How the camera is watched at present."""
        return self.events.profile

    def start_connection(self, wall0: float) -> None:
        """Start a connection; its slot 0 is at wall-clock time `wall0`."""
        self.events.start_connection(wall0)
        super().start_connection(wall0)
        self.stream = self._new_stream()

    def _new_stream(self) -> Stream:
        profile = self.profile
        return Stream(profile.detector, skeleton=self.skeleton, fps=profile.rate)


ScoringWork = tuple[Watcher, QueuedFrame, Sequence[Pose]]


class ScoringQueues(NamedTuple):
    """Input and output queues of the scoring stage."""

    frames: FrameQueues
    changes: ChangeQueue
    """Event changes."""
    tasks: TaskQueue
    """Recorded clips and drift checks."""
    explained: ExplainedQueue
    """Explanations returned for events that may still be open."""
    limits: LimitQueue
    """Changed thresholds."""


class ScoringStage:
    """The stage that scores frames; cameras that share a detector are scored in one call.

    It has exclusive ownership of the watchers.
    """

    name = "scoring"

    def __init__(
        self,
        queues: ScoringQueues,
        watchers: Mapping[str, Watcher],
        status: LiveStatus,
        *,
        unscored: Mapping[str, CameraPeople] | None = None,
        recorders: Mapping[str, Recorder] | None = None,
        drifting: Sequence[CameraDrift] = (),
    ) -> None:
        """`unscored` are cameras without a model yet, whose people are shown and recorded."""
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._watchers, self._status = watchers, status
        self._unscored = unscored or {}
        self._frames, self._changes = queues.frames, queues.changes
        self._tasks, self._explained = queues.tasks, queues.explained
        self._limits = queues.limits
        self._recorders = recorders or {}
        self._drifting = drifting
        self._drift_at = time.monotonic() + DRIFT_BLOCK_EVERY_S
        self._connections: dict[str, int | None] = dict.fromkeys([*watchers, *self._unscored])
        self._stopping = threading.Event()
        self._failures = FailureLog(logger)

    def run(self) -> None:
        """Score until stopped and the queues are drained, then end open events."""
        while True:
            self.heartbeat.beat()
            items = self._frames.next(timeout_s=WAIT_S)
            self.step(items)
            if not items and self._stopping.is_set():
                break
        for people in [*self._watchers.values(), *self._unscored.values()]:
            self._lose(people, "stopped")

    def stop(self, deadline: float) -> None:
        """Drain the queues, then stop."""
        self._stopping.set()
        self._frames.close()

    def step(self, items: Sequence[tuple[str, QueuedFrame | Lost]]) -> None:
        """Score a batch of frames, at most one per camera."""
        for said in self._explained.take_all():
            watcher = self._watchers[said.camera]
            self._announce(watcher, watcher.events.explained(said.event, said.why))
        self._change_limits()
        self._look_for_drift()
        groups: dict[int, list[ScoringWork]] = {}
        for camera, item in items:
            people = self._unscored.get(camera) or self._watchers[camera]
            if isinstance(item, Lost):
                self._lose(people, "camera lost")
            elif (poses := self._poses(people, item)) is None:
                continue
            elif isinstance(people, Watcher):
                detector = people.profile.detector
                groups.setdefault(id(detector), []).append((people, item, poses))
            else:
                self._show(people, item, poses)
        for group in groups.values():
            self._score(group)

    def _change_limits(self) -> None:
        """Switch cameras to changed thresholds."""
        for limit in self._limits.take_all():
            self._watchers[limit.camera].events.use_rules(limit.rules)
            self._status.limit(
                limit.camera, limit.rules.threshold, limit.words, limit.is_provisional
            )

    def _look_for_drift(self) -> None:
        """Queue a drift check of every calibrated camera at each interval."""
        if not self._drifting or time.monotonic() < self._drift_at:
            return
        self._drift_at = time.monotonic() + DRIFT_BLOCK_EVERY_S
        for one in self._drifting:
            watcher = self._watchers[one.profile.camera]
            block = latest_block(watcher.events.clip()[1])
            self._tasks.put("upkeep", partial(one.add, block))

    def _poses(self, people: CameraPeople, frame: QueuedFrame) -> list[Pose] | None:
        """The poses of a frame; None if it cannot be scored."""
        camera = people.camera
        try:
            if self._connections[camera] != frame.connection:
                self._lose(people, "camera lost")
                people.start_connection(frame.wall0)
                self._connections[camera] = frame.connection
            if frame.people is not None:
                return people.follow(frame.people, frame.slot)
            given = frame.poses or ()
            sound = people.sound(given)
            if len(sound) < len(given):
                self._status.count(camera, "skipped")
            return sound
        except Exception as error:
            # usually the store failing to assign an epoch; the next frame retries
            self._failures.log(f"camera {camera}: a frame could not be scored", error)
            self._status.count(camera, "skipped")
            return None

    def _score(self, group: Sequence[ScoringWork]) -> None:
        """Score a group; a camera that fails does not affect the others."""
        scored = update_each([(w.stream, frame.slot, poses) for w, frame, poses in group])
        for (watcher, frame, poses), windows in zip(group, scored, strict=True):
            if isinstance(windows, Exception):
                camera = watcher.profile.camera
                self._failures.log(f"camera {camera}: a frame could not be scored", windows)
                self._status.count(camera, "skipped")
                self._lose(watcher, "camera lost")
            else:
                self._see(watcher, frame, poses, windows)

    def _see(
        self, watcher: Watcher, frame: QueuedFrame, poses: Sequence[Pose], windows: WindowScores
    ) -> None:
        camera, status = watcher.profile.camera, self._status
        flat = watcher.stream.flat_windows
        wall = watcher.events.wall(frame.slot)
        changes = watcher.events.observe(frame.slot, frame.size, poses, windows)
        self._announce(watcher, changes, frame.arrived)
        now, muted = windows.frame == frame.slot, watcher.profile.rules.muted(windows)
        scores = by_track(windows, windows.A, now)
        unsure = by_track(windows, windows.seen, now & muted)
        status.frame(camera, frame.slot, wall, frame.size, poses, scores, unsure)
        status.count(camera, "scored")
        status.count(camera, "windows", len(windows))
        if muted.any():
            status.count(camera, "muted_windows", int(muted.sum()))
        if flat:
            status.count(camera, "flat_windows", flat)
            watcher.stream.flat_windows = 0
        status.observe_latency(camera, time.monotonic() - frame.arrived)
        self._record(camera, frame.slot, wall, poses)

    def _show(self, people: CameraPeople, frame: QueuedFrame, poses: Sequence[Pose]) -> None:
        """Show and record the people of a camera without a model."""
        camera, wall = people.camera, people.wall(frame.slot)
        self._status.frame(camera, frame.slot, wall, frame.size, poses, {})
        self._status.count(camera, "scored")
        self._status.observe_latency(camera, time.monotonic() - frame.arrived)
        self._record(camera, frame.slot, wall, poses)

    def _record(self, camera: str, slot: int, wall: float, poses: Sequence[Pose]) -> None:
        recorder = self._recorders.get(camera)
        if recorder is not None:
            self._keep(recorder, recorder.record(slot, wall, poses))

    def _lose(self, people: CameraPeople, by: EndedBy) -> None:
        """End the open event and recording of a camera; the next frame starts a new connection."""
        if isinstance(people, Watcher):
            self._announce(people, people.events.end_open(by))
        self._connections[people.camera] = None
        recorder = self._recorders.get(people.camera)
        if recorder is not None:
            self._keep(recorder, recorder.finish())

    def _keep(self, recorder: Recorder, clip: Clip | None) -> None:
        if clip is not None:
            self._tasks.put("recording", partial(recorder.save, clip))

    def _announce(
        self, watcher: Watcher, changes: Sequence[RecordChange], arrived: float | None = None
    ) -> None:
        for kind, record in changes:
            poses = None if kind == "update" else poses_of(watcher, record)
            self._changes.put(PendingChange(kind, record, arrived or time.monotonic(), poses))


def by_track(
    windows: WindowScores, values: NDArray[np.float32], rows: NDArray[np.bool_]
) -> dict[int, float]:
    """The values of some windows by the track of each."""
    return dict(zip(windows.track_id[rows].tolist(), values[rows].tolist(), strict=True))


def poses_of(watcher: Watcher, record: Record) -> EventPoses:
    """The poses of everybody in view from `BEFORE_S` before an event, as far as buffered."""
    first = record.frame_seq - round(BEFORE_S * watcher.profile.rate) - watcher.stream.span
    since, clip = watcher.events.clip(first=max(first, 0))
    return EventPoses(clip, watcher.events.peak_slot - since, record.track_id)
