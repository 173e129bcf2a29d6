"""Batches of windows X ∈ R^(2×V×T), and what each view shows of them (Sec. 3).

A window of the paper is centred and scaled: where a person is, how large, and how fast the body
crosses the picture are gone. `motion` and `place` keep them, as pairs of numbers in the shape of
windows, `(N, 2, pairs, 1)`, so that everything behind is the same for all views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, ViewKind
from stepvad.errors import DataError
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Bodies, standardise


class CompletedWindows(NamedTuple):
    """New windows in pixels: keypoints `(N, T, V, 2)`, confidences `(N, T)`, and per window."""

    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    n_poses: NDArray[np.int64]
    """How many of its poses are not repeated; fewer than T while a track is young."""
    seen: NDArray[np.bool_]
    """Whether each pose was seen, not interpolated, `(N, T)`."""

    @classmethod
    def joined(cls, parts: Sequence[CompletedWindows]) -> CompletedWindows:
        """The windows of all parts."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def part(self, rows: NDArray[np.int64]) -> CompletedWindows:
        """The windows at these rows."""
        return CompletedWindows(
            self.keypoints[rows],
            self.confidence[rows],
            self.track_id[rows],
            self.frame[rows],
            self.n_poses[rows],
            self.seen[rows],
        )

    def latest(self, T: int) -> CompletedWindows:
        """The last T poses of these windows."""
        return self._replace(
            keypoints=self.keypoints[:, -T:],
            confidence=self.confidence[:, -T:],
            n_poses=np.minimum(self.n_poses, T),
            seen=self.seen[:, -T:],
        )

    def seen_share(self) -> NDArray[np.float32]:
        """The share of each window's poses that were seen, `(N,)`; repeated ones do not count."""
        if self.seen.all():
            return np.ones(len(self.seen), np.float32)
        T = self.seen.shape[1]
        # poses of young windows that are not repeated, (N, T)
        own = np.arange(T) >= T - self.n_poses[:, None]
        return ((self.seen & own).sum(axis=1) / self.n_poses).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """A batch of N standardised windows.

    `x (N, 2, V, T)`, mean confidence `c (N,)`, `track_id (N,)`, last frame covered `frame (N,)`,
    and `flat (N,)`: whether the window had too little spread to be scaled by it. `seen (N,)` is the
    share of its poses that were seen, not interpolated: 1 unless stated. For a detector with
    several views, x is in pixels, and `views` hold it as each of them sees it.

    Examples:
        >>> x, c = np.zeros((1, 2, 17, 12), np.float32), np.ones(1, np.float32)
        >>> Windows(x, c, np.array([7]), np.array([11]), np.array([True])).frame
        array([11])
    """

    x: NDArray[np.float32]
    c: NDArray[np.float32]
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    flat: NDArray[np.bool_]
    n_poses: NDArray[np.int64] | None = field(default=None, kw_only=True)
    """How many poses of each are not repeated, `(N,)`; None if all are T."""
    views: tuple[ViewWindows, ...] = field(default=(), kw_only=True)
    # None becomes ones, so that readers need not ask
    seen: NDArray[np.float32] = field(default=None, kw_only=True)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        """Check that all arrays describe the same N windows."""
        if self.x.ndim != 4 or self.x.shape[1] != 2:
            raise DataError(
                f"windows: x must have shape (N, 2, V, T), got {self.x.shape}",
                hint="put the two coordinates on the second axis",
            )
        if self.seen is None:  # every pose was seen
            object.__setattr__(self, "seen", np.ones(len(self), np.float32))
        for name in ("c", "track_id", "frame", "flat", "seen"):
            shape = getattr(self, name).shape
            if shape != (len(self),):
                raise DataError(
                    f"windows: {name} must have shape ({len(self)},), got {shape}",
                    hint="give one value per window",
                )

    @classmethod
    def completed(
        cls, found: CompletedWindows, views: Views, bodies: Bodies | None = None
    ) -> Windows:
        """Windows in pixels as their views see them, one view or several."""
        # mean confidence c(x) and share of seen poses, (N,) each
        c = found.confidence.astype(np.float64).mean(axis=1).astype(np.float32)
        seen = found.seen_share()
        if len(views) == 1:
            config = views[0].config
            x, flat = apply_view(views[0], found.keypoints, found.n_poses, bodies)
            n_poses = None if config.shortest == config.T else found.n_poses
            return cls(x, c, found.track_id, found.frame, flat, n_poses=n_poses, seen=seen)
        # each view takes the latest poses of the windows that are long enough for it
        bodies = Bodies.of_windows(found.keypoints)
        parts = tuple(ViewWindows.completed(found, view, bodies) for view in views)
        flat = np.zeros(len(c), np.bool_)
        for part in parts:
            flat[part.rows] |= part.windows.flat
        pixels = found.keypoints.transpose(0, 3, 2, 1)
        return cls(pixels, c, found.track_id, found.frame, flat, views=parts, seen=seen)

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.x)

    def __repr__(self) -> str:
        """The batch in one line."""
        views = f", views={len(self.views)}" if self.views else ""
        return f"Windows(N={len(self)}, shape={self.x.shape[1:]}{views})"

    def part(self, rows: NDArray[np.int64]) -> Windows:
        """The windows at these rows, in the order given."""
        return Windows(
            self.x[rows],
            self.c[rows],
            self.track_id[rows],
            self.frame[rows],
            self.flat[rows],
            n_poses=None if self.n_poses is None else self.n_poses[rows],
            views=tuple(view.part(rows, len(self)) for view in self.views),
            seen=self.seen[rows],
        )

    def expect(self, views: Views, skeleton: Skeleton) -> None:
        """Reject windows cut with other settings or another skeleton."""
        n_views = len(views) if len(views) > 1 else 0
        if len(self.views) != n_views:
            raise DataError(
                f"windows: expected {n_views} views, got {len(self.views)}",
                hint="cut them with the detector's own settings",
            )
        for own, view in zip(self.views, views, strict=False):
            own.windows.expect([view], skeleton)
        # several views keep the pixels of the longest
        config = views[0].config
        expected = (2, skeleton.V, config.T) if self.views else view_shape(config, skeleton.V)
        if self.x.shape[1:] != expected:
            raise DataError(
                f"windows: expected x of shape (N, {', '.join(map(str, expected))}), "
                f"got {self.x.shape}",
                hint="cut them with the detector's own settings and skeleton",
            )

    def ages(self, config: Config) -> NDArray[np.int64]:
        """Number of poses of each window that are not repeated, `(N,)`."""
        return np.full(len(self), config.T) if self.n_poses is None else self.n_poses

    def weight(self, config: Config) -> NDArray[np.float32]:
        """Weights c(x) of loss and score, `(N,)`: ones if confidence is switched off."""
        return self.c if config.confidence else np.ones_like(self.c)


