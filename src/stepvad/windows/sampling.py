"""Windows by the clock: T poses at a model's frame rate from a camera with a rate of its own."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.poses import Clip, Track
from stepvad.windows.body import jumped
from stepvad.windows.values import PoseArrays
from stepvad.windows.views import Views

logger = logging.getLogger(__name__)

MAX_RATIO = 100.0
"""Largest ratio of two frame rates, either way; beyond it one of them is a mistake."""
USUAL_FPS = 25.0
"""Frames per second of a model that does not know its own."""
ROUNDING = 1e-9
"""Positions this close to a whole frame are that frame."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Where the T poses of a window lie among the frames of a camera.

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
        """Whether the body jumped between poses `(n, V, 2)` with so many frames missed, `(n,)`."""
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
        """How many of a window's poses are not repeated, given the frames at hand."""
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

    def take(self, keypoints: NDArray[np.float32], confidence: NDArray[np.float32]) -> PoseArrays:
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

    def take_seen(self, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
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
    """Whether footage of this frame rate is converted to the model's."""
    return config.clock and config.fps is not None and fps is not None


def rate_note(config: Config, fps: float | None) -> str | None:
    """What becomes of footage whose frame rate is not the model's; None if it is the same."""
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
    first = math.ceil(track.frames[0] / ratio - ROUNDING)
    last = math.floor(track.frames[-1] / ratio + ROUNDING)
    frames = np.arange(first, last + 1, dtype=np.int64)
    at = frames * ratio
    before = np.floor(at + ROUNDING).astype(np.int64)
    share = np.where(at - before > ROUNDING, at - before, 0).astype(np.float32)
    after = before + (share > 0)
    rows, next_rows = np.searchsorted(track.frames, [before, after])
    there = np.isin(before, track.frames) & np.isin(after, track.frames)
    rows, next_rows, share = rows[there], next_rows[there], share[there]
    return Track(
        track.id,
        frames[there],
        _between(track.keypoints[rows], track.keypoints[next_rows], share[:, None, None]),
        _between(track.confidence[rows], track.confidence[next_rows], share[:, None]),
    )
