"""What is unusual, in words: the observed motion beside its nearest normal one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.parts import LIMBS, Part
from stepvad.skeletons import Skeleton

Motion = NDArray[np.float32]
"""Joints over time, `(T, V, 2)` in pixels; y grows downwards."""

BODY = "whole body"
MENTIONED = 0.25
"""Share of the score from which a part is mentioned; the first always is."""
MOST_PARTS = 2
MOVED = 0.1
"""How far, in heights of the body, the end of a limb has to be off to have a direction."""
LONGER, SHORTER = 1.3, 0.7
"""A limb's reach beside the normal one, from which it is stretched or bent."""
FASTER, SLOWER = 1.5, 0.5
"""Speed beside the normal one that is worth a word."""
SLOW = 0.01
"""A difference in speed, in heights of the body per frame, too small to be sure of."""
LYING, LEANING = 55.0, 20.0
"""Degrees from upright: of the spine alone, and more than normal."""
CROUCHED = 0.75
"""Height of the hips above the lower foot beside the normal one."""
ACROSS = 0.05
"""Width of the shoulders, in heights of the body, from which it says which way somebody faces."""
WAY = 0.15
"""Way over the window, in heights of the body, from which it has a direction."""
MOST = 10.0
"""Speeds beyond this many times the normal one are not told apart."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is unusual about one part: adjectives, speed beside the normal one, and when."""

    subject: str
    adjectives: tuple[str, ...]
    speed: float | None
    """Times the normal speed, where it is clearly another; infinite where normal is to rest."""
    first_frame: int
    last_frame: int

    @property
    def says(self) -> str:
        """Such as `left arm raised and moving 3x faster than normal`."""
        said = list(self.adjectives)
        if self.speed is not None:
            said.append(_speed_words(self.speed))
        if not said:
            return f"unusual posture of the {self.subject}"
        *others, last = said
        before = f"{', '.join(others)} and " if others else ""
        return f"{self.subject} {before}{last}"

    @property
    def words(self) -> str:
        """The same with when, such as `…, frames 120-134`."""
        if self.first_frame == self.last_frame:
            return f"{self.says}, frame {self.first_frame}"
        return f"{self.says}, frames {self.first_frame}-{self.last_frame}"


def describe(
    observed: Motion,
    ghost: Motion,
    parts: Sequence[Part],
    frames: NDArray[np.int64],
    skeleton: Skeleton,
) -> tuple[Finding, ...]:
    """What the whole body does, if that is clear, then the parts that the score is due to."""
    views = _View.of(observed, skeleton), _View.of(ghost, skeleton)
    if parts[0].contribution <= 0:
        return ()
    height = max(float(np.median(np.ptp(ghost[..., 1], axis=1))), 1e-6)
    adjectives = _posture(*views, height)
    speed = _speed(views[0].centre, views[1].centre, height)
    found = []
    if adjectives or speed is not None:
        found.append(Finding(BODY, adjectives, speed, int(frames[0]), int(frames[-1])))
    mentioned = [part for part in parts if part.share >= MENTIONED] or parts[:1]
    for part in mentioned[:MOST_PARTS]:
        when = slice(*np.searchsorted(frames, [part.first_frame, part.last_frame + 1]))
        finding = Finding(part.name, (), None, part.first_frame, part.last_frame)
        if part.name in LIMBS and "lying" not in adjectives:
            limb, normal = (view.limb(part.name) for view in views)
            finding = replace(
                finding,
                adjectives=_direction(limb[when], normal[when], height),
                speed=_speed(limb, normal, height),
            )
        if finding.adjectives or finding.speed is not None or not found:
            found.append(finding)
    return tuple(found)


