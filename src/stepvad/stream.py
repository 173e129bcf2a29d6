"""Frame by frame, the same windows and scores as on the finished clip (Sec. 4.1, online)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.poses import Pose
from stepvad.scoring import WindowScores
from stepvad.skeletons import COCO17, Skeleton
from stepvad.windows import Counts, Windows, fill_gaps, prepare

Found = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Keypoints `(N, T, V, 2)`, confidences `(N, T)`, track ids and last frames of new windows."""


class Stream:
    """One camera, scored as its frames arrive.

    A window is scored when its last frame arrives. Where a person was missed for at most T frames,
    the windows of the missed frames come late, with the frame that shows the person again; nothing
    else ever waits. Memory grows with the people in view, not with time.
    """

    def __init__(self, detector: Detector, *, skeleton: Skeleton = COCO17) -> None:
        if detector.config.drop_last_window:
            raise ConfigError(
                "drop_last_window: expected False for a stream, got True",
                hint="a stream cannot know which window of a track is the last",
            )
        self.detector = detector
        self.skeleton = skeleton
        self.counts = Counts()
        self.flat_windows = 0
        self.duplicate_poses = 0
        self._frame = -1
        self._tracks = _Tracks(detector.config.T, detector.skeleton.V)

    def update(self, frame: int, poses: Iterable[Pose]) -> WindowScores:
        """Scores of the windows that this frame completes.

        Those of missed frames have a smaller `frame`; of two poses with one track id the first
        counts.
        """
        return self.detector.score_windows(self.push(frame, poses))

    def push(self, frame: int, poses: Iterable[Pose]) -> Windows:
        """The windows that this frame completes, for whoever scores them."""
        windows = Windows.of(*self._collect(frame, poses), self.detector.config)
        self.flat_windows += int(windows.flat.sum())
        return windows

    def _collect(self, frame: int, poses: Iterable[Pose]) -> Found:
        """The windows that this frame completes, in pixels."""
        if frame <= self._frame:
            raise DataError(
                f"frame {frame}: expected a frame after {self._frame}, got {frame}",
                hint="feed frames in order, each once",
            )
        distinct = self._distinct(poses)
        keypoints, confidence, mended = prepare(
            np.array([p.keypoints for p in distinct]).reshape(-1, self.skeleton.V, 2),
            np.array([p.confidence for p in distinct]).reshape(-1, self.skeleton.V),
            self.skeleton,
            self.detector.skeleton,
        )
        self._frame = frame
        found = self._tracks.push(frame, [p.track_id for p in distinct], keypoints, confidence)
        self.counts += mended
        if self._tracks.n_filled:
            self.counts += Counts(filled_poses=self._tracks.n_filled)
        return found

    def _distinct(self, poses: Iterable[Pose]) -> list[Pose]:
        poses = list(poses)
        distinct: dict[int, Pose] = {}
        for pose in poses:
            if len(pose.keypoints) != self.skeleton.V:
                raise DataError(
                    f"track {pose.track_id}: expected {self.skeleton.V} joints "
                    f"({self.skeleton.name}), got {len(pose.keypoints)}",
                    hint="give the stream the skeleton of its poses",
                )
            distinct.setdefault(pose.track_id, pose)
        self.duplicate_poses += len(poses) - len(distinct)
        return list(distinct.values())


Update = tuple[Stream, int, Iterable[Pose]]
"""A camera's stream, the number of a frame, and the poses in it."""


def update_all(updates: Sequence[Update]) -> list[WindowScores]:
    """Frames of several cameras, scored in one call: what `update` gives for each of them."""
    found = []
    for result in update_each(updates):
        if isinstance(result, Exception):
            raise result
        found.append(result)
    return found


def update_each(updates: Sequence[Update]) -> list[WindowScores | Exception]:
    """The same, but a frame that cannot be scored gives its error and costs no other its scores."""
    if not updates:
        return []
    detector = updates[0][0].detector
    if any(stream.detector is not detector for stream, _, _ in updates):
        raise ConfigError(
            "streams: expected one detector for all, got several",
            hint="score the cameras of each detector together",
        )
    found = [_collected(stream, frame, poses) for stream, frame, poses in updates]
    scored = iter(_scored(detector, [one for one in found if not isinstance(one, Exception)]))
    results: list[WindowScores | Exception] = []
    for (stream, _, _), one in zip(updates, found, strict=True):
        result = one if isinstance(one, Exception) else next(scored)
        if isinstance(result, Exception):
            results.append(result)
        else:
            scores, n_flat = result
            stream.flat_windows += n_flat
            results.append(scores)
    return results


Scored = tuple[WindowScores, int]
"""The scores of a frame's windows, and how many of them are flat."""


def _collected(stream: Stream, frame: int, poses: Iterable[Pose]) -> Found | Exception:
    try:
        return stream._collect(frame, poses)
    except Exception as error:
        return error


def _scored(detector: Detector, found: Sequence[Found]) -> Sequence[Scored | Exception]:
    """Windows of several streams scored in one call; if that fails, each alone."""
    if not found:
        return []
    try:
        return _scored_together(detector, found)
    except Exception as error:
        if len(found) == 1:
            return [error]
        return [one for part in found for one in _scored(detector, [part])]


