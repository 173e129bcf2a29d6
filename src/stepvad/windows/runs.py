"""Build runs, consecutive frames with gaps filled, from poses sorted by track and frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.poses import Clip, PoseRows, Track
from stepvad.skeletons import Skeleton
from stepvad.windows.gaps import ends_run, fill_gaps
from stepvad.windows.index import Run
from stepvad.windows.prepare import prepare
from stepvad.windows.sampling import Sampling
from stepvad.windows.values import Repairs

PIECE = 32_768
"""Most poses of a run held at once; the pieces of a longer one overlap by a window less a pose."""

Repaired = tuple[Run, Repairs]
"""A run, and the repairs made since the previous one."""


def clip_runs(
    clip: Clip, config: Config, skeleton: Skeleton, sampling: Sampling | None = None
) -> Iterator[Repaired]:
    """The runs of a clip, converted to the given skeleton."""
    try:
        yield from runs_of(_parts(clip), config, clip.skeleton, skeleton, sampling)
    except DataError as error:
        raise error.located(f"clip {clip.name}") from error


def _parts(clip: Clip) -> Iterator[PoseRows]:
    """The poses of a clip in parts: many short tracks together, or a part of a long one."""
    together: list[PoseRows] = []
    n_poses = 0
    for track in clip.tracks:
        for rows in _rows(track):
            if together and n_poses + len(rows.frame) > PIECE:
                yield PoseRows.joined(together)
                together, n_poses = [], 0
            together.append(rows)
            n_poses += len(rows.frame)
    if together:
        yield PoseRows.joined(together)


def _rows(track: Track) -> Iterator[PoseRows]:
    """The poses of a track, at most `PIECE` at a time."""
    for first in range(0, len(track), PIECE):
        part = slice(first, first + PIECE)
        frames, keypoints = track.frames[part], track.keypoints[part]
        yield PoseRows(np.full(len(frames), track.id), frames, keypoints, track.confidence[part])


def runs_of(
    parts: Iterable[PoseRows],
    config: Config,
    source: Skeleton,
    target: Skeleton,
    sampling: Sampling | None = None,
) -> Iterator[Repaired]:
    """Yield the runs of poses sorted by track and frame, given in parts of any size.

    Runs, and the pieces of long ones, do not depend on the size of the parts.
    """
    builder = _Builder(
        config, source, target, sampling or Sampling(config.T, shortest=config.shortest)
    )
    for part in parts:
        for run in builder.add(part):
            yield run, builder.taken_counts()
    for run in builder.end_run(ends_track=True):
        yield run, builder.taken_counts()


class _Builder:
    """The run under construction: pending poses and the tail they are joined to."""

    def __init__(
        self, config: Config, source: Skeleton, target: Skeleton, sampling: Sampling
    ) -> None:
        self._counts = Repairs()
        self._config, self._source, self._target = config, source, target
        self._sampling = sampling
        self._last: tuple[int, int] | None = None  # track and frame
        self._last_pose = np.zeros((1, target.V, 2), np.float32)
        self._waiting: list[tuple[NDArray[np.int64], Run]] = []
        self._n_waiting = 0
        self._tail: Run | None = None

    def taken_counts(self) -> Repairs:
        """Return the repairs made since the last call."""
        counts, self._counts = self._counts, Repairs()
        return counts

    def add(self, rows: PoseRows) -> Iterator[Run]:
        """Add poses; yield the runs, or pieces of a run, that they complete."""
        keypoints, confidence, mended = prepare(
            rows.keypoints, rows.confidence, self._source, self._target, self._config
        )
        self._counts += mended
        track, frame = rows.track, rows.frame
        last = (track[0] - 1, 0) if self._last is None else self._last
        other_track = np.diff(track, prepend=last[0]) != 0
        missed = np.diff(frame, prepend=last[1]) - 1
        begins = other_track | ends_run(missed, self._sampling.gap)
        if self._sampling.frame_s is not None:
            begins |= self._jumps(keypoints, missed, known=~begins)
        edges = [0, *(np.flatnonzero(begins[1:]) + 1).tolist(), len(track)]
        for first, end in pairwise(edges):
            if begins[first]:
                yield from self.end_run(ends_track=bool(other_track[first]))
            part = slice(first, end)
            run = Run(int(track[first]), int(frame[first]), keypoints[part], confidence[part])
            yield from self._grow(frame[part], run)
        self._last, self._last_pose = (int(track[-1]), int(frame[-1])), keypoints[-1:]

    def _jumps(
        self, keypoints: NDArray[np.float32], missed: NDArray[np.int64], known: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Where the body jumped from the pose before, if that is `known`."""
        before = np.concatenate([self._last_pose, keypoints[:-1]])
        found = known.copy()
        found[known] = self._sampling.jumps(before[known], keypoints[known], missed[known])
        self._counts += Repairs(jumps=int(found.sum()))
        return found

    def end_run(self, *, ends_track: bool) -> Iterator[Run]:
        """End the current run and yield its pending poses."""
        if self._waiting:
            yield self._joined(ends_run=True, ends_track=ends_track)
        self._tail = None

    def _grow(self, frames: NDArray[np.int64], run: Run) -> Iterator[Run]:
        """Append poses to the current run; yield a piece when `PIECE` poses are pending."""
        first = 0
        while first < len(run):
            if self._n_waiting == PIECE:
                yield self._joined(ends_run=False, ends_track=False)
            end = min(first + PIECE - self._n_waiting, len(run))
            self._waiting.append((frames[first:end], run.part(first, end)))
            self._n_waiting += end - first
            first = end

    def _joined(self, *, ends_run: bool, ends_track: bool) -> Run:
        """Join pending poses to the run's tail, as a run with all windows that they complete."""
        frames = np.concatenate([some for some, _ in self._waiting])
        poses = Run.joined([run for _, run in self._waiting])
        self._waiting, self._n_waiting = [], 0
        run, n_new = _extended(self._tail, poses, frames)
        span, drops_last = self._sampling.span, self._config.drop_last_window and ends_track
        self._counts += Repairs(
            filled_poses=n_new - len(frames),
            short_runs=int(ends_run and len(run) < self._sampling.least),
        )
        self._tail = run.part(-max(span - 1, 1), len(run))
        piece = run.part(-(n_new + span - 1), len(run) - drops_last)
        return replace(piece, n_before=max(len(piece) + drops_last - n_new, 0))


def _extended(tail: Run | None, poses: Run, frames: NDArray[np.int64]) -> tuple[Run, int]:
    """Append poses, seen in `frames`, to a run; also return by how many it grew."""
    before = int(frames[0]) - 1 if tail is None else tail.last_frame
    missed = np.diff(frames, prepend=before) - 1
    if missed.any():
        poses = _filled(tail, poses, missed)
    return (poses if tail is None else Run.joined([tail, poses])), len(poses)


def _filled(tail: Run | None, poses: Run, missed: NDArray[np.int64]) -> Run:
    """Insert the missed poses before each pose."""
    gap = np.flatnonzero(missed)
    keypoints, confidence = poses.keypoints[gap - 1], poses.confidence[gap - 1]
    if tail is not None and missed[0]:
        keypoints[0], confidence[0] = tail.keypoints[-1], tail.confidence[-1]
    _, ahead, filled = fill_gaps(
        missed, (poses.keypoints, poses.confidence), (keypoints, confidence)
    )
    return Run(poses.track_id, poses.first_frame - int(missed[0]), *filled, seen=ahead == 0)