def join(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of several windows of one person, those about one part made one."""
    joined: dict[str, Finding] = {}
    for new in findings:
        old = joined.get(new.subject)
        if old is None:
            joined[new.subject] = new
            continue
        speeds = [speed for speed in (old.speed, new.speed) if speed is not None]
        joined[new.subject] = Finding(
            new.subject,
            tuple(dict.fromkeys(old.adjectives + new.adjectives)),
            max(speeds, default=None),
            min(old.first_frame, new.first_frame),
            max(old.last_frame, new.last_frame),
        )
    return tuple(joined.values())


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A motion with the joints that the words speak of, where the skeleton has them."""

    motion: Motion
    joints: tuple[str, ...]

    @classmethod
    def of(cls, motion: Motion, skeleton: Skeleton) -> _View:
        return cls(motion, skeleton.joints)

    def has(self, *joints: str) -> bool:
        return set(joints) <= set(self.joints)

    def middle(self, name: str) -> NDArray[np.float32]:
        """Between left and right, `(T, 2)`."""
        both = self.joint(f"left_{name}") + self.joint(f"right_{name}")
        return both / np.float32(2)

    def joint(self, name: str) -> NDArray[np.float32]:
        return self.motion[:, self.joints.index(name)]

    def limb(self, name: str) -> NDArray[np.float32]:
        """From where a limb begins to where it ends, `(T, 2)`."""
        root, end = LIMBS[name]
        return self.joint(end) - self.joint(root)

    @property
    def centre(self) -> NDArray[np.float32]:
        """Where the body is: between the hips, or amid all joints."""
        if self.has("left_hip", "right_hip"):
            return self.middle("hip")
        return self.motion.mean(axis=1).astype(np.float32)


def _posture(observed: _View, ghost: _View, height: float) -> tuple[str, ...]:
    """What is clear about the body as a whole."""
    found = []
    if observed.has("left_shoulder", "right_shoulder", "left_hip", "right_hip"):
        tilt, normal = _tilt(observed), _tilt(ghost)
        if tilt >= LYING and tilt - normal >= LEANING:
            found.append("lying")
        elif tilt - normal >= LEANING:
            found.append("leaning over")
        if "lying" not in found and _faces_away(observed, ghost, height):
            found.append("turned round")
    legs = observed.has("left_ankle", "right_ankle", "left_hip", "right_hip")
    if legs and "lying" not in found and _hips(observed) <= CROUCHED * _hips(ghost):
        found.append("crouched")
    ways = [(view.centre[-1] - view.centre[0]) / height for view in (observed, ghost)]
    down = float(ways[0][1] - ways[1][1])
    if abs(down) >= WAY:
        found.append("going down in the picture" if down > 0 else "going up in the picture")
    if min(np.linalg.norm(way) for way in ways) >= WAY and float(ways[0] @ ways[1]) < 0:
        found.append("going the other way")
    return tuple(found)


def _tilt(view: _View) -> float:
    """Degrees between the spine and upright, the median over the frames."""
    across, down = (view.middle("hip") - view.middle("shoulder")).T
    return float(np.median(np.degrees(np.arctan2(np.abs(across), down))))


def _faces_away(observed: _View, ghost: _View, height: float) -> bool:
    """Whether left and right of the shoulders have clearly changed sides."""
    across = [
        float(np.median(view.joint("left_shoulder")[:, 0] - view.joint("right_shoulder")[:, 0]))
        for view in (observed, ghost)
    ]
    return across[0] * across[1] < 0 and min(map(abs, across)) >= ACROSS * height


def _hips(view: _View) -> float:
    """Height of the hips above the lower foot, the median over the frames."""
    feet = np.maximum(view.joint("left_ankle")[:, 1], view.joint("right_ankle")[:, 1])
    return float(np.median(feet - view.middle("hip")[:, 1]))


def _direction(
    observed: NDArray[np.float32], ghost: NDArray[np.float32], height: float
) -> tuple[str, ...]:
    """Where a limb points beside where it would, from its begin to its end `(n, 2)`."""
    across, down = np.median(observed - ghost, axis=0) / height
    reach = np.median(np.linalg.norm(observed, axis=1)) / height
    normal = np.median(np.linalg.norm(ghost, axis=1)) / height
    found = []
    if abs(down) >= MOVED:
        found.append("lowered" if down > 0 else "raised")
    elif abs(across) >= MOVED:
        found.append("held aside")
    if reach - normal >= MOVED and reach >= LONGER * normal:
        found.append("stretched")
    elif normal - reach >= MOVED and reach <= SHORTER * normal and "raised" not in found:
        found.append("bent")
    return tuple(found)


def _speed(
    observed: NDArray[np.float32], ghost: NDArray[np.float32], height: float
) -> float | None:
    """How many times faster a point `(T, 2)` moves than normal; None if that is not clear."""
    if len(observed) < 2:
        return None
    fast, normal = (
        float(np.linalg.norm(np.diff(points, axis=0), axis=1).mean()) / height
        for points in (observed, ghost)
    )
    if abs(fast - normal) < SLOW:
        return None
    if SLOWER * normal < fast < FASTER * normal:
        return None
    return fast / normal if normal > 0 else float("inf")


def _speed_words(speed: float) -> str:
    if speed < 1:
        return "moving less than half as fast as normal"
    if speed > MOST:
        return f"moving more than {MOST:g}x faster than normal"
    return f"moving {speed:.2g}x faster than normal"
