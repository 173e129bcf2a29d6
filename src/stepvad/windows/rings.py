"""Windows of one camera, frame by frame: a special case of the assembler, and cheaper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepvad.windows.gaps import ends_run, fill_gaps
from stepvad.windows.sampling import Sampling
from stepvad.windows.values import CompletedWindows


class TrackRings:
    """Ring buffers of every track's latest poses, one window long; adding a pose moves no other.

    Each ring is stored twice, back to back, so any window is a slice.
    """

    def __init__(self, sampling: Sampling, V: int) -> None:
        self.sampling = sampling
        self._span, self._least = sampling.span, sampling.least
        span = self._span
        self.n_filled = 0
        """Poses interpolated by the last push."""
        self.n_jumps = 0
        """Tracks that the last push began again."""
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._keypoints = np.empty((0, 2 * span, V, 2), dtype=np.float32)
        self._confidence = np.empty((0, 2 * span), dtype=np.float32)
        self._seen = np.empty((0, 2 * span), dtype=np.bool_)
        self._last = np.empty(0, dtype=np.int64)
        """Frame of each track's latest pose."""
        self._length = np.empty(0, dtype=np.int64)
        """Poses in the current run of each track."""

    def push(
        self,
        frame: int,
        track_ids: Sequence[int],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
    ) -> CompletedWindows:
        """Add a pose to each of these tracks; return the windows completed, track by track."""
        self.n_filled = 0
        self._forget(frame)
        slots = np.array([self._slot_of(track_id) for track_id in track_ids], dtype=np.int64)
        if self.sampling.frame_s is not None:
            self._restart_jumped(frame, slots, keypoints)
        missed = (self._length[slots] > 0) & (self._last[slots] < frame - 1)
        ids = np.array(track_ids, dtype=np.int64)
        late = []
        if missed.any():
            some = slots[missed], ids[missed], keypoints[missed], confidence[missed]
            late = self._fill(frame, *some)
        self._write(slots, keypoints, confidence, frame, seen=True)
        found = self._windows(slots, ids)
        if not late:
            return found
        joined = CompletedWindows.joined([*late, found])
        rank = {track_id: i for i, track_id in enumerate(track_ids)}
        by_track = np.array([rank[track_id] for track_id in joined.track_id.tolist()])
        return joined.part(np.lexsort((joined.frame, by_track)))

    def __len__(self) -> int:
        """Number of tracks in memory."""
        return len(self._slot)

    def _forget(self, frame: int) -> None:
        """Drop tracks that were missed for longer than a gap that is filled."""
        gone = (self._length > 0) & ends_run(frame - self._last - 1, self.sampling.gap)
        if gone.any():
            for track_id, slot in [*self._slot.items()]:
                if gone[slot]:
                    del self._slot[track_id]
                    self._length[slot] = 0
                    self._free.append(slot)

    def _restart_jumped(
        self, frame: int, slots: NDArray[np.int64], keypoints: NDArray[np.float32]
    ) -> None:
        """Begin new runs of the tracks that went over to another body."""
        known = self._length[slots] > 0
        old = slots[known]
        before = self._keypoints[old, (self._length[old] - 1) % self._span]
        missed = frame - self._last[old] - 1
        jumps = self.sampling.jumps(before, keypoints[known], missed)
        self._length[old[jumps]] = 0
        self.n_jumps = int(jumps.sum())

    def _slot_of(self, track_id: int) -> int:
        slot = self._slot.get(track_id)
        if slot is None:
            if not self._free:
                self._grow()
            slot = self._slot[track_id] = self._free.pop()
        return slot

    def _grow(self) -> None:
        """Double the number of slots, at least 8 more."""
        before = len(self._last)
        more = max(before, 8)
        self._free.extend(range(before + more - 1, before - 1, -1))
        for name in ("_keypoints", "_confidence", "_seen", "_last", "_length"):
            array = getattr(self, name)
            room = np.zeros((more, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, room]))

    def _fill(
        self,
        frame: int,
        slots: NDArray[np.int64],
        track_id: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
    ) -> list[CompletedWindows]:
        """Interpolate the missed poses of some tracks; return the windows they complete."""
        latest = slots, (self._length[slots] - 1) % self._span
        earlier = self._keypoints[latest], self._confidence[latest]
        missed = frame - self._last[slots] - 1
        row, ahead, (filled, sure) = fill_gaps(missed, (keypoints, confidence), earlier)
        found = []
        for back in range(int(missed.max()), 0, -1):
            at = np.flatnonzero(ahead == back)
            self._write(slots[row[at]], filled[at], sure[at], frame - back, seen=False)
            found.append(self._windows(slots[row[at]], track_id[row[at]]))
        self.n_filled += int(missed.sum())
        return found

    def _write(
        self,
        slots: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
        frame: int,
        *,
        seen: bool,
    ) -> None:
        place = self._length[slots] % self._span
        for copy in (place, place + self._span):
            self._keypoints[slots, copy] = keypoints
            self._confidence[slots, copy] = confidence
            self._seen[slots, copy] = seen
        self._length[slots] += 1
        self._last[slots] = frame

    def _windows(self, slots: NDArray[np.int64], track_id: NDArray[np.int64]) -> CompletedWindows:
        """The latest window of each of these tracks that is long enough for one."""
        whole = self._length[slots] >= self._least
        slots = slots[whole, None]
        length = self._length[slots]
        poses = length % self._span + np.arange(self._span)  # (N, span)
        if self._least < self._span:  # a young track does not fill its ring yet
            first = np.maximum(length - self._span + np.arange(self._span), 0)
            poses = np.where(length < self._span, first, poses)
        keypoints, confidence = self.sampling.take(
            self._keypoints[slots, poses], self._confidence[slots, poses]
        )
        seen = self.sampling.take_seen(self._seen[slots, poses])
        n_poses = self.sampling.n_poses(np.minimum(length[:, 0], self._span))
        last = self._last[slots[:, 0]]
        return CompletedWindows(keypoints, confidence, track_id[whole], last, n_poses, seen)