@dataclass(frozen=True, slots=True, eq=False)
class ViewWindows:
    """Windows as one of several views sees them: those at `rows`, long enough for it."""

    rows: NDArray[np.int64]
    windows: Windows

    @classmethod
    def completed(cls, found: CompletedWindows, view: ViewSettings, bodies: Bodies) -> ViewWindows:
        """The latest poses of the windows that have as many as the view needs."""
        T = view.config.T
        rows = np.flatnonzero(found.n_poses >= view.config.shortest)
        own = found.latest(T).part(rows)
        return cls(rows, Windows.completed(own, [view], bodies.latest(rows, T)))

    def part(self, rows: NDArray[np.int64], n_windows: int) -> ViewWindows:
        """Those among some rows of all windows."""
        # row of each window among those of this view; -1 where it has none
        place = np.full(n_windows, -1)
        place[self.rows] = np.arange(len(self.rows))
        own = place[rows]
        return ViewWindows(np.flatnonzero(own >= 0), self.windows.part(own[own >= 0]))


PoseArrays = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Keypoints `(n, V, 2)` and mean confidence `(n,)`."""

PAIRS = {"motion": 2, "place": 2}
"""Pairs of numbers of the views that are not poses."""
MEANINGS: Mapping[ViewKind, Mapping[str, tuple[int, ...]]] = {
    "motion": {"speed": (0, 1), "growth": (2,), "width": (3,)},
    "place": {"place": (0, 1), "size": (2,), "width": (3,)},
}
"""What the numbers of these views mean, in the order in which `_motion` and `_place` give them."""
FloatT = TypeVar("FloatT", bound=np.floating)


@dataclass(frozen=True, slots=True, eq=False)
class ViewSettings:
    """Settings of one view, and what was measured on the training clips."""

    config: Config
    noise: tuple[float, ...] = ()
    """Spread of joints by confidence, from unsure to sure, in extents of the body; empty if joints
    are not weighed."""
    pace: Pace | None = None
    """Usual speeds, which a motion is told in; None if they are not known yet."""


Views = Sequence[ViewSettings]
"""All views of a window, the longest first. They share the joints, the noise and the clock."""


def n_columns(views: Views) -> int:
    """Numbers behind a window's score: one per noise scale, or one per view."""
    return len(views) if len(views) > 1 else views[0].config.L


