"""Staging of a scene: when and where people appear, one after another in each place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from studies.mocap.cameras import PinholeCamera, inside
from studies.mocap.catalogue import MotionKind
from studies.mocap.joining import embedded, prolonged, sustained
from studies.mocap.motions import FPS, HIPS, Float64s, resample
from studies.mocap.takes import Take, TakeSplit
from studies.mocap.truth import Mask

PLACES = (1, 4)
"""Minimum and maximum number of people on stage at a time."""
PAUSE_S = (0.0, 1.0)
"""Time a place stays empty between two people."""
EARLY_S = 5.0
"""The first person in a place may have arrived this long before the clip starts."""
NORMAL_S = (4.0, 15.0)
"""Time a normal person is on stage, if the motion lasts that long."""
AROUND_S = (1.5, 5.0)
"""Duration of normal motion around an event."""
SUSTAIN_S = (1.0, 4.0)
"""Duration of a run whose captured motion shows only a few strides."""
TRIES = 12
"""Placements tried before a person is left out."""
APART_M, BOX_M = 0.6, 0.35
"""Minimum distance between people, and from a person to a box."""
IN_PICTURE = 0.85
"""Share of the relevant frames in which the hips must be in the image."""
WEIGHT_S = 10.0
"""Takes are drawn with a weight of their length, capped here so long ones do not dominate."""


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """A take on stage from frame `first`: joints `(n, 15, 3)` in the scene at the camera's rate."""

    first: int
    joints: Float64s
    abnormal: Mask
    kind: MotionKind | None

    @property
    def end(self) -> int:
        """The frame after the last."""
        return self.first + len(self.joints)

    def within(self, first: int, end: int) -> Actor:
        """The same actor, on stage only in these frames."""
        part = slice(max(first - self.first, 0), max(end - self.first, 0))
        kept = self.joints[part]
        return Actor(max(self.first, first), kept, self.abnormal[part], self.kind)


def stage(
    rng: np.random.Generator,
    camera: PinholeCamera,
    take_split: TakeSplit,
    kinds: tuple[MotionKind, ...],
    n_frames: int,
) -> list[Actor]:
    """The actors of a clip: one for each kind of anomaly, and normal people around them.

    There are no more kinds than places, so the number of people does not reveal anomalies.
    """
    actors: list[Actor] = []
    n_places = int(rng.integers(*PLACES, endpoint=True))
    for kind in kinds[:n_places]:
        event = _event(rng, camera, take_split, kind, actors, n_frames)
        actors += [] if event is None else [event]
    events = list(actors)
    early = round(EARLY_S * camera.fps)
    for place in range(n_places):
        busy = [(a.first, a.end) for a in events[place : place + 1]]
        start = -int(rng.integers(early))
        for first, end in _free(start, n_frames, busy):
            for actor in _normals(rng, camera, take_split, actors, first, end):
                actors.append(actor)
    seen = (actor.within(0, n_frames) for actor in actors)
    return [actor for actor in seen if len(actor.joints)]


def _free(start: int, end: int, busy: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the free intervals between `start` and `end`."""
    for first, stop in busy:
        yield start, first
        start = stop
    yield start, end


def _event(
    rng: np.random.Generator,
    camera: PinholeCamera,
    take_split: TakeSplit,
    kind: MotionKind,
    others: list[Actor],
    n_frames: int,
) -> Actor | None:
    """An actor with an anomaly within the clip, or None."""
    takes = take_split.abnormal[kind]
    for _ in range(TRIES):
        take = takes[rng.integers(len(takes))]
        take = sustained(rng, take_split, take, round(rng.uniform(*SUSTAIN_S) * FPS))
        take = embedded(rng, take_split, take, round(rng.uniform(*AROUND_S) * FPS))
        actor = _at_rate(take, camera.fps)
        n = len(actor.joints)
        first = int(rng.integers(max(n_frames - n, 0) + 1))
        matters = actor.abnormal[: n_frames - first]
        if not matters.any():
            continue
        placed = _place(rng, camera, actor, first, others, np.flatnonzero(actor.abnormal))
        if placed is not None:
            return placed.within(0, n_frames)
    return None


def _normals(
    rng: np.random.Generator,
    camera: PinholeCamera,
    take_split: TakeSplit,
    others: list[Actor],
    first: int,
    end: int,
) -> Iterator[Actor]:
    """Yield normal people, one after another, from `first` to `end`."""
    weights = np.array([min(len(take), WEIGHT_S * FPS) for take in take_split.normal])
    chance = weights / weights.sum()
    while first < end:
        take, seconds = take_split.normal[rng.choice(len(chance), p=chance)], rng.uniform(*NORMAL_S)
        take = prolonged(rng, take_split, take, round(seconds * FPS))
        actor, length = _at_rate(take, camera.fps), round(seconds * camera.fps)
        skipped = int(rng.integers(max(len(actor.joints) - length, 0) + 1))
        length = min(length, end - first, len(actor.joints) - skipped)
        actor = actor.within(skipped, skipped + length)
        placed = _place(rng, camera, actor, first, others, np.arange(length))
        if placed is None:
            first += 1  # another person may fit a moment later
        else:
            yield placed
            first = placed.end + round(rng.uniform(*PAUSE_S) * camera.fps)


def _at_rate(take: Take, fps: float) -> Actor:
    """Resample a take to the camera's frame rate, still at its captured position."""
    at = np.arange(0, len(take) - 1 + 1e-9, FPS / fps)
    nearest = np.round(at).astype(np.int64)
    return Actor(0, resample(take.joints, at), take.abnormal[nearest], take.kind)


def _place(
    rng: np.random.Generator,
    camera: PinholeCamera,
    actor: Actor,
    first: int,
    others: list[Actor],
    matters: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Actor | None:
    """Place the actor in the scene, in the image and clear of others; None if that fails."""
    for _ in range(TRIES):
        spot = camera.place(rng)
        anchor = actor.joints[matters[rng.integers(len(matters))], HIPS]
        joints = _turned(actor.joints - anchor * (1, 1, 0), rng.uniform(0, 2 * np.pi))
        joints[..., :2] += spot
        placed = Actor(first, joints, actor.abnormal, actor.kind)
        pixels, _ = camera.project(joints[matters, HIPS])
        if inside(pixels).mean() < IN_PICTURE or (joints[..., 1] < 1.0).any():
            continue
        walk = joints[:, HIPS, :2]
        if any(box.covers(walk, margin_m=BOX_M).any() for box in camera.boxes):
            continue
        if all(_apart(placed, other) for other in others):
            return placed
    return None


def _apart(one: Actor, other: Actor) -> bool:
    """Whether two actors keep the minimum distance while both are on stage."""
    first, end = max(one.first, other.first), min(one.end, other.end)
    if first >= end:
        return True
    a = one.joints[first - one.first : end - one.first, HIPS, :2]
    b = other.joints[first - other.first : end - other.first, HIPS, :2]
    return bool((np.linalg.norm(a - b, axis=1) > APART_M).all())


def _turned(joints: Float64s, angle: float) -> Float64s:
    """Rotate joints about the vertical."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y, z = np.moveaxis(joints, -1, 0)
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=-1)
