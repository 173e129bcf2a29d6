"""Join takes where their poses agree, so people continue from one motion to the next."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from studies.mocap import truth
from studies.mocap.catalogue import person_of
from studies.mocap.motions import ANKLES, FPS, HIP_JOINTS, HIPS, KNEES, Float64s
from studies.mocap.takes import Take, TakeSplit

BLEND = 12
"""Frames over which one motion blends into the next: 0.4 s."""
MAX_APART_M = 0.16
"""Largest root mean square distance between joints at a join."""
VELOCITY_S = 0.1
"""Weight of velocity differences relative to position differences."""
KEEP = 45
"""Minimum number of frames kept of each motion, if it has them: 1.5 s."""
LOSS_M = 0.003
"""Penalty on the pose distance for each frame that a join through an event drops."""
STRIDE = 22
"""Frames of a running stride."""
CANDIDATES = 60
"""Number of frames compared per motion."""
TRIES = 10
"""Number of partners tried."""


def prolonged(rng: np.random.Generator, take_split: TakeSplit, take: Take, frames: int) -> Take:
    """Extend a normal take with others of the same person until it is long enough."""
    partners = [
        other for other in take_split.normal if person_of(other.name) == person_of(take.name)
    ]
    for _ in range(TRIES):
        if len(take) >= frames:
            break
        joined = join(take, partners[rng.integers(len(partners))])
        take = take if joined is None else joined
    return take


def sustained(rng: np.random.Generator, take_split: TakeSplit, take: Take, frames: int) -> Take:
    """Extend a take that is abnormal throughout, such as a run, with more of the same person."""
    if take.kind is None or not take.abnormal.all():
        return take
    person = person_of(take.name)
    partners = [
        other
        for other in take_split.abnormal[take.kind]
        if person_of(other.name) == person and other.abnormal.all()
    ]
    for _ in range(TRIES):
        if len(take) >= frames:
            break
        joined = join(take, partners[rng.integers(len(partners))], through=True)
        take = take if joined is None or len(joined) <= len(take) else joined
    return take


def embedded(rng: np.random.Generator, take_split: TakeSplit, take: Take, frames: int) -> Take:
    """Surround an abnormal take with normal motion of the same person, or of others, scaled."""
    person = person_of(take.name)
    own = [other for other in take_split.normal if person_of(other.name) == person]
    partners = own or list(take_split.normal)
    for before in (True, False):
        events = np.flatnonzero(take.abnormal)
        spare = events[0] if before else len(take) - 1 - events[-1]
        for _ in range(TRIES if spare < frames else 0):
            partner = scaled(partners[rng.integers(len(partners))], leg_m(take.joints))
            joined = join(partner, take) if before else join(take, partner)
            if joined is not None:
                take = _trimmed(joined, frames)
                break
    return take


def join(one: Take, two: Take, *, through: bool = False) -> Take | None:
    """Append the second take, rotated and moved to the end of the first; None if impossible.

    The join lies after the events of the first take and before those of the second, or within a
    stride of the end and start if the event continues `through` the join. A join is impossible if
    no two poses agree, or if the transition between normal takes would itself look abnormal.
    """
    exits, entries = _exits(one), _entries(two)
    if through:
        last = len(one) - BLEND
        exits, entries = _some(last - STRIDE, last), _some(0, min(STRIDE, len(two) - BLEND))
    if not len(exits) or not len(entries):
        return None
    apart = cdist(_features(one.joints)[exits], _features(two.joints)[entries])
    lost = (len(one) - BLEND - exits)[:, None] + entries if through else 0
    best = np.unravel_index(np.argmin(apart + LOSS_M * lost), apart.shape)
    if apart[best] > MAX_APART_M:
        return None
    i, j = int(exits[best[0]]), int(entries[best[1]])
    moved = _aligned(two.joints[j:], one.joints[i])
    weight = (np.arange(BLEND) + 1) / (BLEND + 1)
    smooth = (3 * weight**2 - 2 * weight**3)[:, None, None]
    passage = (1 - smooth) * one.joints[i : i + BLEND] + smooth * moved[:BLEND]
    joints = np.concatenate([one.joints[:i], passage, moved[BLEND:]])
    late = weight >= 0.5
    between = np.where(late, two.abnormal[j : j + BLEND], one.abnormal[i : i + BLEND])
    abnormal = np.concatenate([one.abnormal[:i], between, two.abnormal[j + BLEND :]])
    around = slice(max(i - BLEND, 0), i + 2 * BLEND)
    strange = ~truth.ordinary(joints[around]) & ~abnormal[around]
    if strange.any() and not (one.abnormal.any() or two.abnormal.any()):
        return None
    return Take(two.name if two.kind else one.name, two.kind or one.kind, joints, abnormal)


def scaled(take: Take, leg: float) -> Take:
    """Scale a take to a person with this leg length."""
    return Take(take.name, take.kind, take.joints * (leg / leg_m(take.joints)), take.abnormal)


def leg_m(joints: Float64s) -> float:
    """Length of a leg (thigh and shank) in metres."""
    thigh = np.linalg.norm(joints[0, HIP_JOINTS] - joints[0, KNEES], axis=1)
    shank = np.linalg.norm(joints[0, KNEES] - joints[0, ANKLES], axis=1)
    return float((thigh + shank).mean())


def _exits(take: Take) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Frames at which a take can end: after its last event, and not too early."""
    last = len(take) - BLEND
    events = np.flatnonzero(take.abnormal)
    first = min(KEEP, last) if not len(events) else min(int(events[-1]) + 1, last)
    return _some(first, last)


