"""Poses by track to runs, consecutive frames with gaps filled, and runs to windows by the clock."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.poses import Clip, PoseRows, Track
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Repairs, jumped, prepare
from stepvad.windows.views import CompletedWindows, PoseArrays, Views, ViewSettings, Windows


def cut(clip: Clip, views: Views, skeleton: Skeleton) -> tuple[WindowIndex, Repairs]:
    """Every window of a clip, converted to the given skeleton, and the repairs made."""
    sampling = Sampling.for_views(views, clip.fps)
    pieces = list(clip_runs(clip, views, skeleton, sampling))
    index = WindowIndex.of_runs([run for run, _ in pieces], views, skeleton.V, sampling)
    return index, sum((mended for _, mended in pieces), Repairs())


def cut_in_pieces(
    clip: Clip, views: Views, skeleton: Skeleton
) -> Iterator[tuple[WindowIndex, Repairs]]:
    """Yield the same windows in pieces, in memory that does not grow with the clip."""
    sampling = Sampling.for_views(views, clip.fps)
    return in_pieces(clip_runs(clip, views, skeleton, sampling), views, skeleton, sampling)


def in_pieces(
    repaired: Iterable[Repaired],
    views: Views,
    skeleton: Skeleton,
    sampling: Sampling | None = None,
) -> Iterator[tuple[WindowIndex, Repairs]]:
    """Yield the windows of runs whenever enough poses are collected, with the repairs made."""
    gathered: list[Run] = []
    counts, n_poses = Repairs(), 0
    for run, mended in repaired:
        gathered.append(run)
        counts += mended
        n_poses += len(run)
        if n_poses >= PIECE:
            yield WindowIndex.of_runs(gathered, views, skeleton.V, sampling), counts
            gathered, counts, n_poses = [], Repairs(), 0
    yield WindowIndex.of_runs(gathered, views, skeleton.V, sampling), counts


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
    available: NDArray[np.int64]
    """Frames at hand for each window; where they are too few, the first one is repeated."""
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    views: Views
    sampling: Sampling

    @classmethod
    def of_runs(
        cls, runs: Sequence[Run], views: Views, V: int, sampling: Sampling | None = None
    ) -> WindowIndex:
        """All windows of these runs, one frame apart; T frames long unless sampled otherwise."""
        sampling = sampling or Sampling.unsampled(views)
        span = sampling.span
        # poses and windows of each run, (runs,)
        lengths = np.array([len(run) for run in runs], dtype=np.int64)
        least = [max(sampling.least - 1, run.n_before) for run in runs]
        n_windows = np.maximum(lengths - least, 0) if runs else lengths
        # position of each window within its run: 0, 1, … for the first run, 0, 1, … for the next
        offset = np.arange(n_windows.sum()) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
        # position of each window's last pose within its run, (N,)
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
            available=np.minimum(last + 1, span),
            track_id=np.repeat(track_id, n_windows),
            frame=np.repeat(first_frame, n_windows) + last,
            views=views,
            sampling=sampling,
        )

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.start)

    def windows(self, rows: NDArray[np.int64] | slice) -> Windows:
        """The windows at these rows, cut and standardised."""
        return Windows.completed(self.completed(rows), self.views)

    def completed(self, rows: NDArray[np.int64] | slice) -> CompletedWindows:
        """The windows at these rows, in pixels."""
        n_poses = self.sampling.n_poses(self.available[rows])
        seen = self.sampling.sample_seen(self.seen[self._covered(rows)])
        whose = self.track_id[rows], self.frame[rows]
        return CompletedWindows(*self.poses(rows), *whose, n_poses, seen)

    def lacking(self, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Number of frames that the windows at these rows lack, because their tracks are young."""
        return self.sampling.span - self.available[rows]

    def poses(self, rows: NDArray[np.int64] | slice) -> PoseArrays:
        """The windows at these rows in pixels `(n, T, V, 2)`, and their confidences `(n, T)`."""
        covered = self._covered(rows)
        return self.sampling.sample(self.keypoints[covered], self.confidence[covered])

    def _covered(self, rows: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Positions of the poses that the windows at these rows cover, `(n, span)`."""
        span, available = self.sampling.span, self.available[rows]
        covered = self.start[rows][:, None] + np.arange(span)
        if (available < span).any():
            return np.maximum(covered, covered[:, -1:] - available[:, None] + 1)
        return covered

    def batches(self, size: int) -> Iterator[Windows]:
        """All windows in order, at most `size` at a time."""
        for first in range(0, len(self), size):
            yield self.windows(slice(first, first + size))


PIECE = 32_768
"""Most poses of a run held at once; the pieces of a longer one overlap by a window less a pose."""

Repaired = tuple[Run, Repairs]
"""A run, and the repairs made since the previous one."""


def clip_runs(
    clip: Clip, views: Views, skeleton: Skeleton, sampling: Sampling | None = None
) -> Iterator[Repaired]:
    """The runs of a clip, converted to the given skeleton."""
    try:
        yield from runs_of(_parts(clip), views, clip.skeleton, skeleton, sampling)
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
    views: Views,
    source: Skeleton,
    target: Skeleton,
    sampling: Sampling | None = None,
) -> Iterator[Repaired]:
    """Yield the runs of poses sorted by track and frame, given in parts of any size.

    Runs, and the pieces of long ones, do not depend on the size of the parts.
    """
    builder = _Builder(views[0], source, target, sampling or Sampling.unsampled(views))
    for part in parts:
        for run in builder.extend(part):
            yield run, builder.pop_repairs()
    for run in builder.end_run(ends_track=True):
        yield run, builder.pop_repairs()


class _Builder:
    """The run under construction: pending poses and the tail they are joined to."""

    def __init__(
        self, view: ViewSettings, source: Skeleton, target: Skeleton, sampling: Sampling
    ) -> None:
        self._counts = Repairs()
        self._view, self._source, self._target = view, source, target
        self._sampling = sampling
        self._last: tuple[int, int] | None = None  # track and frame
        self._last_pose = np.zeros((1, target.V, 2), np.float32)
        self._waiting: list[tuple[NDArray[np.int64], Run]] = []
        self._n_waiting = 0
        self._tail: Run | None = None

    def pop_repairs(self) -> Repairs:
        """Return the repairs made since the last call."""
        counts, self._counts = self._counts, Repairs()
        return counts

    def extend(self, rows: PoseRows) -> Iterator[Run]:
        """Add poses; yield the runs, or pieces of a run, that they complete."""
        keypoints, confidence, mended = prepare(
            rows.keypoints,
            rows.confidence,
            self._source,
            self._target,
            self._view.config.joints,
            self._view.noise,
        )
        self._counts += mended
        # poses that begin a run, (n,): of another track, after a long gap, or where the body jumped
        track, frame = rows.track, rows.frame
        last = (track[0] - 1, 0) if self._last is None else self._last
        other_track = np.diff(track, prepend=last[0]) != 0
        missed = np.diff(frame, prepend=last[1]) - 1
        begins = other_track | ends_run(missed, self._sampling.gap)
        if self._sampling.frame_s is not None:
            begins |= self._jumps(keypoints, missed, known=~begins)
        # each stretch between two beginnings goes on with the run or starts the next
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
        """Poses at which the body jumped from the pose before, if that is `known`."""
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
        # the run so far, as far back as a window reaches, with the gaps before the new poses filled
        run, n_new = _extended(self._tail, poses, frames)
        span, reference = self._sampling.span, self._view.config.reference
        drops_last = reference.drop_last_window and ends_track
        self._counts += Repairs(
            filled_poses=n_new - len(frames),
            short_runs=int(ends_run and len(run) < self._sampling.least),
        )
        # the next piece repeats all but one pose of a window, which end no window there
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
    # the pose before each gap; that of a gap at the start is the last one of the run
    gap = np.flatnonzero(missed)
    keypoints, confidence = poses.keypoints[gap - 1], poses.confidence[gap - 1]
    if tail is not None and missed[0]:
        keypoints[0], confidence[0] = tail.keypoints[-1], tail.confidence[-1]
    _, frames_until, filled = fill_gaps(
        missed, (poses.keypoints, poses.confidence), (keypoints, confidence)
    )
    return Run(poses.track_id, poses.first_frame - int(missed[0]), *filled, seen=frames_until == 0)


def ends_run(missed: NDArray[np.int64], longest: int) -> NDArray[np.bool_]:
    """Test whether a gap of this many missed frames is too long to fill, `(n,)`."""
    return missed > longest


def fill_gaps(
    missed: NDArray[np.int64], poses: PoseArrays, earlier: PoseArrays
) -> tuple[NDArray[np.int64], NDArray[np.int64], PoseArrays]:
    """Insert the `missed (n,)` poses before each pose, interpolated linearly in time.

    `earlier` holds the pose before each gap, one for every `missed` above 0. Returns for each
    resulting pose the row of the pose it leads to, the frames from it to that pose, and the pose.
    """
    (keypoints, confidence), gap = poses, np.flatnonzero(missed)
    # each pose as often as frames lead to it, (m,): the copies before it become the new ones
    row = np.repeat(np.arange(len(missed)), missed + 1)
    frames_until = np.cumsum(missed + 1)[row] - np.arange(len(row)) - 1
    keypoints, confidence = keypoints[row], confidence[row]
    # how far each new pose is on the way from the earlier pose to the next one, (new,)
    new = np.flatnonzero(frames_until)
    span = missed[row[new]] + 1
    share = ((span - frames_until[new]) / span).astype(np.float32)
    from_keypoints, from_confidence = (np.repeat(one, missed[gap], axis=0) for one in earlier)
    keypoints[new] = from_keypoints + (keypoints[new] - from_keypoints) * share[:, None, None]
    confidence[new] = from_confidence + (confidence[new] - from_confidence) * share
    return row, frames_until, (keypoints, confidence)


logger = logging.getLogger(__name__)

MAX_RATIO = 100.0
"""Largest ratio of two frame rates, either way; beyond it one of them is a mistake."""
USUAL_FPS = 25.0
"""Frames per second of a model that does not know its own."""
ROUNDING = 1e-9
"""Positions this close to a whole frame are that frame."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Positions of the T poses of a window among the frames of a camera.

    The last pose is the camera's latest frame; the others lie `ratio` frames apart, interpolated
    linearly between frames. With equal rates they are the frames themselves, as in the paper.
    """

    T: int
    ratio: float = 1.0
    """Frames of the camera per frame of the model."""
    shortest: int | None = None
    """Poses that make a window while a track is young, its first one repeated; None: all T."""
    frame_s: float | None = None
    """Seconds between frames of the camera, to tell whether a body jumped; None: do not look."""

    @classmethod
    def for_rate(cls, config: Config, fps: float | None) -> Sampling:
        """The sampling of a camera with this frame rate; an unknown rate is that of the model.

        Another rate than the model's is converted or logged, never ignored.
        """
        ratio = 1.0 if fps == config.fps else _ratio(config, fps)
        frame_s = 1 / (ratio * (config.fps or USUAL_FPS)) if config.split_jumps else None
        return cls(config.T, ratio, config.shortest, frame_s)

    @classmethod
    def for_views(cls, views: Views, fps: float | None) -> Sampling:
        """The same for all views: as long as the longest, from the fewest poses that one needs."""
        sampling = cls.for_rate(views[0].config, fps)
        return replace(sampling, shortest=min(view.config.shortest for view in views))

    @classmethod
    def unsampled(cls, views: Views) -> Sampling:
        """The sampling of footage at the model's own frame rate."""
        return cls.for_views(views, views[0].config.fps)

    def jumps(
        self, before: NDArray[np.float32], after: NDArray[np.float32], missed: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Test for jumps between poses `(n, V, 2)` with so many frames missed, `(n,)`."""
        if self.frame_s is None or not len(after):
            return np.zeros(len(after), np.bool_)
        return jumped(before, after, (missed + 1) * np.float64(self.frame_s))

    @property
    def span(self) -> int:
        """Frames of the camera that a window covers."""
        return 1 + math.ceil((self.T - 1) * self.ratio - ROUNDING)

    @property
    def least(self) -> int:
        """Frames of the camera that a track needs for its first window."""
        return Sampling(self.shortest, self.ratio).span if self.shortest else self.span

    def n_poses(self, n_frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of a window's poses that are not repeated, given the frames at hand."""
        return np.minimum((n_frames - 1) / self.ratio + ROUNDING, self.T - 1).astype(np.int64) + 1

    @property
    def gap(self) -> int:
        """The longest gap that is filled, in frames of the camera: as long as T of the model's."""
        return math.floor(self.T * self.ratio + ROUNDING)

    @property
    def frames(self) -> NDArray[np.int64]:
        """The frame nearest to each pose, counted from the first one covered, `(T,)`."""
        before, share = _positions(self.T, self.ratio)
        return before + (share >= 0.5)

    def sample(self, keypoints: NDArray[np.float32], confidence: NDArray[np.float32]) -> PoseArrays:
        """Windows `(N, T, V, 2)` and `(N, T)` from the frames they cover, `(N, span, …)`.

        Each value is computed on its own, so any batching gives the same bits.
        """
        if self.ratio == 1:
            return keypoints, confidence
        before, share = _positions(self.T, self.ratio)
        after = np.minimum(before + 1, self.span - 1)
        return (
            _between(keypoints[:, before], keypoints[:, after], share[:, None, None]),
            _between(confidence[:, before], confidence[:, after], share),
        )

    def sample_seen(self, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which poses of windows were seen `(N, T)`, from the frames they cover, `(N, span)`.

        A pose between two frames was seen if both of them were.
        """
        if self.ratio == 1:
            return seen
        before, share = _positions(self.T, self.ratio)
        return seen[:, before] & seen[:, before + (share > 0)]


@lru_cache(maxsize=1024)
def _ratio(config: Config, fps: float | None) -> float:
    """Frames of the camera per frame of the model; the rates are logged once."""
    if (note := rate_note(config, fps)) is not None:
        logger.log(logging.INFO if is_resampled(config, fps) else logging.WARNING, note)
    if config.fps is None or fps is None or not is_resampled(config, fps):
        return 1.0
    ratio = fps / config.fps
    if not 1 / MAX_RATIO <= ratio <= MAX_RATIO:
        raise DataError(
            f"expected a frame rate near the model's {config.fps:g} per second, got {fps:g}",
            hint="check the rate of the footage, and the one the model was fitted at",
        )
    return ratio


def is_resampled(config: Config, fps: float | None) -> bool:
    """True if footage of this frame rate is converted to the model's."""
    return config.clock and config.fps is not None and fps is not None


def rate_note(config: Config, fps: float | None) -> str | None:
    """Note on footage whose frame rate is not the model's; None if it is the same."""
    if fps == config.fps:
        return None
    if config.fps is None:
        return (
            "the model does not state the frame rate it was fitted at; assuming the footage's "
            f"{fps:g} per second. To state it: stepvad fit --fps RATE"
        )
    if fps is None:
        return (
            f"the footage does not state its frame rate; assuming the model's {config.fps:g} "
            "frames per second. To set it: --fps"
        )
    if config.clock:
        return f"footage of {fps:g} frames per second is resampled to the model's {config.fps:g}"
    return (
        f"the model was fitted at {config.fps:g} frames per second, the footage has {fps:g}: "
        f"windows of {config.T} frames last {config.T / fps:.2g} s instead of "
        f"{config.T / config.fps:.2g} s; fit with `clock = true` to have footage resampled"
    )


@lru_cache(maxsize=64)
def _positions(T: int, ratio: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The frame at or before each pose, counted from the first, and how far beyond it, `(T,)`."""
    at = Sampling(T, ratio).span - 1 - np.arange(T - 1, -1, -1) * ratio
    before = np.maximum(np.floor(at + ROUNDING), 0)
    share = np.maximum(at - before, 0)
    return before.astype(np.int64), np.where(share > ROUNDING, share, 0).astype(np.float32)


def _between(
    before: NDArray[np.float32], after: NDArray[np.float32], share: NDArray[np.float32]
) -> NDArray[np.float32]:
    return before + (after - before) * share


def at_rate(clip: Clip, config: Config) -> Clip:
    """The clip as a camera with the model's frame rate would have recorded it.

    Poses between two frames are interpolated where both hold one; gaps stay gaps. Settings that
    do not cut by the clock leave it as it is.
    """
    ratio, fps = Sampling.for_rate(config, clip.fps).ratio, config.fps
    if ratio == 1:
        return clip
    tracks = [_resampled(track, ratio) for track in clip.tracks]
    n_frames = math.ceil(clip.n_frames / ratio - ROUNDING)
    kept = tuple(track for track in tracks if len(track))
    return Clip(clip.name, fps, n_frames, kept, clip.skeleton)


def _resampled(track: Track, ratio: float) -> Track:
    """A track with `ratio` of its frames per new one."""
    if not len(track):
        return track
    # new frames, and where they lie among the old ones, (n,)
    first = math.ceil(track.frames[0] / ratio - ROUNDING)
    last = math.floor(track.frames[-1] / ratio + ROUNDING)
    frames = np.arange(first, last + 1, dtype=np.int64)
    at = frames * ratio
    before = np.floor(at + ROUNDING).astype(np.int64)
    share = np.where(at - before > ROUNDING, at - before, 0).astype(np.float32)
    after = before + (share > 0)
    # only between two frames that both hold a pose
    rows, next_rows = np.searchsorted(track.frames, [before, after])
    there = np.isin(before, track.frames) & np.isin(after, track.frames)
    rows, next_rows, share = rows[there], next_rows[there], share[there]
    return Track(
        track.id,
        frames[there],
        _between(track.keypoints[rows], track.keypoints[next_rows], share[:, None, None]),
        _between(track.confidence[rows], track.confidence[next_rows], share[:, None]),
    )
