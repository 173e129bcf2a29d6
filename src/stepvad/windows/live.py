"""Windows of any number of cameras, cut as their poses arrive, by array operations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.skeletons import COCO17, Skeleton
from stepvad.windows.body import prepare
from stepvad.windows.runs import Sampling, ends_run, fill_gaps
from stepvad.windows.views import CompletedWindows, PoseArrays, Views, Windows

AT_ONCE = 512
"""Largest number of windows cut at once; they fit into the processor's caches."""

NEVER = -(2**62)
"""Latest frame of a track without poses."""

ScalarT = TypeVar("ScalarT", bound=np.generic)

Buffers = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]
"""Keypoints, mean confidence and whether each pose was seen."""


def check_online(config: Config) -> None:
    """Reject settings that need the end of a track."""
    if config.reference.drop_last_window:
        raise ConfigError(
            "drop_last_window: expected False for a stream, got True",
            hint="a stream cannot know which window of a track is the last",
        )


class Mark(NamedTuple):
    """State of every track to roll back to; see `WindowAssembler.mark`."""

    n: NDArray[np.int64]
    last: NDArray[np.int64]
    duplicate_poses: int


class WindowAssembler:
    """Cuts the poses of a `Stream`, or of many cameras, into windows.

    Camera numbers are below 2^31 and track ids have 32 bits. Frames of a camera arrive in order,
    one or many at a time, all at the same rate. Memory grows with the number of people in view.
    """

    def __init__(self, views: Views, skeleton: Skeleton, fps: float | None = None) -> None:
        check_online(views[0].config)
        self.views, self.skeleton = views, skeleton
        self.duplicate_poses = 0
        self.filled_poses = 0
        """Poses interpolated so far; `undo` does not take them back."""
        self.jumps = 0
        """Tracks that began again so far because their bodies jumped."""
        self.sampling = Sampling.for_views(views, fps)
        self._length = length = self.sampling.span
        joints = skeleton.V
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._keypoints = np.empty((0, 4 * length, joints, 2), dtype=np.float32)
        self._confidence = np.empty((0, 4 * length), dtype=np.float32)
        self._seen = np.empty((0, 4 * length), dtype=np.bool_)
        self._n = np.empty(0, dtype=np.int64)
        """Poses buffered per track: the latest of its run, contiguous from position 0."""
        self._last = np.empty(0, dtype=np.int64)
        self._owner = np.empty(0, dtype=np.int64)
        """The camera of each slot; -1 if free."""
        self._moved = np.empty(0, dtype=np.bool_)
        """Tracks whose latest poses were moved to position 0 since the mark."""
        self._replaced: list[tuple[NDArray[np.int64], Buffers]] = []
        """Tracks that restarted in a push since the mark, with the poses they had."""
        self._new: list[int] = []
        """Slots of the tracks that began since the mark."""
        self._spans: Buffers | None = None
        """The buffers as the frames of every window, one row per position; None: not made yet."""

    @property
    def _buffers(self) -> Buffers:
        return self._keypoints, self._confidence, self._seen

    def __len__(self) -> int:
        """Number of tracks in memory."""
        return len(self._slot)

    def forget(self, camera: int) -> None:
        """Drop all tracks of this camera."""
        self._release(self._owner == camera)

    def mark(self) -> Mark:
        """Record the state of every track, to `undo` the next push."""
        self._moved[:] = False
        self._replaced, self._new = [], []
        return Mark(self._n.copy(), self._last.copy(), self.duplicate_poses)

    def undo(self, mark: Mark) -> None:
        """Roll back to the mark.

        A push writes poses after the existing ones, or moves those to position 0 first, so it is
        enough to restore the counts. A track that restarted after a long gap restarts again with
        its next pose; one that restarted within a push, or because its body jumped, gets its old
        poses back.
        """
        for slots, poses in reversed(self._replaced):
            for buffer, before in zip(self._buffers, poses, strict=True):
                buffer[slots, : before.shape[1]] = before
            self._moved[slots] = False
        known = slice(len(mark.n))
        self._n[known] = np.where(self._moved[known], self._length - 1, mark.n)
        self._last[known] = mark.last
        self._n[self._new], self._last[self._new] = 0, NEVER
        self.duplicate_poses = mark.duplicate_poses

    def push(
        self,
        camera: NDArray[np.int64],
        frame: NDArray[np.int64],
        track_id: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
        skeleton: Skeleton = COCO17,
    ) -> Iterator[tuple[Windows, NDArray[np.int64]]]:
        """Yield the windows of poses `(P, V, 2)`, each with the row of the pose that completed it.

        Windows are yielded in batches. Of poses with the same camera, frame and track the first
        is used.
        """
        joints, noise = self.views[0].config.joints, self.views[0].noise
        keypoints, sure, _ = prepare(keypoints, confidence, skeleton, self.skeleton, joints, noise)
        key = camera << 32 | track_id & 0xFFFFFFFF
        for found, rows in self.complete(key, camera, frame, track_id, keypoints, sure):
            if len(rows):
                yield Windows.completed(found, self.views), rows

    def complete(
        self,
        key: NDArray[np.int64],
        camera: NDArray[np.int64],
        frame: NDArray[np.int64],
        track_id: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
    ) -> Iterator[tuple[CompletedWindows, NDArray[np.int64]]]:
        """Yield the windows of prepared poses in pixels, and the row that completed each.

        `key` tells the tracks of all cameras apart. At least one batch is yielded, maybe empty.
        """
        # poses by track and frame, (P,); `same`: of the track of the pose before
        order = np.argsort(key, kind="stable")
        same = ~_begins(key[order])
        step = _step(frame[order], 0)
        # of several poses of a track in one frame, the first is kept
        if (again := same & (step == 0)).any():
            self.duplicate_poses += int(again.sum())
            order, same = order[~again], same[~again]
            step = _step(frame[order], 0)
        # a long gap or a jump within the batch starts a new run
        broken = same & ends_run(step - 1, self.sampling.gap)
        if self.sampling.frame_s is not None:
            near = np.flatnonzero(same & ~broken)
            pairs = keypoints[order[near - 1]], keypoints[order[near]]
            broken[near] = self.sampling.jumps(*pairs, step[near] - 1)
        # a track may begin several times: its first runs are pushed first, then its second ones
        runs = [order]
        if broken.any():
            turn: NDArray[np.int64] = np.cumsum(broken) - np.maximum.accumulate(
                np.where(same, 0, np.cumsum(broken))
            )
            runs = [order[turn == i] for i in range(int(turn.max()) + 1)]
            renewed = {self._slot.get(one) for one in key[order[broken]].tolist()} - {None}
            self._keep(np.array([*renewed], dtype=np.int64))
        for run in runs:
            at, available, frames, source_row = self._push(
                key[run], camera[run], frame[run], keypoints.take(run, axis=0), confidence[run]
            )
            # windows of this run, few enough at once for the caches
            n_poses = self.sampling.n_poses(available)
            for first in range(0, max(len(at), 1), AT_ONCE):
                part = slice(first, first + AT_ONCE)
                rows = run[source_row[part]]
                poses, seen = self._cut(at[part], available[part])
                whose = track_id[rows], frames[part]
                yield CompletedWindows(*poses, *whose, n_poses[part], seen), rows

    def _push(
        self,
        key: NDArray[np.int64],
        camera: NDArray[np.int64],
        frame: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Buffer poses sorted by track and frame, each track without a long gap.

        Returns position of the last pose, frames at hand, last frame and row of every window they
        complete.
        """
        # first row and number of rows of each track, (tracks,)
        first = np.flatnonzero(_begins(key))
        size = _step(np.append(first, len(key)), 0)[1:]
        if len(self._free) < len(first):
            self._sweep(len(first))
        slots = self._slots_of(key[first].tolist(), camera[first].tolist())
        # frames missed before each pose, (n,); the first of a track follows its buffered ones
        before = np.empty_like(frame)
        before[1:] = frame[:-1]
        before[first] = self._last[slots]
        missed = frame - before - 1
        # tracks that begin, or begin again after a long gap or a jump: their buffers are emptied
        fresh = ends_run(missed[first], self.sampling.gap)
        if self.sampling.frame_s is not None:
            fresh |= self._jumps(slots, ~fresh, keypoints[first], missed[first])
        self._n[slots[fresh]] = 0
        missed[first[fresh]] = 0
        # short gaps are filled: from here on a row is a pose, seen or interpolated
        source_row, seen = np.arange(len(key)), np.ones(len(key), np.bool_)
        if missed.any():
            self.filled_poses += int(missed.sum())
            source_row, frames_until, (keypoints, confidence) = fill_gaps(
                missed,
                (keypoints, confidence),
                self._earlier(missed, keypoints, confidence, first, slots),
            )
            frame, seen = frame[source_row] - frames_until, frames_until == 0
            size = np.add.reduceat(missed + 1, first)
        self._make_room(slots, size)
        # position of each pose in its track's buffer, and in all buffers in a row, (n,)
        ends = np.cumsum(size)
        position = np.arange(len(source_row)) + np.repeat(self._n[slots] - ends + size, size)
        at = np.repeat(slots * self._keypoints.shape[1], size) + position
        self._keypoints.reshape(-1, *self._keypoints.shape[2:])[at] = keypoints
        self._confidence.reshape(-1)[at] = confidence
        self._seen.reshape(-1)[at] = seen
        self._n[slots] += size
        self._last[slots] = frame[ends - 1]
        # poses that complete a window, with the frames at hand for it
        whole = position >= self.sampling.least - 1
        available = np.minimum(position[whole] + 1, self._length)
        return at[whole], available, frame[whole], source_row[whole]

    def _jumps(
        self,
        slots: NDArray[np.int64],
        known: NDArray[np.bool_],
        keypoints: NDArray[np.float32],
        missed: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Which tracks begin again, because their bodies jumped; their poses are kept for undo."""
        old, found = slots[known], known.copy()
        latest = self._keypoints[old, self._n[old] - 1]
        found[known] = self.sampling.jumps(latest, keypoints[known], missed[known])
        self._keep(slots[found])
        self.jumps += int(found.sum())
        return found

    def _keep(self, slots: NDArray[np.int64]) -> None:
        """Keep the poses of tracks that are about to begin again."""
        if len(slots):
            poses = self._keypoints[slots], self._confidence[slots], self._seen[slots]
            self._replaced.append((slots, poses))

    def _cut(
        self, last: NDArray[np.int64], available: NDArray[np.int64]
    ) -> tuple[PoseArrays, NDArray[np.bool_]]:
        """Windows that end at these positions `(N, T, …)`, and which of their poses were seen.

        Where fewer frames are `available` than a window covers, the first one is repeated.
        """
        sample, sample_seen = self.sampling.sample, self.sampling.sample_seen
        joints = self._keypoints.shape[2:]
        if (available < self._length).any():
            # slot and position of every frame of young windows, (N, span)
            back = np.minimum(np.arange(self._length - 1, -1, -1), available[:, None] - 1)
            row, at = np.divmod(last[:, None] - back, self._keypoints.shape[1])
            poses = sample(self._keypoints[row, at], self._confidence[row, at])
            return poses, sample_seen(self._seen[row, at])
        # whole windows are contiguous in the buffers
        at = last - (self._length - 1)
        if self._spans is None:
            self._spans = (
                _spans(self._keypoints, self._length),
                _spans(self._confidence, self._length),
                _spans(self._seen, self._length),
            )
        spans, sures, seen = self._spans
        poses = sample(spans[at].reshape(len(at), self._length, *joints), sures[at])
        return poses, sample_seen(seen[at])

    def _earlier(
        self,
        missed: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
        first: NDArray[np.int64],
        slots: NDArray[np.int64],
    ) -> PoseArrays:
        """The pose before each gap: the previous row, or the track's latest buffered pose."""
        gap = np.flatnonzero(missed)
        earlier, sure = keypoints[gap - 1], confidence[gap - 1]
        # tracks whose first pose follows a gap: the pose before it is in their buffers
        at = np.flatnonzero(missed[first])
        which = np.searchsorted(gap, first[at])
        latest = slots[at], self._n[slots[at]] - 1
        earlier[which], sure[which] = self._keypoints[latest], self._confidence[latest]
        return earlier, sure

    def _make_room(self, slots: NDArray[np.int64], size: NDArray[np.int64]) -> None:
        """Trim full tracks to what the next window needs; grow the buffers for long batches."""
        # full buffers keep all but one frame of a window, moved to position 0
        full = slots[self._n[slots] + size > self._keypoints.shape[1]]
        full = full[self._n[full] >= self._length]
        kept = self._length - 1
        if len(full):
            at = (self._n[full] - kept)[:, None] + np.arange(kept)
            self._keypoints[full, :kept] = self._keypoints[full[:, None], at]
            self._confidence[full, :kept] = self._confidence[full[:, None], at]
            self._seen[full, :kept] = self._seen[full[:, None], at]
            self._n[full], self._moved[full] = kept, True
        # a batch longer than a buffer makes all of them longer
        wanted = int((self._n[slots] + size).max(initial=0))
        if wanted > self._keypoints.shape[1]:
            more = wanted - self._keypoints.shape[1]
            self._keypoints = np.pad(self._keypoints, ((0, 0), (0, more), (0, 0), (0, 0)))
            self._confidence = np.pad(self._confidence, ((0, 0), (0, more)))
            self._seen = np.pad(self._seen, ((0, 0), (0, more)))
            self._spans = None

    def _slots_of(self, keys: Sequence[int], cameras: Sequence[int]) -> NDArray[np.int64]:
        """The slots of these tracks; those that are not known begin."""
        slots = [*map(self._slot.get, keys)]
        if None in slots:
            for i, key in enumerate(keys):
                if slots[i] is None:
                    slots[i] = slot = self._slot[key] = self._free.pop()
                    self._owner[slot], self._n[slot], self._last[slot] = cameras[i], 0, NEVER
                    self._new.append(slot)
        return np.array(slots, dtype=np.int64)

    def _sweep(self, wanted: int) -> None:
        """Drop tracks missed for too long; add slots if that frees too few."""
        # tracks whose camera is further ahead than the longest gap, (slots,)
        used = self._owner >= 0
        latest = np.full(int(self._owner.max(initial=0)) + 1, NEVER)
        np.maximum.at(latest, self._owner[used], self._last[used])
        missed = latest[self._owner] - self._last - 1
        self._release(used & ends_run(missed, self.sampling.gap))
        # twice as many slots, unless enough are free now
        before = len(self._n)
        if len(self._free) > before // 4 + wanted:
            return
        more = max(before, 16, wanted)
        for name in ("_keypoints", "_confidence", "_seen", "_n", "_last", "_owner", "_moved"):
            array = getattr(self, name)
            room = np.zeros((more, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, room]))
        self._owner[before:] = -1
        self._spans = None
        self._free.extend(range(before + more - 1, before - 1, -1))

    def _release(self, gone: NDArray[np.bool_]) -> None:
        if gone.any():
            left = {key: slot for key, slot in self._slot.items() if not gone[slot]}
            self._free.extend(slot for slot in self._slot.values() if gone[slot])
            self._slot = left
            self._owner[gone] = -1


def _begins(key: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows, sorted by key, are the first of theirs."""
    found = np.ones(len(key), np.bool_)
    found[1:] = key[1:] != key[:-1]
    return found


def _step(values: NDArray[np.int64], before: int) -> NDArray[np.int64]:
    """Each value minus the one before it; faster than `np.diff` with `prepend`."""
    found = np.empty_like(values)
    np.subtract(values[1:], values[:-1], out=found[1:])
    found[:1] = values[:1] - before
    return found


def _spans(buffer: NDArray[ScalarT], length: int) -> NDArray[ScalarT]:
    """The frames from each position of a buffer `(slots, room, …)` on, `(positions, length · …)`.

    The poses of a window are contiguous: each window is copied in one piece.
    """
    flat = buffer.reshape(-1)
    size = math.prod(buffer.shape[2:])
    return as_strided(
        flat,
        (max(len(flat) // size - length + 1, 0), length * size),
        (size * flat.itemsize, flat.itemsize),
        writeable=False,
    )