def view_shape(config: Config, V: int) -> tuple[int, int, int]:
    """The shape of one window of V joints in this view."""
    return (2, V, config.T) if config.view == "pose" else (2, PAIRS[config.view], 1)


def apply_view(
    view: ViewSettings,
    keypoints: NDArray[np.float32],
    n_poses: NDArray[np.int64],
    bodies: Bodies | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, T, V, 2)` in pixels as this view sees them, and which were flat.

    Only the latest `n_poses (N,)` of each were seen; before them the first one is repeated.
    `bodies` are those of the windows, if they are known.
    """
    config, smooth = view.config, view.config.reference.smooth
    if config.view == "pose":
        shown = _smoothed(keypoints, smooth) if smooth else keypoints
        return standardise(shown.transpose(0, 3, 2, 1), config)
    bodies = bodies or Bodies.of_windows(keypoints)
    if config.view == "motion":
        values = _motion(keypoints, bodies, n_poses, view.pace)
    else:
        values = _place(keypoints, bodies, n_poses)
    # numbers (N, 2 pairs) in the shape of windows, (N, 2, pairs, 1)
    pairs = values.reshape(len(keypoints), PAIRS[config.view], 2, 1).transpose(0, 2, 1, 3)
    return pairs.astype(np.float32), np.zeros(len(keypoints), np.bool_)


def _smoothed(keypoints: NDArray[np.float32], past: float) -> NDArray[np.float32]:
    """Windows whose shapes, but not places, are running means of those so far."""
    centre = Bodies.of_windows(keypoints).centre[:, :, None].astype(np.float32)
    shape = keypoints - centre
    # each shape moves towards the mean of those before it
    for t in range(1, shape.shape[1]):
        shape[:, t] += np.float32(past) * (shape[:, t - 1] - shape[:, t])
    return shape + centre


def _motion(
    keypoints: NDArray[np.float32], bodies: Bodies, n_poses: NDArray[np.int64], pace: Pace | None
) -> NDArray[np.float64]:
    """Velocity, growth and shape of the body, `(N, 4)`.

    The velocity is in sizes of the body per frame, by least squares, over what is usual at the
    place; growth is the slope of the logarithm of the size, the shape is how wide the body is.
    """
    # sizes of the body (N, T), and the weights of each pose in means and slopes
    size = bodies.size
    weights = mean, slope = _weights_of(n_poses, keypoints.shape[1])
    velocity, feet, scale = _velocity(keypoints, bodies.centre, size, weights)
    if pace is not None:
        velocity /= pace.at(feet, scale)
    # slope of the logarithm of the size, and width over size, (N,) each
    growth = (np.log(size) * slope).sum(axis=1)
    wide = (bodies.spread[..., 0] / size * mean).sum(axis=1)
    return np.column_stack([velocity, growth, wide])


def measure_pace(keypoints: NDArray[np.float32], n_poses: NDArray[np.int64]) -> Pace:
    """Measure the usual speeds at each place, from windows `(N, T, V, 2)` in pixels."""
    bodies = Bodies.of_windows(keypoints)
    weights = _weights_of(n_poses, keypoints.shape[1])
    velocity, feet, scale = _velocity(keypoints, bodies.centre, bodies.size, weights)
    return Pace.measure(feet, scale, velocity)


def _velocity(
    keypoints: NDArray[np.float32],
    centre: NDArray[np.float64],
    size: NDArray[np.float64],
    weights: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Velocities in sizes of the body per frame `(N, 2)`, heights of the feet, sizes, `(N,)`.

    The sizes are logarithms.
    """
    mean, slope = weights
    scale = (np.log(size) * mean).sum(axis=1)
    velocity = [(centre[..., axis] * slope).sum(axis=1) / np.exp(scale) for axis in (0, 1)]
    return np.column_stack(velocity), _feet(keypoints, mean), scale


def _feet(keypoints: NDArray[np.float32], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Height of the lowest joint in the picture, on average, `(N,)`."""
    return np.asarray((keypoints[..., 1].max(axis=2).astype(np.float64) * mean).sum(axis=1))


def _place(
    keypoints: NDArray[np.float32], bodies: Bodies, n_poses: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Position of the feet, size and width of the body, `(N, 4)`: means over the window."""
    size = bodies.size
    mean = _weights(keypoints.shape[1])[0][n_poses]
    x, height, wide = (
        (number * mean).sum(axis=1)
        for number in (bodies.centre[..., 0], np.log(size), bodies.spread[..., 0] / size)
    )
    return np.column_stack([x, _feet(keypoints, mean), height, wide])


def numbers(x: NDArray[FloatT]) -> NDArray[FloatT]:
    """The numbers of windows `(N, 2, pairs, 1)` in their order, `(N, 2 pairs)`."""
    return x[..., 0].transpose(0, 2, 1).reshape(len(x), -1)


def amounts(x: NDArray[np.float32], view: ViewKind) -> NDArray[np.float32]:
    """Amount of each meaning in windows of a view, `(N, meanings)`.

    The number itself, or the length of a pair.
    """
    values = numbers(x)
    columns = [
        np.hypot(*values[:, which].T) if len(which) > 1 else values[:, which[0]]
        for which in MEANINGS[view].values()
    ]
    return np.column_stack(columns)


def _weights_of(
    n_poses: NDArray[np.int64], T: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of the T poses of windows in the mean, and in the slope, `(N, T)` each."""
    means, slopes = _weights(T)
    return means[n_poses], slopes[n_poses]


@lru_cache(maxsize=64)
def _weights(T: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of T poses in the mean, and in the slope, of the latest n, `(T + 1, T)` each."""
    means, slopes = np.zeros((T + 1, T)), np.zeros((T + 1, T))
    for n in range(1, T + 1):
        time = np.arange(n) - (n - 1) / 2
        means[n, -n:] = 1 / n
        slopes[n, -n:] = time / max(float(np.square(time).sum()), 1.0)
    return means, slopes


CELLS = 6
"""Ranges of the feet's height, and of the size; as many people move in each."""
QUANTILE = 0.9
"""Share of the people who move at a place that are not faster than usual there."""
MOVING = 0.1
"""Speed from which people move, as a share of what is usual in all of the footage."""
PRIOR = 500
"""Windows that a cell needs to say as much as all of them together."""
SLOWEST = 1e-4
"""Smallest usual speed, in sizes of the body per frame."""
DIGITS = 6
"""Decimals of a pace."""


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Usual speeds along x and y, `(cells, cells, 2)`, at heights and sizes, `(cells,)` each."""

    feet: NDArray[np.float64]
    size: NDArray[np.float64]
    speed: NDArray[np.float64]

    @classmethod
    def measure(
        cls,
        feet: NDArray[np.float64],
        size: NDArray[np.float64],
        velocity: NDArray[np.float64],
        cells: int = CELLS,
    ) -> Pace:
        """The pace of windows with these feet and logarithms of size `(N,)`, and `(N, 2)`."""
        # people who move, and how fast along x and y, (moving, 2)
        length = np.hypot(*velocity.T)
        moving = length >= MOVING * np.quantile(length, QUANTILE)
        speed = np.abs(velocity[moving])
        usual = np.quantile(speed, QUANTILE, axis=0)
        # ranges of height and size that as many people move in
        rows, heights = _ranges(feet[moving], cells)
        columns, sizes = _ranges(size[moving], cells)
        # quantiles of the speeds in each cell, drawn towards those of all cells, (cells, cells, 2)
        found = np.empty((cells, cells, 2))
        for row, column in np.ndindex(cells, cells):
            own = speed[(rows == row) & (columns == column)]
            weight = len(own) / (len(own) + PRIOR)
            here = np.quantile(own, QUANTILE, axis=0) if len(own) else usual
            found[row, column] = weight * here + (1 - weight) * usual
        speed = np.maximum(found, SLOWEST)
        return cls(heights.round(DIGITS), sizes.round(DIGITS), speed.round(DIGITS))

    def at(self, feet: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
        """Usual speeds `(N, 2)` at these feet and sizes `(N,)`, interpolated between cells."""
        # the cells around each place, and how far it lies towards the next ones
        row, down = _between(self.feet, feet)
        column, right = _between(self.size, size)
        below, beside = (
            np.minimum(row + 1, len(self.feet) - 1),
            np.minimum(column + 1, len(self.size) - 1),
        )
        upper = self.speed[row, column] * (1 - right) + self.speed[row, beside] * right
        lower = self.speed[below, column] * (1 - right) + self.speed[below, beside] * right
        return np.asarray(upper * (1 - down) + lower * down)


def _ranges(values: NDArray[np.float64], n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The range of each value, equally many in each, and the middles of the ranges."""
    ends = np.quantile(values, np.arange(1, n) / n)
    middles = np.quantile(values, (np.arange(n) + 0.5) / n)
    return np.searchsorted(ends, values), middles


def _between(
    levels: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The level below each value, and how far it is to the next, `(N, 1)`."""
    position = np.interp(values, levels, np.arange(len(levels)))
    below = position.astype(np.int64)
    return below, (position - below)[:, None]
