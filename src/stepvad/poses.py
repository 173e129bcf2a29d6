"""People in front of a camera: one pose, one track of poses, one clip of tracks."""

from __future__ import annotations

import hashlib
import operator
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.skeletons import COCO17, Skeleton, convert

MAX_FRAME = 100_000_000
"""Largest frame number of a clip: 38 days at 30 frames a second."""
MAX_FPS = 1e6
"""Largest frame rate, beyond any camera's."""
MAX_COORDINATE = 1e7
"""Largest coordinate in pixels: far beyond any image, and safe to square."""


@dataclass(frozen=True, slots=True, eq=False)
class Pose:
    """One person in one frame: keypoints `(V, 2)` in pixels and their confidence `(V,)`.

    The id may be any whole number, also one in an array or a tensor without axes; it is stored as
    an int. A confidence may be NaN or above 1, as some pose estimators return; coordinates must be
    finite.

    Examples:
        >>> Pose(7, np.zeros((17, 2)), np.ones(17)).confidence.shape
        (17,)
    """

    track_id: int
    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Check shapes and coordinates."""
        keypoints = _as_float32(self.keypoints)
        confidence = _as_float32(self.confidence)
        track_id = _as_id(self.track_id)
        _check_joints(keypoints, confidence, shape="(V, 2)", who=f"track {track_id}")
        object.__setattr__(self, "track_id", track_id)
        object.__setattr__(self, "keypoints", keypoints)
        object.__setattr__(self, "confidence", confidence)

    def __repr__(self) -> str:
        """The pose in one line."""
        return f"Pose(track_id={self.track_id}, joints={len(self.keypoints)})"


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One person over time: frames `(n,)`, keypoints `(n, V, 2)` in pixels, confidence `(n, V)`.

    Frames are strictly increasing and may have gaps.

    Examples:
        >>> Track(7, [0, 1, 3], np.zeros((3, 17, 2)), np.ones((3, 17)))
        Track(id=7, poses=3, frames=0 to 3)
    """

    id: int
    frames: NDArray[np.int64]
    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Check shapes, the order of frames, and coordinates."""
        track_id = _as_id(self.id)
        who = f"track {track_id}"
        frames = _as_frames(self.frames, who)
        keypoints = _as_float32(self.keypoints)
        confidence = _as_float32(self.confidence)
        _check_frames(frames, who)
        _check_joints(keypoints, confidence, shape="(n, V, 2)", who=who, frames=frames)
        object.__setattr__(self, "id", track_id)
        object.__setattr__(self, "frames", frames)
        object.__setattr__(self, "keypoints", keypoints)
        object.__setattr__(self, "confidence", confidence)

    def __len__(self) -> int:
        """Number of poses."""
        return len(self.frames)

    def __repr__(self) -> str:
        """The track in one line."""
        frames = f"{self.frames[0]} to {self.frames[-1]}" if len(self) else "none"
        return f"Track(id={self.id}, poses={len(self)}, frames={frames})"

    def between(self, first: int, end: int) -> Track:
        """The poses of frames `first` to `end - 1`."""
        part = slice(*np.searchsorted(self.frames, [first, end]))
        return Track(self.id, self.frames[part], self.keypoints[part], self.confidence[part])


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One video as pose tracks; `fps` is None if the file does not state it.

    Examples:
        >>> Clip("lobby", 25.0, 100, (Track(7, [0], np.zeros((1, 17, 2)), np.ones((1, 17))),))
        Clip('lobby', fps=25.0, n_frames=100, tracks=1, poses=1)
    """

    name: str
    fps: float | None
    n_frames: int
    tracks: tuple[Track, ...]
    skeleton: Skeleton = field(default=COCO17)

    def __post_init__(self) -> None:
        """Check that tracks are distinct, fit the skeleton and lie inside the clip."""
        object.__setattr__(self, "tracks", tuple(self.tracks))
        try:
            self.name.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"clip {self.name!r}: expected a name in UTF-8", hint="rename the file"
            ) from error
        if self.fps is not None and not 0 < self.fps < MAX_FPS:
            raise DataError(
                f"clip {self.name}: fps must be a positive number, got {self.fps}",
                hint="leave it out where it is unknown",
            )
        if not 0 <= self.n_frames <= MAX_FRAME + 1:
            raise DataError(
                f"clip {self.name}: expected 0 to {MAX_FRAME + 1} frames, got {self.n_frames}",
                hint="split the recording",
            )
        seen: set[int] = set()
        for track in self.tracks:
            self._check_track(track, seen)

    def rate(self, fps: float | None = None) -> float:
        """Frames per second: `fps` if given, else the clip's own; raises if neither is known."""
        known = fps or self.fps
        if known is None:
            raise DataError(
                f"clip {self.name}: expected a frame rate, got none",
                hint="give its frame rate: fps=25, or --fps 25 on the command line",
            )
        return known

    def _check_track(self, track: Track, seen: set[int]) -> None:
        if track.id in seen:
            raise DataError(
                f"clip {self.name}: track ids must be distinct, got {track.id} twice",
                hint="merge the poses of one person, or renumber the tracks",
            )
        seen.add(track.id)
        if track.keypoints.shape[1] != self.skeleton.V:
            raise DataError(
                f"clip {self.name}, track {track.id}: expected {self.skeleton.V} joints "
                f"({self.skeleton.name}), got {track.keypoints.shape[1]}",
                hint="give the clip the skeleton of its poses",
            )
        if len(track) and track.frames[-1] >= self.n_frames:
            raise DataError(
                f"clip {self.name}, track {track.id}: expected frames below {self.n_frames}, "
                f"got {track.frames[-1]}",
                hint="frames count from 0; check the clip's length",
            )

    def __repr__(self) -> str:
        """The clip in one line."""
        size = f"n_frames={self.n_frames}, tracks={len(self.tracks)}, poses={self.n_poses}"
        return f"Clip({self.name!r}, fps={self.fps}, {size})"

    @property
    def n_poses(self) -> int:
        """Number of poses over all tracks."""
        return sum(len(track) for track in self.tracks)

    def persons_per_frame(self) -> NDArray[np.int64]:
        """Number of people in each frame, `(n_frames,)`."""
        if not self.tracks:
            return np.zeros(self.n_frames, dtype=np.int64)
        frames = np.concatenate([track.frames for track in self.tracks])
        return np.bincount(frames, minlength=self.n_frames)

    def by_frame(self) -> Iterator[tuple[int, list[Pose]]]:
        """Iterate over frames from 0 with the poses in each, as a camera delivers them."""
        frames = np.concatenate([np.empty(0, np.int64), *(track.frames for track in self.tracks)])
        owner = [(track, at) for track in self.tracks for at in range(len(track))]
        order = np.argsort(frames, kind="stable")
        ends = np.cumsum(self.persons_per_frame())
        first = 0
        for frame, end in enumerate(ends.tolist()):
            poses = [owner[row] for row in order[first:end]]
            yield frame, [Pose(t.id, t.keypoints[at], t.confidence[at]) for t, at in poses]
            first = end

    def n_upright(self) -> int | None:
        """Count poses with ankles below the nose (y grows downwards); None without these joints.

        A low count in a clip of pedestrians means that x and y were swapped.
        """
        names = self.skeleton.joints
        if not {"nose", "left_ankle", "right_ankle"} <= set(names):
            return None
        nose, left, right = (names.index(j) for j in ("nose", "left_ankle", "right_ankle"))
        heights = (track.keypoints[..., 1] for track in self.tracks)
        return sum(int(((y[:, left] + y[:, right]) / 2 > y[:, nose]).sum()) for y in heights)

    def digest(self) -> bytes:
        """SHA-256 over name, skeleton and every pose: equal clips have equal digests."""
        sha = hashlib.sha256(repr((self.name, self.skeleton.joints)).encode())
        for track in self.tracks:
            sha.update(repr((track.id, len(track))).encode())
            for array in (track.frames, track.keypoints, track.confidence):
                sha.update(array.data)
        return sha.digest()

    @property
    def first_frame(self) -> int:
        """Frame of the earliest pose; a part of a video keeps the video's frame numbers."""
        return min((int(track.frames[0]) for track in self.tracks if len(track)), default=0)

    def with_rate(self, fps: float | None) -> Clip:
        """The same clip at this frame rate; None leaves its own."""
        return self if fps is None else replace(self, fps=fps)

    def with_skeleton(self, skeleton: Skeleton) -> Clip:
        """The same clip with the joints of another skeleton, by name; raises if some are missing.

        The neck of the paper's joints is the mean of the shoulders.
        """
        if skeleton == self.skeleton:
            return self
        tracks = (
            Track(
                track.id,
                track.frames,
                convert(track.keypoints, self.skeleton, skeleton),
                convert(track.confidence, self.skeleton, skeleton),
            )
            for track in self.tracks
        )
        return replace(self, tracks=tuple(tracks), skeleton=skeleton)

    def with_length(self, n_frames: int) -> Clip:
        """The same clip with another number of frames; raises if a pose lies beyond it."""
        return Clip(self.name, self.fps, n_frames, self.tracks, self.skeleton)


