"""A body: joints not found, its size, the noise of its joints, and standardised windows (Sec. 4.1).

The model that places joints is linear: a pose is x_j = t + s (m_j + U_j z) + noise, a mean shape m
and K ways U to deviate from it, of size s at place t, with z ~ N(0, I). It is linear in
(t, s, s z), so the likeliest body, given where joints were found and how noisy that is, is the
solution of one small system. A joint that was not found has infinite noise: it takes no part, and
goes where the body has it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import add, attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config, Joints
from stepvad.poses import Track
from stepvad.skeletons import COCO17, STEP18, Skeleton, convert


def prepare(
    keypoints: NDArray[np.float32],
    confidence: NDArray[np.float32],
    source: Skeleton,
    target: Skeleton,
    joints: Joints = "body",
    noise: Sequence[float] = (),
) -> tuple[NDArray[np.float32], NDArray[np.float32], Repairs]:
    """Convert poses to a model's skeleton: keypoints `(n, V, 2)` and mean confidence `(n,)`.

    A NaN confidence becomes 0, others are clipped to [0, 1]. A missing joint, at (0, 0) with
    confidence 0, is placed where a body has it whose other joints are where they were found, or at
    their mean (`middle`, and for skeletons without a known body). Where the `noise` of joints by
    confidence is known, unsure ones move towards where the body has them.
    """
    if keypoints.size and keypoints.max() <= 1:
        _warn_of_fractions(keypoints)
    # the joints that both skeletons share, before the target derives its own from them
    part = skeletons.part_for(source, target)
    keypoints, confidence = (
        skeletons.convert(values, source, part) for values in (keypoints, confidence)
    )
    counts, found = Repairs(poses=len(keypoints)), None
    if not (confidence.size and confidence.min() > 0 and confidence.max() <= 1):  # NaN is neither
        confidence, found, counts = _checked(keypoints, confidence)
    # missing joints have infinite variance, found ones that of their confidence
    body = None if joints == "middle" else body_of(part)
    if body is not None and (noise or found is not None):
        variance = noise_at(confidence, noise)
        variance = variance if found is None else np.where(found, variance, np.inf)
        keypoints = body.settle(keypoints, variance)
    elif found is not None:
        keypoints = _in_the_middle(keypoints, found)
    converted = skeletons.convert(confidence, part, target).astype(np.float64)
    mean_confidence = np.ascontiguousarray(converted).mean(axis=1).astype(np.float32)
    return skeletons.convert(keypoints, part, target), mean_confidence, counts


def _warn_of_fractions(keypoints: NDArray[np.float32]) -> None:
    """Warn, once for each caller, of coordinates that look like fractions of the image."""
    if keypoints.min() >= 0 and np.ptp(keypoints) > 0:
        warnings.warn(
            "expected coordinates in pixels, got all of them within 0 to 1; multiply x by the "
            "width and y by the height of the image",
            stacklevel=3,
        )


def _checked(
    keypoints: NDArray[np.float32], confidence: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None, Repairs]:
    """Confidences in [0, 1]; which joints were found, None if all were; counts of repairs."""
    nan = np.isnan(confidence)
    in_range = np.clip(np.where(nan, np.float32(0), confidence), np.float32(0), np.float32(1))
    in_range += np.float32(0)  # -0 becomes 0
    missing = (keypoints == 0).all(axis=-1) & (in_range == 0)
    counts = Repairs(
        poses=len(keypoints),
        nan_confidences=int(nan.sum()),
        clipped_confidences=int((in_range != confidence)[~nan].sum()),
        missing_joints=int(missing.sum()),
    )
    return in_range, ~missing if missing.any() else None, counts


def _in_the_middle(keypoints: NDArray[np.float32], found: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Poses whose missing joints, at (0, 0), are at the mean of the others."""
    n_found = np.maximum(found.sum(axis=1, dtype=np.float32), 1)[:, None]
    middle = keypoints.sum(axis=1) / n_found  # missing joints add (0, 0)
    return np.where(found[..., None], keypoints, middle[:, None])


WINDOWS_AT_ONCE = 128
"""Windows standardised at once; they fit into the caches."""
ROUNDING = float(np.finfo(np.float32).eps)
"""A spread below this fraction of the coordinates is rounding error, not motion."""


