"""Windows of clips whose poses come some at a time, the same as of clips read whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.formats.trackheader import ClipFacts
from stepvad.formats.trackrows import Rows
from stepvad.poses import MAX_COORDINATE, MAX_FRAME
from stepvad.skeletons import Skeleton
from stepvad.windows import PIECE, Counts, Run, WindowIndex, join, prepare


class Cutter:
    """The windows of one clip whose rows come in order, by track and frame.

    It holds no more than some thousand poses. A track is cut where `windows.clip_runs` cuts it and
    pieces are gathered as `windows.cut_in_pieces` gathers them, so that windows, and the batches
    they are scored in, are those of the clip read whole.
    """

    def __init__(
        self, facts: ClipFacts | None, config: Config, source: Skeleton, target: Skeleton
    ) -> None:
        self.counts = Counts()
        self.n_frames = 0 if facts is None else facts.n_frames
        """Frames of the clip; where nothing tells, up to its last pose so far."""
        self._is_open = facts is None
        self._config, self._source, self._target = config, source, target
        self._last: tuple[int, int] | None = None  # track and frame
        self._waiting: list[tuple[NDArray[np.int64], Run]] = []
        self._n_waiting = 0
        self._tail: Run | None = None
        self._runs: list[Run] = []
        self._n_poses = 0

    def add(self, rows: Rows) -> Iterator[WindowIndex]:
        """Windows that are complete with these rows, whenever there are enough."""
        self._check(rows)
        keypoints, confidence, mended = prepare(
            rows.keypoints, rows.confidence, self._source, self._target
        )
        self.counts += mended
        track, frame = rows.track, rows.frame
        last = (track[0] - 1, 0) if self._last is None else self._last
        other_track = np.diff(track, prepend=last[0]) != 0
        begins = other_track | (np.diff(frame, prepend=last[1]) - 1 > self._config.T)
        edges = [0, *(np.flatnonzero(begins[1:]) + 1).tolist(), len(track)]
        for first, end in pairwise(edges):
            if begins[first]:
                yield from self._end_run(ends_track=bool(other_track[first]))
            part = slice(first, end)
            run = Run(int(track[first]), int(frame[first]), keypoints[part], confidence[part])
            yield from self._grow(frame[part], run)
        self._last = int(track[-1]), int(frame[-1])

    def finish(self) -> Iterator[WindowIndex]:
        """The rest, once the clip is over."""
        yield from self._end_run(ends_track=True)
        yield from self._gathered(least=1)

    def _grow(self, frames: NDArray[np.int64], run: Run) -> Iterator[WindowIndex]:
        """Further poses of the run in hand."""
        first = 0
        while first < len(run):
            if self._n_waiting == PIECE:
                yield from self._take(ends_run=False, ends_track=False)
            end = min(first + PIECE - self._n_waiting, len(run))
            self._waiting.append((frames[first:end], run.part(first, end)))
            self._n_waiting += end - first
            first = end

    def _end_run(self, *, ends_track: bool) -> Iterator[WindowIndex]:
        if self._waiting:
            yield from self._take(ends_run=True, ends_track=ends_track)
        self._tail = None

    def _take(self, *, ends_run: bool, ends_track: bool) -> Iterator[WindowIndex]:
        """Make windows of the poses that wait."""
        frames, poses = self._waiting[0]
        if len(self._waiting) > 1:
            frames = np.concatenate([some for some, _ in self._waiting])
            parts = [run for _, run in self._waiting]
            poses = Run(
                poses.track_id,
                poses.first_frame,
                np.concatenate([run.keypoints for run in parts]),
                np.concatenate([run.confidence for run in parts]),
            )
        self._waiting, self._n_waiting = [], 0
        ends = ends_run, ends_track
        run, filled, self._tail = join(self._tail, poses, frames, self._config, ends)
        self.counts += filled
        self._runs.append(run)
        self._n_poses += len(run)
        yield from self._gathered(least=PIECE)

    def _gathered(self, *, least: int) -> Iterator[WindowIndex]:
        if self._n_poses >= least:
            runs, self._runs, self._n_poses = self._runs, [], 0
            yield WindowIndex.of(runs, self._config, self._target.V)

    def _check(self, rows: Rows) -> None:
        """Refuse what no track may have, as tracks do, and rows out of order."""
        track, frame, keypoints = rows.track, rows.frame, rows.keypoints
        later = (np.diff(track) > 0) | ((np.diff(track) == 0) & (np.diff(frame) > 0))
        in_order = bool(later.all()) and (
            self._last is None or self._last < (int(track[0]), int(frame[0]))
        )
        sound = keypoints.min() >= -MAX_COORDINATE and keypoints.max() <= MAX_COORDINATE
        if not (in_order and sound and frame.min() >= 0 and frame.max() <= MAX_FRAME):
            rows.tracks()  # says what is wrong, if it is not their order
            raise DataError(
                "expected rows in the order of tracks and frames, got others",
                hint="write the file again with: stepvad convert",
            )
        last = int(frame.max())
        if self._is_open:
            self.n_frames = max(self.n_frames, last + 1)
        elif last >= self.n_frames:
            raise DataError(
                f"expected frames below {self.n_frames}, got {last}",
                hint="frames count from 0; check the clip's length",
            )
