"""Tracks become windows X ∈ R^(2×V×T), standardised one by one (Sec. 3, Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from operator import add, attrgetter

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.poses import Clip, Track
from stepvad.skeletons import Skeleton

STGNF_SIZE = (856.0, 480.0)
"""What profile `stgnf` divides x and y by, whatever the video's size."""
PIECE = 32_768
"""Poses of a track prepared at once."""
AT_ONCE = 128
"""Windows standardised at once: they fit the caches."""
ROUNDING = float(np.finfo(np.float32).eps)
"""A spread below this share of the coordinates themselves is their rounding, not motion."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was mended on the way from poses to windows, so that nothing is mended silently."""

    poses: int = 0
    """Poses read."""
    nan_confidences: int = 0
    """Confidences that were NaN and count as 0."""
    clipped_confidences: int = 0
    """Confidences outside [0, 1], clipped."""
    missing_joints: int = 0
    """Joints at (0, 0) with confidence 0, put at the middle of the pose's other joints."""
    filled_poses: int = 0
    """Poses interpolated inside a gap of at most T frames."""
    short_runs: int = 0
    """Stretches of a track with fewer than T frames, which give no window."""

    def __add__(self, other: Counts) -> Counts:
        """The counts of both together."""
        # not by dataclasses.astuple, which copies deeply: a stream adds with every frame
        return Counts(*map(add, _each_count(self), _each_count(other)))