def _scored_together(detector: Detector, found: Sequence[Found]) -> list[Scored]:
    keypoints, confidence, track_id, frames = map(np.concatenate, zip(*found, strict=True))
    windows = Windows.of(keypoints, confidence, track_id, frames, detector.config)
    scores = detector.score_windows(windows)
    parts, end = [], 0
    for of_stream, *_ in found:
        part = slice(end, end := end + len(of_stream))
        parts.append((scores.part(part), int(windows.flat[part].sum())))
    return parts


class _Tracks:
    """The latest T poses of every track in rings: a new pose is written, nothing else moves.

    Each ring is there twice, one after the other, so that any T consecutive poses are a slice.
    """

    def __init__(self, T: int, V: int) -> None:
        self.T = T
        self.n_filled = 0
        """Poses interpolated at the last push."""
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._keypoints = np.empty((0, 2 * T, V, 2), dtype=np.float32)
        self._confidence = np.empty((0, 2 * T), dtype=np.float32)
        self._last = np.empty(0, dtype=np.int64)
        """Frame of each track's latest pose."""
        self._length = np.empty(0, dtype=np.int64)
        """Poses of each track since it was last missed for too long."""

    def push(
        self,
        frame: int,
        track_ids: Sequence[int],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
    ) -> Found:
        """Add a pose to each of these tracks; the windows completed, track by track."""
        self.n_filled = 0
        self._forget(frame)
        slots = np.array([self._slot_of(track_id) for track_id in track_ids], dtype=np.int64)
        missed = (self._length[slots] > 0) & (self._last[slots] < frame - 1)
        late = [
            self._fill(int(slots[i]), frame, track_ids[i], keypoints[i], confidence[i])
            for i in np.flatnonzero(missed).tolist()
        ]
        self._write(slots, keypoints, confidence, frame)
        found = self._windows(slots, np.array(track_ids, dtype=np.int64))
        if not late:
            return found
        joined = [np.concatenate(columns) for columns in zip(*late, found, strict=True)]
        rank = {track_id: i for i, track_id in enumerate(track_ids)}
        by_track = np.array([rank[track_id] for track_id in joined[2].tolist()])
        order = np.lexsort((joined[3], by_track))
        return joined[0][order], joined[1][order], joined[2][order], joined[3][order]

    def __len__(self) -> int:
        """Tracks remembered."""
        return len(self._slot)

    def _forget(self, frame: int) -> None:
        """Let go of tracks that were missed for more than T frames."""
        if (frame - self._last[self._length > 0] - 1 > self.T).any():
            for track_id, slot in [*self._slot.items()]:
                if frame - self._last[slot] - 1 > self.T:
                    del self._slot[track_id]
                    self._length[slot] = 0
                    self._free.append(slot)

    def _slot_of(self, track_id: int) -> int:
        slot = self._slot.get(track_id)
        if slot is None:
            if not self._free:
                self._grow()
            slot = self._slot[track_id] = self._free.pop()
        return slot

    def _grow(self) -> None:
        """Room for twice as many tracks."""
        before = len(self._last)
        more = max(before, 8)
        self._free.extend(range(before + more - 1, before - 1, -1))
        for name in ("_keypoints", "_confidence", "_last", "_length"):
            array = getattr(self, name)
            room = np.zeros((more, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, room]))

    def _fill(
        self,
        slot: int,
        frame: int,
        track_id: int,
        keypoints: NDArray[np.float32],
        confidence: np.float32,
    ) -> Found:
        """Interpolate the missed poses of one track; the windows that they complete."""
        latest = (self._length[slot] - 1) % self.T
        last = int(self._last[slot])
        filled, sure = fill_gaps(
            np.array([last, frame]),
            np.stack([self._keypoints[slot, latest], keypoints]),
            np.stack([self._confidence[slot, latest], confidence]),
        )
        parts = []
        one, name = np.array([slot]), np.array([track_id])
        for missed in range(1, len(filled) - 1):
            self._write(one, filled[missed][None], sure[missed][None], last + missed)
            parts.append(self._windows(one, name))
        self.n_filled += len(parts)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return columns[0], columns[1], columns[2], columns[3]

    def _write(
        self,
        slots: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
        frame: int,
    ) -> None:
        place = self._length[slots] % self.T
        for copy in (place, place + self.T):
            self._keypoints[slots, copy] = keypoints
            self._confidence[slots, copy] = confidence
        self._length[slots] += 1
        self._last[slots] = frame

    def _windows(self, slots: NDArray[np.int64], track_id: NDArray[np.int64]) -> Found:
        """The latest T poses of those of these tracks that have as many."""
        whole = self._length[slots] >= self.T
        slots = slots[whole, None]
        poses = self._length[slots] % self.T + np.arange(self.T)  # (N, T)
        return (
            self._keypoints[slots, poses],
            self._confidence[slots, poses],
            track_id[whole],
            self._last[slots[:, 0]],
        )