def standardise(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, 2, V, T)`, centred, both axes divided by the spread of y; and which were flat.

    The divisor is at least `spread_floor` times the spread of x; a window without any spread
    becomes zero. Windows are computed independently, so any batching gives the same bits.
    """
    standardised, flat = np.empty(x.shape, np.float32), np.empty(len(x), np.bool_)
    for first in range(0, len(x), WINDOWS_AT_ONCE):
        part = slice(first, first + WINDOWS_AT_ONCE)
        rows, mean, scale, flat[part] = _centred(x[part], config)
        if not mean.all():  # only -0 less a mean of 0 is -0
            rows += 0.0  # -0 becomes 0: equal windows have equal bits
        rows /= scale[:, None, None]
        standardised[part] = rows.reshape(x[part].shape)
    return standardised, flat


def place(
    x: NDArray[np.float32], keypoints: NDArray[np.float32], config: Config
) -> NDArray[np.float32]:
    """Map standardised windows `(N, 2, V, T)` to pixels `(N, T, V, 2)`.

    Position and scale are those of the windows `keypoints (N, T, V, 2)`; for the same windows this
    inverts `standardise`.
    """
    _, mean, scale, _ = _centred(keypoints.transpose(0, 3, 2, 1), config)
    rows = x.reshape(len(x), 2, -1) * scale[:, None, None] + mean
    return rows.reshape(x.shape).transpose(0, 3, 2, 1).astype(np.float32)


def _centred(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Centred windows `(N, 2, V T)`, their mean `(N, 2, 1)`, their scale, and which are flat."""
    rows = np.array(x, dtype=np.float64, order="C").reshape(len(x), 2, x.shape[2] * x.shape[3])
    n = rows.shape[2]
    # sums run along the last, dense axis; the method `mean` takes as long again for small arrays
    mean = np.add.reduce(rows, axis=2, keepdims=True) / n
    rows -= mean
    spread = np.sqrt(np.add.reduce(np.square(rows), axis=2) / n)  # (N, 2)
    # the largest coordinate is within √n spreads of the mean: few windows need the exact check
    still = spread <= 1.01 * ROUNDING * (np.abs(mean[..., 0]) + np.sqrt(n) * spread)
    if still.any():
        still &= spread <= ROUNDING * np.abs(x).max(axis=(2, 3)).astype(np.float64)
        rows[still], spread[still] = 0, 0
    spread_x, spread_y = spread.T
    floor = config.reference.spread_floor * spread_x
    flat = spread_y <= floor
    scale = np.where(flat, floor, spread_y)
    scale[scale == 0] = 1.0
    return rows, mean, scale, flat


SMALLEST_SIZE = 1e-3
"""Smallest size of a body, in pixels."""
STEP, SPEED = 1.0, 3.0
"""Sizes of the body that nobody moves at once, and more of them per second."""
GROWTH, GROWTH_SPEED = 0.35, 0.3
"""The same for the logarithm of the size."""


class Bodies(NamedTuple):
    """Centre and spread of the joints along x and y in every frame of windows, `(N, T, 2)` each."""

    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def of_windows(cls, keypoints: NDArray[np.float32]) -> Bodies:
        """Those of windows `(N, T, V, 2)`."""
        N, T, V, _ = keypoints.shape
        joints = np.array(keypoints.transpose(0, 1, 3, 2), np.float64, order="C").reshape(-1, V)
        centre = joints.mean(axis=1)  # sums run along the last, dense axis: any batching, same bits
        spread = np.sqrt(np.square(joints - centre[:, None]).mean(axis=1))
        return cls(centre.reshape(N, T, 2), spread.reshape(N, T, 2))

    def latest(self, rows: NDArray[np.int64], T: int) -> Bodies:
        """Those of the last T frames of some windows."""
        return Bodies(self.centre[rows, -T:], self.spread[rows, -T:])

    @property
    def size(self) -> NDArray[np.float64]:
        """The size of the body in every frame, `(N, T)`: the spread of all its joints."""
        across, along = self.spread[..., 0], self.spread[..., 1]
        return np.maximum(np.sqrt(np.square(across) + np.square(along)), SMALLEST_SIZE)


def jumped(
    before: NDArray[np.float32], after: NDArray[np.float32], seconds: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Test whether poses `(n, V, 2)` that many `seconds` apart belong to different people, `(n,)`.

    A body that jumps or changes its size at once is another one that took over the track.
    """
    old, new = Bodies.of_windows(before[:, None]), Bodies.of_windows(after[:, None])
    old_size, new_size = old.size[:, 0], new.size[:, 0]
    moved = np.sqrt(np.square(new.centre - old.centre).sum(axis=2))[:, 0]
    # further, or larger, than a body gets in that time
    far = moved > (STEP + SPEED * seconds) * np.minimum(old_size, new_size)
    grown = np.abs(np.log(new_size / old_size)) > GROWTH + GROWTH_SPEED * seconds
    return np.asarray(far | grown)


FILE = Path(__file__).with_name("body.json")
"""The model of COCO-17, learned from motion capture by `python -m studies learn-body`."""
SIZE_SPREAD = 0.5
"""Prior spread of a body's size, relative to the extent of the joints that were found."""
SMALLEST_EXTENT = 1e-3
"""Smallest extent of a body, in pixels."""
POSES_AT_ONCE = 256
"""Poses solved at once; bounds memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """Mean shape `mean (V, 2)`, `axes (V, 2, K)` and the variance `noise (V, 2)` of the rest.

    The unit is the height of the mean shape.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    noise: NDArray[np.float64]

    def settle(
        self, keypoints: NDArray[np.float32], variance: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Poses `(n, V, 2)` where they are expected, given the `variance (n, V)` of each joint.

        The unit of the variance is the extent of the pose, squared. A joint without noise stays,
        one with infinite noise goes where the body has it. A pose without any joint stays as it is.
        Poses are independent: any batching gives the same bits.
        """
        settled = keypoints.copy()
        some = np.flatnonzero(np.isfinite(variance).any(axis=1) & (variance > 0).any(axis=1))
        for first in range(0, len(some), POSES_AT_ONCE):
            rows = some[first : first + POSES_AT_ONCE]
            settled[rows] = self._settled(keypoints[rows], variance[rows][..., None])
        return settled

    def _settled(
        self, keypoints: NDArray[np.float32], variance: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Mean of each joint's position, given all of them and their variance `(n, V, 1)`."""
        fitted = self._fitted(keypoints, variance)
        kept = self.noise / (self.noise + variance)
        between = fitted + kept * (np.where(np.isfinite(variance), keypoints, 0) - fitted)
        return np.where(variance == 0, keypoints, between.astype(np.float32))

    def _fitted(
        self, keypoints: NDArray[np.float32], variance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The likeliest body, `(n, V, 2)`."""
        n, V, _ = keypoints.shape
        # coordinates y (n, 2V, 1) relative to the joints that were found, and their precision
        there = np.isfinite(variance)
        middle, size = extent(keypoints, there)
        y = np.where(there, (keypoints - middle) / size, 0.0).reshape(n, 2 * V, 1)
        precision = (1 / (self.noise + variance)).reshape(n, 2 * V, 1)
        design, products, prior = _system(self)
        # sums over the middle axis run in order: any batching gives the same bits
        normal = (precision * products).sum(axis=1).reshape(n, *prior.shape) + prior
        right = (precision * y * design).sum(axis=1)
        right[:, 2] += prior[2, 2]
        # (t, s, s z) of the likeliest body, back to pixels
        solution = np.linalg.solve(normal, right[..., None])  # (n, 3 + K, 1)
        fitted = (solution * design.T).sum(axis=1).reshape(n, V, 2)
        return np.asarray(fitted * size + middle)


@cache
def _system(body: Body) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Dependence of each coordinate on (t, s, s z), `(2V, 3 + K)`; its products; the prior."""
    V, _, K = body.axes.shape
    place = np.tile(np.eye(2), (V, 1))
    design = np.column_stack([place, body.mean.reshape(-1), body.axes.reshape(-1, K)])
    products = (design[:, :, None] * design[:, None, :]).reshape(2 * V, -1)
    return design, products, np.diag([0.0, 0.0, 1 / SIZE_SPREAD**2, *np.ones(K)])


def extent(
    keypoints: NDArray[np.float32], there: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middle `(n, 1, 2)` of the joints that are there, and how far they reach, `(n, 1, 1)`."""
    joints = keypoints.astype(np.float64)
    middle = np.where(there, joints, 0.0).sum(axis=1, keepdims=True) / there.sum(1, keepdims=True)
    far = np.where(there, np.abs(joints - middle), 0.0).max(axis=1, keepdims=True)
    size = 2 * far[..., 1:]  # upright people: the height says more than the width
    return middle, np.maximum(np.maximum(size, far[..., :1]), SMALLEST_EXTENT)


@cache
def body_of(skeleton: Skeleton) -> Body | None:
    """The body of a skeleton; None for one that is not known."""
    if skeleton.joints not in (COCO17.joints, STEP18.joints):
        return None
    facts = json.loads(FILE.read_text(encoding="utf-8"))
    known = [np.array(facts[name], np.float64) for name in ("mean", "axes", "noise")]
    if skeleton.joints == STEP18.joints:
        known = [convert(values[None], COCO17, STEP18)[0] for values in known]
    return Body(*known)


BINS = 10
"""Ranges of confidence, of equal width."""
FEWEST = 200
"""Joints needed to measure the noise of a range; those with fewer take that of the next surer."""
MEDIAN = 0.4549
"""Median of the square of a standard normal variable."""


def noise_at(confidence: NDArray[np.float32], noise: Sequence[float]) -> NDArray[np.float64]:
    """The variance of joints of these confidences; `noise` holds their spread in each range."""
    if not noise:
        return np.zeros(confidence.shape)
    at = np.minimum((confidence * len(noise)).astype(np.int64), len(noise) - 1)
    return np.asarray(np.square(np.array(noise, np.float64))[at])


def measure_noise(tracks: Iterable[Track]) -> tuple[float, ...]:
    """The spread of joints in each range of confidence, relative to the extent of the pose.

    A joint that was found is compared with the mean of itself a frame before and after. What the
    surest joints deviate is taken for motion; the rest is noise, never less for a lower confidence.
    """
    sure, square = [np.empty(0)], [np.empty(0)]
    for track in tracks:
        around = np.flatnonzero(np.diff(track.frames[:-1]) + np.diff(track.frames[1:]) == 2) + 1
        if len(around):
            x = track.keypoints.astype(np.float64)
            # a joint beside the mean of itself before and after, over the extent of the pose
            off = x[around] - (x[around - 1] + x[around + 1]) / 2
            there = (track.keypoints != 0).any(axis=2)
            size = extent(track.keypoints[around], np.ones_like(off, np.bool_)[..., :1])[1]
            thrice = there[around] & there[around - 1] & there[around + 1]
            square.append((np.square(off / size).mean(axis=2) / 1.5)[thrice])
            sure.append(np.nan_to_num(track.confidence[around].astype(np.float64))[thrice])
    return _by_confidence(np.concatenate(sure), np.concatenate(square))


def _by_confidence(
    confidence: NDArray[np.float64], square: NDArray[np.float64]
) -> tuple[float, ...]:
    """Typical deviations in each range, less those of the surest joints."""
    at = np.minimum((np.clip(confidence, 0, 1) * BINS).astype(np.int64), BINS - 1)
    # from the surest range down: less sure joints are never less noisy
    spread: list[float] = [0.0]
    surest: float | None = None
    for number in range(BINS - 1, -1, -1):
        own = square[at == number]
        if len(own) >= FEWEST:
            variance = float(np.median(own)) / MEDIAN
            surest = variance if surest is None else surest
            spread.append(max(float(np.sqrt(max(variance - surest, 0.0))), spread[-1]))
        else:
            spread.append(spread[-1])
    return tuple(round(one, 5) for one in spread[:0:-1])


@dataclass(frozen=True, slots=True)
class Repairs:
    """Counts of repairs made between poses and windows; nothing is repaired silently."""

    poses: int = 0
    """Poses read."""
    nan_confidences: int = 0
    """Confidences that were NaN and count as 0."""
    clipped_confidences: int = 0
    """Confidences outside [0, 1], clipped."""
    missing_joints: int = 0
    """Joints at (0, 0) with confidence 0, placed by the pose's other joints."""
    filled_poses: int = 0
    """Poses interpolated inside a gap of at most T frames."""
    short_runs: int = 0
    """Runs with fewer than T frames, which yield no window."""
    jumps: int = 0
    """Tracks that went over to another body and begin again there."""

    def __add__(self, other: Repairs) -> Repairs:
        """Add the counts of both."""
        # dataclasses.astuple deep-copies: too slow for a stream, which adds on every frame
        return Repairs(*map(add, _each_count(self), _each_count(other)))


_each_count = attrgetter(*(field.name for field in fields(Repairs)))