_each_count = attrgetter(*(field.name for field in fields(Counts)))


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """A batch of N standardised windows.

    `x (N, 2, V, T)`, mean confidence `c (N,)`, `track_id (N,)`, last frame covered `frame (N,)`,
    and `flat (N,)`: whether the window had too little spread to be scaled by it.
    """

    x: NDArray[np.float32]
    c: NDArray[np.float32]
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    flat: NDArray[np.bool_]

    def __post_init__(self) -> None:
        """Check that all arrays speak of the same N windows."""
        if self.x.ndim != 4 or self.x.shape[1] != 2:
            raise DataError(
                f"windows: x must have shape (N, 2, V, T), got {self.x.shape}",
                hint="put the two coordinates on the second axis",
            )
        for name in ("c", "track_id", "frame", "flat"):
            shape = getattr(self, name).shape
            if shape != (len(self),):
                raise DataError(
                    f"windows: {name} must have shape ({len(self)},), got {shape}",
                    hint="give one value per window",
                )

    @classmethod
    def of(
        cls,
        keypoints: NDArray[np.float32],
        confidence: NDArray[np.float32],
        track_id: NDArray[np.int64],
        frame: NDArray[np.int64],
        config: Config,
    ) -> Windows:
        """Windows of keypoints `(N, T, V, 2)` and mean confidences of poses `(N, T)`."""
        x, flat = standardise(keypoints.transpose(0, 3, 2, 1), config)
        c = confidence.astype(np.float64).mean(axis=1).astype(np.float32)
        return cls(x, c, track_id, frame, flat)

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.x)

    def part(self, rows: NDArray[np.int64]) -> Windows:
        """Some of them, in the order given."""
        return Windows(
            self.x[rows], self.c[rows], self.track_id[rows], self.frame[rows], self.flat[rows]
        )

    def check(self, config: Config, skeleton: Skeleton) -> None:
        """Refuse windows cut with other settings or another skeleton."""
        expected = (2, skeleton.V, config.T)
        if self.x.shape[1:] != expected:
            raise DataError(
                f"windows: expected x of shape (N, {', '.join(map(str, expected))}), "
                f"got {self.x.shape}",
                hint="cut them with the detector's own settings and skeleton",
            )

    def weight(self, config: Config) -> NDArray[np.float32]:
        """c(x) as it weighs loss and score, `(N,)`: ones where confidence is switched off."""
        return self.c if config.confidence else np.ones_like(self.c)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive frames of a track, gaps filled: keypoints `(n, V, 2)`, mean confidence `(n,)`."""

    track_id: int
    first_frame: int
    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]

    def __len__(self) -> int:
        """Number of poses n."""
        return len(self.keypoints)

    @property
    def last_frame(self) -> int:
        """Frame of the last pose."""
        return self.first_frame + len(self) - 1

    def part(self, first: int, end: int) -> Run:
        """The poses from `first` up to `end`, as slices count."""
        poses = slice(*slice(first, end).indices(len(self)))
        first_frame = self.first_frame + poses.start
        return Run(self.track_id, first_frame, self.keypoints[poses], self.confidence[poses])


@dataclass(frozen=True, slots=True, eq=False)
class WindowIndex:
    """Every window of some runs, as views on their poses until `windows` asks for a batch."""

    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]
    start: NDArray[np.int64]
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    config: Config

    @classmethod
    def of(cls, runs: Sequence[Run], config: Config, V: int) -> WindowIndex:
        """All windows of these runs, T frames long, one frame apart."""
        T = config.T
        lengths = np.array([len(run) for run in runs], dtype=np.int64)
        n_windows = np.maximum(lengths - T + 1, 0)
        # position of each window within its run: 0, 1, … for the first run, 0, 1, … for the next
        offset = np.arange(n_windows.sum()) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
        first_pose = np.cumsum(lengths) - lengths
        first_frame = np.array([run.first_frame for run in runs], dtype=np.int64)
        track_id = np.array([run.track_id for run in runs], dtype=np.int64)
        empty = np.empty((0, V, 2), dtype=np.float32)
        return cls(
            keypoints=np.concatenate([empty, *(run.keypoints for run in runs)]),
            confidence=np.concatenate([empty[:, 0, 0], *(run.confidence for run in runs)]),
            start=np.repeat(first_pose, n_windows) + offset,
            track_id=np.repeat(track_id, n_windows),
            frame=np.repeat(first_frame, n_windows) + offset + T - 1,
            config=config,
        )

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.start)

    def windows(self, rows: NDArray[np.int64] | slice) -> Windows:
        """The windows at these rows, cut and standardised."""
        poses = self.start[rows][:, None] + np.arange(self.config.T)  # (n, T)
        keypoints, confidence = self._keypoints(poses), self.confidence[poses]
        return Windows.of(keypoints, confidence, self.track_id[rows], self.frame[rows], self.config)

    def _keypoints(self, poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """Keypoints of poses `(n, T)` as `(n, T, V, 2)`; quicker for windows beside each other."""
        n, T = poses.shape
        first, end = (int(poses[:, 0].min()), int(poses[:, -1].max()) + 1) if n else (0, 0)
        if not T <= end - first <= 2 * n + T:
            return self.keypoints[poses]
        # joints outside, poses inside: a joint of a window is T numbers in a row
        turned = np.ascontiguousarray(self.keypoints[first:end].transpose(2, 1, 0))
        spans = np.lib.stride_tricks.sliding_window_view(turned, T, axis=2)  # (2, V, poses, T)
        return spans.transpose(2, 0, 1, 3)[poses[:, 0] - first].transpose(0, 3, 2, 1)

    def batches(self, size: int) -> Iterator[Windows]:
        """All windows in order, at most `size` at a time."""
        for first in range(0, len(self), size):
            yield self.windows(slice(first, first + size))


def cut(clip: Clip, config: Config, skeleton: Skeleton) -> tuple[WindowIndex, Counts]:
    """Every window of a clip, as the given skeleton sees it, and what was mended."""
    pieces = list(clip_runs(clip, config, skeleton))
    index = WindowIndex.of([run for run, _ in pieces], config, skeleton.V)
    return index, sum((mended for _, mended in pieces), Counts())


def cut_in_pieces(
    clip: Clip, config: Config, skeleton: Skeleton
) -> Iterator[tuple[WindowIndex, Counts]]:
    """The same windows some at a time, in memory that does not grow with the clip."""
    runs: list[Run] = []
    counts, n_poses = Counts(), 0
    for run, mended in clip_runs(clip, config, skeleton):
        runs.append(run)
        counts += mended
        n_poses += len(run)
        if n_poses >= PIECE:
            yield WindowIndex.of(runs, config, skeleton.V), counts
            runs, counts, n_poses = [], Counts(), 0
    yield WindowIndex.of(runs, config, skeleton.V), counts


def clip_runs(clip: Clip, config: Config, skeleton: Skeleton) -> Iterator[tuple[Run, Counts]]:
    """The tracks of a clip as runs of consecutive frames, and what was mended for each.

    A long run comes in pieces that share T - 1 poses, so that every window is in one of them.
    """
    for track in clip.tracks:
        missing = np.diff(track.frames) - 1
        breaks = [0, *(np.flatnonzero(missing > config.T) + 1).tolist(), len(track)]
        try:
            for first, end in pairwise(breaks):
                yield from _pieces(track, first, end, config, clip.skeleton, skeleton)
        except DataError as error:
            raise error.located(f"clip {clip.name}, track {track.id}") from error


def _pieces(
    track: Track, first: int, end: int, config: Config, source: Skeleton, target: Skeleton
) -> Iterator[tuple[Run, Counts]]:
    """One run, poses `first` to `end` of a track, piece by piece."""
    tail: Run | None = None
    for start in range(first, end, PIECE):
        poses = slice(start, min(start + PIECE, end))
        frames = track.frames[poses]
        keypoints, confidence, mended = prepare(
            track.keypoints[poses], track.confidence[poses], source, target
        )
        new = Run(track.id, int(frames[0]), keypoints, confidence)
        ends = poses.stop == end, poses.stop == len(track)
        run, filled, tail = join(tail, new, frames, config, ends)
        yield run, mended + filled


def join(
    tail: Run | None, new: Run, frames: NDArray[np.int64], config: Config, ends: tuple[bool, bool]
) -> tuple[Run, Counts, Run]:
    """A run with all windows of new poses, what was filled, and the tail that further ones need."""
    ends_run, ends_track = ends
    run, n_new = extend(tail, new, frames)
    return (
        run.part(-(n_new + config.T - 1), len(run) - (config.drop_last_window and ends_track)),
        Counts(filled_poses=n_new - len(frames), short_runs=int(ends_run and len(run) < config.T)),
        run.part(-max(config.T - 1, 1), len(run)),
    )


def extend(tail: Run | None, poses: Run, frames: NDArray[np.int64]) -> tuple[Run, int]:
    """A run with further poses, seen in `frames`, at its end; and how many it grew by.

    Frames between them that show nobody are filled.
    """
    keypoints, confidence = poses.keypoints, poses.confidence
    if tail is not None:
        frames = np.concatenate([[tail.last_frame], frames])
        keypoints = np.concatenate([tail.keypoints[-1:], keypoints])
        confidence = np.concatenate([tail.confidence[-1:], confidence])
    keypoints, confidence = fill_gaps(frames, keypoints, confidence)
    if tail is None:
        return Run(poses.track_id, int(frames[0]), keypoints, confidence), len(keypoints)
    n_new = len(keypoints) - 1
    keypoints = np.concatenate([tail.keypoints, keypoints[1:]])
    confidence = np.concatenate([tail.confidence, confidence[1:]])
    return Run(poses.track_id, tail.first_frame, keypoints, confidence), n_new


def prepare(
    keypoints: NDArray[np.float32],
    confidence: NDArray[np.float32],
    source: Skeleton,
    target: Skeleton,
) -> tuple[NDArray[np.float32], NDArray[np.float32], Counts]:
    """Poses as a model sees them: keypoints `(n, V, 2)` and mean confidence `(n,)`.

    NaN confidence counts as 0, others are clipped to [0, 1]; a joint that was not found, at (0, 0)
    with confidence 0, goes to the middle of the joints that were.
    """
    counts = Counts(poses=len(keypoints))
    if not (confidence.size and confidence.min() > 0 and confidence.max() <= 1):  # NaN is neither
        keypoints, confidence, counts = _mend(keypoints, confidence)
    converted = skeletons.convert(confidence, source, target).astype(np.float64)
    mean_confidence = np.ascontiguousarray(converted).mean(axis=1).astype(np.float32)
    return skeletons.convert(keypoints, source, target), mean_confidence, counts


def _mend(
    keypoints: NDArray[np.float32], confidence: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32], Counts]:
    """Confidences in [0, 1] and joints that were all found, and how many were not."""
    nan = np.isnan(confidence)
    in_range = np.clip(np.where(nan, np.float32(0), confidence), np.float32(0), np.float32(1))
    in_range += np.float32(0)  # -0 becomes 0
    missing = (keypoints == 0).all(axis=-1) & (in_range == 0)
    counts = Counts(
        poses=len(keypoints),
        nan_confidences=int(nan.sum()),
        clipped_confidences=int((in_range != confidence)[~nan].sum()),
        missing_joints=int(missing.sum()),
    )
    if missing.any():
        found = np.maximum((~missing).sum(axis=1, dtype=np.float32), 1)[:, None]
        middle = keypoints.sum(axis=1) / found  # missing joints add (0, 0)
        keypoints = np.where(missing[..., None], middle[:, None], keypoints)
    return keypoints, in_range, counts


def fill_gaps(
    frames: NDArray[np.int64], keypoints: NDArray[np.float32], confidence: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Poses of every frame from the first to the last, linear between the given ones."""
    wanted = np.arange(frames[0], frames[-1] + 1)
    if len(wanted) == len(frames):
        return keypoints, confidence
    before = np.searchsorted(frames, wanted, side="right") - 1
    after = np.minimum(before + 1, len(frames) - 1)
    span = np.maximum(frames[after] - frames[before], 1)
    share = ((wanted - frames[before]) / span).astype(np.float32)
    filled = keypoints[before] + (keypoints[after] - keypoints[before]) * share[:, None, None]
    return filled, confidence[before] + (confidence[after] - confidence[before]) * share