def _entries(take: Take) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Frames at which a take can start: before its first event, and not too late."""
    last = len(take) - BLEND
    events = np.flatnonzero(take.abnormal)
    return _some(0, min(int(events[0]), last) if len(events) else max(last - KEEP, 0))


def _some(first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """At most `CANDIDATES` evenly spaced frames from `first` to `last`."""
    if last < max(first, 0):
        return np.empty(0, dtype=np.int64)
    return np.unique(np.linspace(max(first, 0), last, CANDIDATES).astype(np.int64))


def _features(joints: Float64s) -> Float64s:
    """Features to match, `(n, 90)`: joints relative to hips and heading, and velocities."""
    local = _upright_frame(joints)
    velocity = np.gradient(local, 1 / FPS, axis=0)
    n_joints = joints.shape[1]
    both = np.concatenate([local, VELOCITY_S * velocity], axis=1).reshape(len(joints), -1)
    return both / np.sqrt(n_joints)


def _upright_frame(joints: Float64s) -> Float64s:
    """Joints `(n, 15, 3)` relative to the hips, which face along +x in every frame."""
    centred = joints - joints[:, [HIPS]] * (1, 1, 0)
    return _turned(centred, -_heading(joints))


def _aligned(joints: Float64s, pose: Float64s) -> Float64s:
    """Rotate and move joints on the ground to align the first pose with `pose`."""
    angle = _heading(pose[None]) - _heading(joints[:1])
    centred = joints - joints[0, HIPS] * (1, 1, 0)
    return _turned(centred, np.repeat(angle, len(joints))) + pose[HIPS] * (1, 1, 0)


def _heading(joints: Float64s) -> Float64s:
    """Heading of the hips, `(n,)` in radians about the vertical."""
    left = joints[:, HIP_JOINTS[0]] - joints[:, HIP_JOINTS[1]]
    return np.arctan2(-left[:, 0], left[:, 1])


def _turned(joints: Float64s, angle: Float64s) -> Float64s:
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y, z = np.moveaxis(joints, -1, 0)
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=-1)


def _trimmed(take: Take, frames: int) -> Take:
    """Trim a take to at most `frames` frames before its first and after its last event."""
    events = np.flatnonzero(take.abnormal)
    part = slice(max(int(events[0]) - frames, 0), int(events[-1]) + 1 + frames)
    return Take(take.name, take.kind, take.joints[part], take.abnormal[part])
