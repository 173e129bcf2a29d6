"""Windows of one camera, cut as its poses arrive, by array operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.skeletons import Skeleton
from stepvad.windows.runs import Sampling, ends_run, fill_gaps
from stepvad.windows.views import CompletedWindows, PoseArrays, Views

NEVER = -(2**62)
"""Latest frame of a track without poses."""


def check_online(config: Config) -> None:
    """Reject settings that need the end of a track."""
    if config.reference.drop_last_window:
        raise ConfigError(
            "drop_last_window: expected False for a stream, got True",
            hint="a stream cannot know which window of a track is the last",
        )


class WindowAssembler:
    """Cuts the poses of a `Stream` into windows; memory grows with the number of people in view."""

    def __init__(self, views: Views, skeleton: Skeleton, fps: float | None = None) -> None:
        check_online(views[0].config)
        self.views = views
        self.filled_poses = 0
        """Poses interpolated so far."""
        self.jumps = 0
        """Tracks that began again so far because their bodies jumped."""
        self.sampling = Sampling.for_views(views, fps)
        self._length = length = self.sampling.span
        # frames per buffer: a window and the longest gap at least, and moves that are rare
        room = max(4 * length, length + self.sampling.gap)
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._keypoints = np.empty((0, room, skeleton.V, 2), dtype=np.float32)
        self._confidence = np.empty((0, room), dtype=np.float32)
        self._seen = np.empty((0, room), dtype=np.bool_)
        self._n = np.empty(0, dtype=np.int64)
        """Poses buffered per track: the latest of its run, contiguous from position 0."""
        self._last = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        """Number of tracks in memory."""
        return len(self._slot)

    def push(
        self,
        frame: int,
        track_id: NDArray[np.int64],
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
    ) -> CompletedWindows:
        """The windows in pixels that a frame's prepared poses complete, in the order of the poses.

        No track has two poses in a frame, and no frame comes before another that was pushed.
        """
        if len(self._free) < len(track_id):
            self._sweep(frame, len(track_id))
        slots = self._slots_of(track_id.tolist())
        # frames missed before each pose, (P,)
        missed = frame - self._last[slots] - 1
        # tracks that begin, or begin again after a long gap or a jump: their buffers are emptied
        fresh = ends_run(missed, self.sampling.gap)
        if self.sampling.frame_s is not None:
            fresh |= self._jumps(slots, ~fresh, keypoints, missed)
        self._n[slots[fresh]] = 0
        missed[fresh] = 0
        # short gaps are filled: from here on a row is a pose, seen or interpolated
        source_row, frames_until = np.arange(len(slots)), np.zeros_like(missed)
        if missed.any():
            self.filled_poses += int(missed.sum())
            late = slots[missed > 0]
            latest = late, self._n[late] - 1
            earlier = self._keypoints[latest], self._confidence[latest]
            source_row, frames_until, (keypoints, confidence) = fill_gaps(
                missed, (keypoints, confidence), earlier
            )
        size = missed + 1
        self._make_room(slots, size)
        # slot of each pose, and its position in the slot's buffer, (n,)
        slot = slots[source_row]
        position = self._n[slot] + missed[source_row] - frames_until
        self._keypoints[slot, position] = keypoints
        self._confidence[slot, position] = confidence
        self._seen[slot, position] = frames_until == 0
        self._n[slots] += size
        self._last[slots] = frame
        # poses that complete a window, and the frames at hand for it
        whole = position >= self.sampling.least - 1
        available = np.minimum(position[whole] + 1, self._length)
        poses, seen = self._cut(slot[whole], position[whole], available)
        whose = track_id[source_row[whole]], frame - frames_until[whole]
        return CompletedWindows(*poses, *whose, self.sampling.n_poses(available), seen)

    def _jumps(
        self,
        slots: NDArray[np.int64],
        known: NDArray[np.bool_],
        keypoints: NDArray[np.float32],
        missed: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Which tracks begin again, because their bodies jumped."""
        old, found = slots[known], known.copy()
        latest = self._keypoints[old, self._n[old] - 1]
        found[known] = self.sampling.jumps(latest, keypoints[known], missed[known])
        self.jumps += int(found.sum())
        return found

    def _cut(
        self, slot: NDArray[np.int64], last: NDArray[np.int64], available: NDArray[np.int64]
    ) -> tuple[PoseArrays, NDArray[np.bool_]]:
        """Windows that end at these positions `(N, T, …)`, and which of their poses were seen.

        Where fewer frames are `available` than a window covers, the first one is repeated.
        """
        # slot and position of every frame of the windows, (N, span)
        back = np.minimum(np.arange(self._length - 1, -1, -1), available[:, None] - 1)
        frames = slot[:, None], last[:, None] - back
        poses = self.sampling.sample(self._keypoints[frames], self._confidence[frames])
        return poses, self.sampling.sample_seen(self._seen[frames])

    def _make_room(self, slots: NDArray[np.int64], size: NDArray[np.int64]) -> None:
        """Trim full tracks to what the next window needs: all but one frame, from position 0 on."""
        full = slots[self._n[slots] + size > self._keypoints.shape[1]]
        kept = self._length - 1
        if len(full):
            at = (self._n[full] - kept)[:, None] + np.arange(kept)
            self._keypoints[full, :kept] = self._keypoints[full[:, None], at]
            self._confidence[full, :kept] = self._confidence[full[:, None], at]
            self._seen[full, :kept] = self._seen[full[:, None], at]
            self._n[full] = kept

    def _slots_of(self, tracks: Sequence[int]) -> NDArray[np.int64]:
        """The slots of these tracks; those that are not known begin."""
        for track in tracks:
            if track not in self._slot:
                self._slot[track] = slot = self._free.pop()
                self._n[slot], self._last[slot] = 0, NEVER
        return np.array([self._slot[track] for track in tracks], dtype=np.int64)

    def _sweep(self, frame: int, wanted: int) -> None:
        """Drop tracks missed for too long; add slots if that frees too few."""
        gone = ends_run(frame - self._last - 1, self.sampling.gap)
        self._free.extend(slot for slot in self._slot.values() if gone[slot])
        self._slot = {track: slot for track, slot in self._slot.items() if not gone[slot]}
        # twice as many slots, unless enough are free now
        before = len(self._n)
        if len(self._free) > before // 4 + wanted:
            return
        more = max(before, 16, wanted)
        for name in ("_keypoints", "_confidence", "_seen", "_n", "_last"):
            array = getattr(self, name)
            room = np.zeros((more, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, room]))
        self._free.extend(range(before + more - 1, before - 1, -1))