def standardise(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, 2, V, T)`, centred, both axes divided by the spread of y; and which were flat.

    A spread below `spread_floor` of the spread of x counts as that much; a window without any
    spread stays at zero. Each window is computed alone, so a batch gives the same bits.
    """
    standardised, flat = np.empty(x.shape, np.float32), np.empty(len(x), np.bool_)
    for first in range(0, len(x), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        rows, _, scale, flat[part] = _centred(x[part], config)
        rows /= scale[:, None, None]
        rows += 0.0  # -0 becomes 0, so that equal windows are equal bits
        standardised[part] = rows.reshape(x[part].shape)
    return standardised, flat


def place(
    x: NDArray[np.float32], keypoints: NDArray[np.float32], config: Config
) -> NDArray[np.float32]:
    """Standardised windows `(N, 2, V, T)` in pixels `(N, T, V, 2)`.

    They go where, and get as large as, the windows of `keypoints (N, T, V, 2)` are: with these very
    windows it undoes `standardise`.
    """
    _, mean, scale, _ = _centred(keypoints.transpose(0, 3, 2, 1), config)
    rows = x.reshape(len(x), 2, -1) * scale[:, None, None] + mean
    if config.profile == "stgnf":
        rows = rows * np.reshape(STGNF_SIZE, (2, 1))
    return rows.reshape(x.shape).transpose(0, 3, 2, 1).astype(np.float32)


def _centred(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Windows about their mean `(N, 2, V T)`, the mean `(N, 2, 1)`, their scale, who is flat."""
    N, size = len(x), STGNF_SIZE if config.profile == "stgnf" else (1.0, 1.0)
    rows = np.array(x, dtype=np.float64, order="C").reshape(N, 2, x.shape[2] * x.shape[3])
    if config.profile == "stgnf":
        rows /= np.reshape(size, (2, 1))
    mean = rows.mean(axis=2, keepdims=True)  # sums run along the last, dense axis
    rows -= mean
    spread = np.sqrt(np.square(rows).mean(axis=2))  # (N, 2)
    # the largest coordinate is within √n spreads of the mean: few windows need a closer look
    still = spread <= 1.01 * ROUNDING * (np.abs(mean[..., 0]) + np.sqrt(rows.shape[2]) * spread)
    if still.any():
        still &= spread <= ROUNDING * (np.abs(x).max(axis=(2, 3)).astype(np.float64) / size)
        rows[still], spread[still] = 0, 0
    spread_x, spread_y = spread.T
    floor = config.spread_floor * spread_x
    flat = spread_y <= floor
    scale = np.where(flat, floor, spread_y)
    scale[scale == 0] = 1.0
    return rows, mean, scale, flat
