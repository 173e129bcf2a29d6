"""Runs of poses and all their windows, cut on demand, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.windows.gaps import PoseArrays
from stepvad.windows.sampling import Sampling
from stepvad.windows.values import CompletedWindows, Windows


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive frames of a track, gaps filled: keypoints `(n, V, 2)`, mean confidence `(n,)`.

    `seen (n,)` says which poses were not interpolated; without it, all of them were seen.
    """

    track_id: int
    first_frame: int
    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]
    n_before: int = 0
    """Poses at its start that belong to the piece before, and end no window of this one."""
    seen: NDArray[np.bool_] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Run]) -> Run:
        """Concatenate consecutive parts of one run."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            parts[0].track_id,
            parts[0].first_frame,
            np.concatenate([part.keypoints for part in parts]),
            np.concatenate([part.confidence for part in parts]),
            seen=np.concatenate([part.seen_poses for part in parts]),
        )

    def __len__(self) -> int:
        """Number of poses n."""
        return len(self.keypoints)

    @property
    def last_frame(self) -> int:
        """Frame of the last pose."""
        return self.first_frame + len(self) - 1

    @property
    def seen_poses(self) -> NDArray[np.bool_]:
        """Which poses were seen, `(n,)`."""
        return np.ones(len(self), np.bool_) if self.seen is None else self.seen

    def part(self, first: int, end: int) -> Run:
        """The poses of slice `first:end`; negative numbers count from the end."""
        poses = slice(*slice(first, end).indices(len(self)))
        return Run(
            self.track_id,
            self.first_frame + poses.start,
            self.keypoints[poses],
            self.confidence[poses],
            seen=None if self.seen is None else self.seen[poses],
        )


@dataclass(frozen=True, slots=True, eq=False)
class WindowIndex:
    """Every window of some runs, kept as positions in their poses until `windows` cuts a batch."""

    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]
    seen: NDArray[np.bool_]
    start: NDArray[np.int64]
    """Position of each window's first pose, as if its track had been there long enough."""
    here: NDArray[np.int64]
    """Frames at hand for each window; where they are too few, the first one is repeated."""
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    config: Config
    sampling: Sampling

    @classmethod
    def of(
        cls, runs: Sequence[Run], config: Config, V: int, sampling: Sampling | None = None
    ) -> WindowIndex:
        """All windows of these runs, one frame apart; T frames long unless sampled otherwise."""
        sampling = sampling or Sampling(config.T, shortest=config.shortest)
        span = sampling.span
        lengths = np.array([len(run) for run in runs], dtype=np.int64)
        least = [max(sampling.least - 1, run.n_before) for run in runs]
        n_windows = np.maximum(lengths - least, 0) if runs else lengths
        # position of each window within its run: 0, 1, … for the first run, 0, 1, … for the next
        offset = np.arange(n_windows.sum()) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
        last = np.repeat(np.array(least, dtype=np.int64), n_windows) + offset
        first_pose = np.cumsum(lengths) - lengths
        first_frame = np.array([run.first_frame for run in runs], dtype=np.int64)
        track_id = np.array([run.track_id for run in runs], dtype=np.int64)
        empty = np.empty((0, V, 2), dtype=np.float32)
        return cls(
            keypoints=np.concatenate([empty, *(run.keypoints for run in runs)]),
            confidence=np.concatenate([empty[:, 0, 0], *(run.confidence for run in runs)]),
            seen=np.concatenate([np.empty(0, np.bool_), *(run.seen_poses for run in runs)]),
            start=np.repeat(first_pose, n_windows) + last - span + 1,
            here=np.minimum(last + 1, span),
            track_id=np.repeat(track_id, n_windows),
            frame=np.repeat(first_frame, n_windows) + last,
            config=config,
            sampling=sampling,
        )

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.start)

    def windows(self, rows: NDArray[np.int64] | slice) -> Windows:
        """The windows at these rows, cut and standardised."""
        n_poses = self.sampling.n_poses(self.here[rows])
        seen = self.sampling.take_seen(self.seen[self._covered(rows)])
        whose = self.track_id[rows], self.frame[rows]
        found = CompletedWindows(*self.poses(rows), *whose, n_poses, seen)
        return Windows.completed(found, self.config)

    def lacking(self, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """How many frames the windows at these rows lack, because their tracks are young."""
        return self.sampling.span - self.here[rows]

    def poses(self, rows: NDArray[np.int64] | slice) -> PoseArrays:
        """The windows at these rows in pixels `(n, T, V, 2)`, and their confidences `(n, T)`."""
        covered = self._covered(rows)
        young = (self.here[rows] < self.sampling.span).any()
        keypoints = self.keypoints[covered] if young else self._keypoints(covered)
        return self.sampling.take(keypoints, self.confidence[covered])

    def _covered(self, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Positions of the poses that the windows at these rows cover, `(n, span)`."""
        span, here = self.sampling.span, self.here[rows]
        covered = self.start[rows][:, None] + np.arange(span)
        if (here < span).any():
            return np.maximum(covered, covered[:, -1:] - here[:, None] + 1)
        return covered

    def _keypoints(self, poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """Keypoints of poses `(n, span)` as `(n, span, V, 2)`; faster for adjacent windows."""
        n, span = poses.shape
        first, end = (int(poses[:, 0].min()), int(poses[:, -1].max()) + 1) if n else (0, 0)
        if not span <= end - first <= 2 * n + span:
            return self.keypoints[poses]
        # joints outside, poses inside: the values of a joint in a window are contiguous
        turned = np.ascontiguousarray(self.keypoints[first:end].transpose(2, 1, 0))
        spans = np.lib.stride_tricks.sliding_window_view(turned, span, axis=2)  # (2, V, n, span)
        return spans.transpose(2, 0, 1, 3)[poses[:, 0] - first].transpose(0, 3, 2, 1)

    def batches(self, size: int) -> Iterator[Windows]:
        """All windows in order, at most `size` at a time."""
        for first in range(0, len(self), size):
            yield self.windows(slice(first, first + size))
