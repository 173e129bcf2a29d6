"""The thread that scores: people and poses of all cameras in, changes of events out."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from stepvad.errors import StepvadError
from stepvad.live.board import Board
from stepvad.live.lanes import Frame, Lanes, Lost
from stepvad.live.ledger import Cast, Entry
from stepvad.live.record import EndedBy, Record
from stepvad.live.recorder import Recorder
from stepvad.live.watcher import Changed, Watcher
from stepvad.poses import Clip, Pose
from stepvad.scoring import WindowScores
from stepvad.stream import update_all

logger = logging.getLogger(__name__)

BEFORE_S = 4.0
"""Poses kept with an event from so long before it."""

Work = tuple[Watcher, Frame, Sequence[Pose]]


class Scorer:
    """Scores what the lanes hand on; cameras that share a detector are scored in one call."""

    def __init__(
        self,
        lanes: Lanes,
        watchers: Mapping[str, Watcher],
        board: Board,
        *,
        announce: Callable[[Entry], None],
        recorders: Mapping[str, Recorder] | None = None,
        recorded: Callable[[Recorder, Clip], None] = lambda recorder, clip: recorder.write(clip),
    ) -> None:
        self._lanes, self._watchers, self._board = lanes, watchers, board
        self._announce = announce
        self._recorders = recorders or {}
        self._recorded = recorded
        self._connections: dict[str, int | None] = dict.fromkeys(watchers)
        self._words: deque[tuple[str, str, str]] = deque()
        self._looks: deque[Callable[[], None]] = deque()
        self._stopping = threading.Event()
        self.alive_at = time.monotonic()
        """When it last went round, by the clock that never moves."""
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Score what is there, then end what is open."""
        self._stopping.set()
        self._lanes.close()
        self._thread.join()

    def explained(self, record: Record, why: str) -> None:
        """Words for an event that may go on; any thread may say them."""
        self._words.append((record.camera, record.id, why))

    def with_watchers(self, task: Callable[[], None]) -> None:
        """Do something between two frames, in the thread that owns the watchers."""
        self._looks.append(task)

    def _run(self) -> None:
        while True:
            self.alive_at = time.monotonic()
            items = self._lanes.next(timeout_s=0.2)
            self.step(items)
            if not items and self._stopping.is_set():
                break
        for watcher in self._watchers.values():
            self._lose(watcher, "stopped")

    def step(self, items: Sequence[tuple[str, Frame | Lost]]) -> None:
        """Score some frames, of each camera at most one."""
        while self._words:
            camera, event, why = self._words.popleft()
            self._tell(self._watchers[camera], self._watchers[camera].explained(event, why))
        while self._looks:
            self._looks.popleft()()
        groups: dict[int, list[Work]] = {}
        for camera, item in items:
            watcher = self._watchers[camera]
            if isinstance(item, Lost):
                self._lose(watcher, "camera lost")
            elif (poses := self._poses(watcher, item)) is not None:
                detector = watcher.subject.detector
                groups.setdefault(id(detector), []).append((watcher, item, poses))
        for group in groups.values():
            self._score(group)

    def _poses(self, watcher: Watcher, frame: Frame) -> list[Pose] | None:
        """The poses of a frame; None if it cannot be scored."""
        camera = watcher.subject.camera
        try:
            if self._connections[camera] != frame.connection:
                self._lose(watcher, "camera lost")
                watcher.begin(frame.wall0)
                self._connections[camera] = frame.connection
            if frame.people is not None:
                return watcher.follow(frame.people)
            given = frame.poses or ()
            sound = watcher.sound(given)
            if len(sound) < len(given):
                self._board.count(camera, "skipped")
            return sound
        except Exception:  # above all a store that cannot give an epoch: the next frame tries again
            logger.exception("camera %s: a frame could not be scored", camera)
            self._board.count(camera, "skipped")
            return None

    def _score(self, group: Sequence[Work]) -> None:
        try:
            scored = update_all([(w.stream, frame.slot, poses) for w, frame, poses in group])
        except StepvadError as error:
            for watcher, _, _ in group:
                camera = watcher.subject.camera
                logger.error("camera %s: a frame could not be scored: %s", camera, error)
                self._board.count(camera, "skipped")
                self._lose(watcher, "camera lost")
            return
        for (watcher, frame, poses), windows in zip(group, scored, strict=True):
            self._see(watcher, frame, poses, windows)

    def _see(
        self, watcher: Watcher, frame: Frame, poses: Sequence[Pose], windows: WindowScores
    ) -> None:
        camera, board = watcher.subject.camera, self._board
        flat = watcher.stream.flat_windows
        wall = watcher.wall(frame.slot)
        self._tell(watcher, watcher.see(frame.slot, frame.size, poses, windows), frame.arrived)
        now = windows.frame == frame.slot
        scores = dict(zip(windows.track_id[now].tolist(), windows.A[now].tolist(), strict=True))
        board.frame(camera, frame.slot, wall, frame.size, poses, scores)
        board.count(camera, "scored")
        board.count(camera, "windows", len(windows))
        if flat:
            board.count(camera, "flat_windows", flat)
            watcher.stream.flat_windows = 0
        board.observe_latency(camera, time.monotonic() - frame.arrived)
        recorder = self._recorders.get(camera)
        if recorder is not None:
            self._keep(recorder, recorder.add(frame.slot, wall, poses))

    def _lose(self, watcher: Watcher, by: EndedBy) -> None:
        """Nothing follows: end the event, and begin anew with whatever comes."""
        camera = watcher.subject.camera
        self._tell(watcher, watcher.lose(by))
        self._connections[camera] = None
        recorder = self._recorders.get(camera)
        if recorder is not None:
            self._keep(recorder, recorder.finish())

    def _keep(self, recorder: Recorder, clip: Clip | None) -> None:
        if clip is not None:
            self._recorded(recorder, clip)

    def _tell(
        self, watcher: Watcher, changes: Sequence[Changed], arrived: float | None = None
    ) -> None:
        for kind, record in changes:
            cast = None if kind == "update" else cast_of(watcher, record)
            self._announce(Entry(kind, record, arrived or time.monotonic(), cast))


def cast_of(watcher: Watcher, record: Record) -> Cast:
    """The people of an event, from a little before it on, as far as their poses are kept."""
    first = (
        record.frame_seq - round(BEFORE_S * watcher.subject.rate) - watcher.stream.detector.config.T
    )
    since, clip = watcher.clip(record.tracks, first=max(first, 0))
    return Cast(clip, since, watcher.peak_slot - since, record.track_id)
