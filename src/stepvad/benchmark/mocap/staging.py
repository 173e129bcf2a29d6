"""Who is on stage when and where: one person after the other in each place of a scene."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepvad.benchmark.mocap.cameras import PinholeCamera, inside
from stepvad.benchmark.mocap.catalogue import Kind
from stepvad.benchmark.mocap.joining import embedded, prolonged, sustained
from stepvad.benchmark.mocap.motions import FPS, HIPS, Floats, resample
from stepvad.benchmark.mocap.takes import Take, TakeSplit
from stepvad.benchmark.mocap.truth import Mask

PLACES = (1, 4)
"""From one to this many people are on stage at a time."""
PAUSE_S = (0.0, 1.0)
"""How long a place stays empty between two people."""
EARLY_S = 5.0
"""The first of a place may have come this long before the clip began."""
NORMAL_S = (4.0, 15.0)
"""For how long somebody who behaves is on stage, if the motion lasts that long."""
AROUND_S = (1.5, 5.0)
"""How much normal motion surrounds an event."""
SUSTAIN_S = (1.0, 4.0)
"""How long somebody runs whose motion shows a few strides only."""
TRIES = 12
"""Placements that are tried before somebody stays away."""
APART_M, BOX_M = 0.6, 0.35
"""People do not come closer to each other, and not closer to a box."""
IN_PICTURE = 0.85
"""In this share of the frames that matter, the hips must be in the picture."""
WEIGHT_S = 10.0
"""A take is drawn by its length, up to this: long ones do not crowd out short ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """A take on stage from `first` on: joints `(n, 15, 3)` in the scene at the camera's rate."""

    first: int
    joints: Floats
    abnormal: Mask
    kind: Kind | None

    @property
    def end(self) -> int:
        """The frame after the last."""
        return self.first + len(self.joints)

    def within(self, first: int, end: int) -> Actor:
        """The same actor, on stage in these frames only."""
        part = slice(max(first - self.first, 0), max(end - self.first, 0))
        kept = self.joints[part]
        return Actor(max(self.first, first), kept, self.abnormal[part], self.kind)


def stage(
    rng: np.random.Generator,
    camera: PinholeCamera,
    cast: TakeSplit,
    kinds: tuple[Kind, ...],
    n_frames: int,
) -> list[Actor]:
    """The actors of a clip: one for each kind of anomaly, and people who behave around them.

    There are no more kinds than places, so that the number of people does not tell of anomalies.
    """
    actors: list[Actor] = []
    n_places = int(rng.integers(*PLACES, endpoint=True))
    for kind in kinds[:n_places]:
        event = _event(rng, camera, cast, kind, actors, n_frames)
        actors += [] if event is None else [event]
    events = list(actors)
    early = round(EARLY_S * camera.fps)
    for place in range(n_places):
        busy = [(a.first, a.end) for a in events[place : place + 1]]
        start = -int(rng.integers(early))
        for first, end in _free(start, n_frames, busy):
            for actor in _normals(rng, camera, cast, actors, first, end):
                actors.append(actor)
    seen = (actor.within(0, n_frames) for actor in actors)
    return [actor for actor in seen if len(actor.joints)]


def _free(start: int, end: int, busy: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The frames from `start` to `end` that are not busy."""
    for first, stop in busy:
        yield start, first
        start = stop
    yield start, end


def _event(
    rng: np.random.Generator,
    camera: PinholeCamera,
    cast: TakeSplit,
    kind: Kind,
    others: list[Actor],
    n_frames: int,
) -> Actor | None:
    """Somebody who does something abnormal within the clip."""
    takes = cast.abnormal[kind]
    for _ in range(TRIES):
        take = takes[rng.integers(len(takes))]
        take = sustained(rng, cast, take, round(rng.uniform(*SUSTAIN_S) * FPS))
        take = embedded(rng, cast, take, round(rng.uniform(*AROUND_S) * FPS))
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
    cast: TakeSplit,
    others: list[Actor],
    first: int,
    end: int,
) -> Iterator[Actor]:
    """People who behave, one after the other, from `first` to `end`."""
    weights = np.array([min(len(take), WEIGHT_S * FPS) for take in cast.normal])
    chance = weights / weights.sum()
    while first < end:
        take, seconds = cast.normal[rng.choice(len(chance), p=chance)], rng.uniform(*NORMAL_S)
        take = prolonged(rng, cast, take, round(seconds * FPS))
        actor, length = _at_rate(take, camera.fps), round(seconds * camera.fps)
        skipped = int(rng.integers(max(len(actor.joints) - length, 0) + 1))
        length = min(length, end - first, len(actor.joints) - skipped)
        actor = actor.within(skipped, skipped + length)
        placed = _place(rng, camera, actor, first, others, np.arange(length))
        if placed is None:
            first += 1  # somebody else may fit in, a moment later
        else:
            yield placed
            first = placed.end + round(rng.uniform(*PAUSE_S) * camera.fps)


def _at_rate(take: Take, fps: float) -> Actor:
    """A take at the camera's frame rate, still where it was captured."""
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
    """The actor somewhere in the scene, in the picture and in nobody's way, or None."""
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
    """Whether two actors keep their distance while both are on stage."""
    first, end = max(one.first, other.first), min(one.end, other.end)
    if first >= end:
        return True
    a = one.joints[first - one.first : end - one.first, HIPS, :2]
    b = other.joints[first - other.first : end - other.first, HIPS, :2]
    return bool((np.linalg.norm(a - b, axis=1) > APART_M).all())


def _turned(joints: Floats, angle: float) -> Floats:
    """Joints turned about the vertical."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y, z = np.moveaxis(joints, -1, 0)
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=-1)
