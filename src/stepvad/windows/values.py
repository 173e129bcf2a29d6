"""Batches of windows X ∈ R^(2×V×T), and counts of repairs to their poses (Sec. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Bodies
from stepvad.windows.views import Views, ViewSettings, apply_view, view_shape


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
        own = np.arange(T) >= T - self.n_poses[:, None]
        return ((self.seen & own).sum(axis=1) / self.n_poses).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """A batch of N standardised windows.

    `x (N, 2, V, T)`, mean confidence `c (N,)`, `track_id (N,)`, last frame covered `frame (N,)`,
    and `flat (N,)`: whether the window had too little spread to be scaled by it. `seen (N,)` is the
    share of its poses that were seen, not interpolated: 1 unless stated. For a detector with
    several views, x is in pixels, and `views` hold it as each of them sees it.
    """

    x: NDArray[np.float32]
    c: NDArray[np.float32]
    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    flat: NDArray[np.bool_]
    n_poses: NDArray[np.int64] | None = field(default=None, kw_only=True)
    """How many poses of each are not repeated, `(N,)`; None if all are T."""
    views: tuple[ViewWindows, ...] = field(default=(), kw_only=True)
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
        """How many poses of each window are not repeated, `(N,)`."""
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
        place = np.full(n_windows, -1)
        place[self.rows] = np.arange(len(self.rows))
        own = place[rows]
        return ViewWindows(np.flatnonzero(own >= 0), self.windows.part(own[own >= 0]))


PoseArrays = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Keypoints `(n, V, 2)` and mean confidence `(n,)`."""