@dataclass(frozen=True, slots=True, eq=False)
class PoseRows:
    """Poses as columns: track, frame `(n,)`, keypoints `(n, V, 2)`, confidence `(n, V)`."""

    track: NDArray[np.int64]
    frame: NDArray[np.int64]
    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> PoseRows:
        """A part of the rows, or the rows in another order."""
        return PoseRows(
            self.track[rows], self.frame[rows], self.keypoints[rows], self.confidence[rows]
        )

    @classmethod
    def joined(cls, parts: list[PoseRows]) -> PoseRows:
        """The rows of all parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.track for part in parts]),
            np.concatenate([part.frame for part in parts]),
            np.concatenate([part.keypoints for part in parts]),
            np.concatenate([part.confidence for part in parts]),
        )

    def tracks(self) -> tuple[Track, ...]:
        """Group the rows into tracks, sorted by id."""
        return tracks_of(self.track, self.frame, self.keypoints, self.confidence)


def n_frames_of(tracks: Iterable[Track]) -> int:
    """Frames up to the last pose: the clip's length if nothing else specifies it."""
    return max((int(track.frames[-1]) + 1 for track in tracks if len(track)), default=0)


def tracks_of(
    track_id: NDArray[np.int64],
    frame: NDArray[np.int64],
    keypoints: NDArray[np.float32],
    confidence: NDArray[np.float32],
) -> tuple[Track, ...]:
    """Group poses `(n, V, 2)`, in any order, into tracks, sorted by id."""
    order = np.lexsort((frame, track_id))
    changes = np.flatnonzero(np.diff(track_id[order])) + 1
    return tuple(
        Track(int(track_id[rows[0]]), frame[rows], keypoints[rows], confidence[rows])
        for rows in np.split(order, changes)
        if len(rows)
    )


def _as_float32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    if isinstance(values, np.ndarray) and values.dtype == np.float32 and values.flags.c_contiguous:
        return values  # the common case; the conversion below is slow
    with np.errstate(over="ignore"):  # infinity is rejected or clipped like any invalid value
        return np.ascontiguousarray(values, dtype=np.float32)


def _as_frames(values: NDArray[np.int64], who: str) -> NDArray[np.int64]:
    given = np.asarray(values)
    with np.errstate(invalid="ignore"):
        frames = np.ascontiguousarray(given, dtype=np.int64)
    if not np.array_equal(frames, given):
        raise DataError(
            f"{who}: frames must be whole numbers of 64 bits, got {given[frames != given][0]}",
            hint="count frames from the start of the clip",
        )
    return frames


def _as_id(track_id: object) -> int:
    """A track id as an int; trackers give theirs as floats, arrays or tensors, too."""
    number = track_id
    if type(number) is not int:  # the common case; the conversion below is slow
        number = _whole_number(track_id)
        if number is None:
            raise DataError(
                f"expected a whole number as track id, got {reprlib.repr(track_id)}",
                hint="give one id per person; a Tracker gives ids to people who have none",
            )
    if not -(2**63) <= number < 2**63:
        raise DataError(
            f"track {number}: expected an id of 64 bits, got a longer one",
            hint="renumber the tracks",
        )
    return number


def _whole_number(value: object) -> int | None:
    """The integer that a number, or an array or tensor without axes, holds; None if none."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array with axes has the method as well
        return None


def _check_frames(frames: NDArray[np.int64], who: str) -> None:
    if frames.ndim != 1:
        raise DataError(
            f"{who}: frames must have shape (n,), got {frames.shape}",
            hint="give one number per pose",
        )
    if len(frames) and (frames[0] < 0 or frames[-1] > MAX_FRAME):
        wrong = frames[0] if frames[0] < 0 else frames[-1]
        raise DataError(
            f"{who}, frame {wrong}: expected frames from 0 to {MAX_FRAME}, got {wrong}",
            hint="count frames from the start of the clip",
        )
    steps = np.diff(frames)
    if len(steps) and steps.min() <= 0:
        at = int(np.argmin(steps > 0)) + 1
        raise DataError(
            f"{who}, frame {frames[at]}: expected strictly increasing frames, "
            f"got {frames[at]} after {frames[at - 1]}",
            hint="sort the poses and keep one per frame",
        )


def _check_joints(
    keypoints: NDArray[np.float32],
    confidence: NDArray[np.float32],
    *,
    shape: str,
    who: str,
    frames: NDArray[np.int64] | None = None,
) -> None:
    if keypoints.ndim != shape.count(",") + 1 or keypoints.shape[-1] != 2:
        raise DataError(
            f"{who}: keypoints must have shape {shape}, got {keypoints.shape}",
            hint="reshape to pairs of x and y first",
        )
    if confidence.shape != keypoints.shape[:-1]:
        raise DataError(
            f"{who}: confidence must have shape {keypoints.shape[:-1]}, got {confidence.shape}",
            hint="give one confidence per keypoint",
        )
    if frames is not None and len(frames) != len(keypoints):
        raise DataError(
            f"{who}: expected {len(frames)} poses, one per frame, got {len(keypoints)}",
            hint="give one frame number per pose",
        )
    fits = np.abs(keypoints) <= MAX_COORDINATE  # NaN compares false
    if not fits.all():
        bad = np.argwhere(~fits)[0]
        value = keypoints[tuple(bad)]
        place = "" if frames is None else f", frame {frames[bad[0]]}"
        raise DataError(
            f"{who}{place}, joint {bad[-2]}: expected coordinates within "
            f"±{MAX_COORDINATE:.0e}, got {value}",
            hint="leave the pose out, or put the joint at (0, 0) with confidence 0",
        )
