"""Phrases for unusual motion: the observed motion compared with the nearest normal one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.parts import LIMBS, BodyPart
from stepvad.skeletons import Skeleton

MotionArray = NDArray[np.float32]
"""Joints over time, `(T, V, 2)` in pixels; y grows downwards."""

BODY = "whole body"
MENTIONED = 0.25
"""Smallest share of the score for a part to be mentioned; the first always is."""
MOST_PARTS = 2
MOVED = 0.1
"""Offset of a limb's end, in body heights, from which it has a direction."""
LONGER, SHORTER = 1.3, 0.7
"""Ratio of a limb's reach to normal, from which it is stretched or bent."""
FASTER, SLOWER = 1.5, 0.5
"""Ratio of speed to normal that is worth mentioning."""
SLOW = 0.01
"""Differences in speed below this, in body heights per frame, are uncertain."""
LYING, LEANING = 55.0, 20.0
"""Tilt of the spine in degrees: absolute, and in excess of normal."""
CROUCHED = 0.75
"""Ratio to normal of the height of the hips above the lower foot."""
ACROSS = 0.05
"""Width of the shoulders, in body heights, from which it shows the direction a person faces."""
WAY = 0.15
"""Distance covered in the window, in body heights, from which it has a direction."""
MOST = 10.0
"""Speeds above this many times normal are not distinguished."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An unusual part: adjectives, speed relative to normal, and when."""

    subject: str
    adjectives: tuple[str, ...]
    speed: float | None
    """Ratio to the normal speed if clearly different; infinite if the normal motion rests."""
    first_frame: int
    last_frame: int
    phrase: str = ""
    """What to say of a subject that is not a part of the body."""

    @property
    def says(self) -> str:
        """The phrase, such as `left arm raised and moving 3x faster than normal`."""
        if self.phrase:
            return self.phrase
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
        """The phrase with its frames, such as `…, frames 120-134`."""
        if self.first_frame == self.last_frame:
            return f"{self.says}, frame {self.first_frame}"
        return f"{self.says}, frames {self.first_frame}-{self.last_frame}"


def describe(
    observed: MotionArray,
    ghost: MotionArray,
    parts: Sequence[BodyPart],
    frames: NDArray[np.int64],
    skeleton: Skeleton,
) -> tuple[Finding, ...]:
    """Findings on the whole body, if clear, then on the parts that the score is due to."""
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
    """Merge findings of several windows of one person, one per part; the first phrase is kept."""
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
            old.phrase,
        )
    return tuple(joined.values())


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A motion with access to the joints that phrases mention, if the skeleton has them."""

    motion: MotionArray
    joints: tuple[str, ...]

    @classmethod
    def of(cls, motion: MotionArray, skeleton: Skeleton) -> _View:
        return cls(motion, skeleton.joints)

    def has(self, *joints: str) -> bool:
        return set(joints) <= set(self.joints)

    def middle(self, name: str) -> NDArray[np.float32]:
        """Midpoint of the left and right joint, `(T, 2)`."""
        both = self.joint(f"left_{name}") + self.joint(f"right_{name}")
        return both / np.float32(2)

    def joint(self, name: str) -> NDArray[np.float32]:
        return self.motion[:, self.joints.index(name)]

    def limb(self, name: str) -> NDArray[np.float32]:
        """Vector from the first to the last joint of a limb, `(T, 2)`."""
        root, end = LIMBS[name]
        return self.joint(end) - self.joint(root)

    @property
    def centre(self) -> NDArray[np.float32]:
        """Position of the body: midpoint of the hips, or mean of all joints."""
        if self.has("left_hip", "right_hip"):
            return self.middle("hip")
        return self.motion.mean(axis=1).astype(np.float32)


def _posture(observed: _View, ghost: _View, height: float) -> tuple[str, ...]:
    """Adjectives that clearly apply to the whole body."""
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
    """Median angle between the spine and upright, in degrees."""
    across, down = (view.middle("hip") - view.middle("shoulder")).T
    return float(np.median(np.degrees(np.arctan2(np.abs(across), down))))


def _faces_away(observed: _View, ghost: _View, height: float) -> bool:
    """Whether the left and right shoulder have clearly swapped sides."""
    across = [
        float(np.median(view.joint("left_shoulder")[:, 0] - view.joint("right_shoulder")[:, 0]))
        for view in (observed, ghost)
    ]
    return across[0] * across[1] < 0 and min(map(abs, across)) >= ACROSS * height


def _hips(view: _View) -> float:
    """Median height of the hips above the lower foot."""
    feet = np.maximum(view.joint("left_ankle")[:, 1], view.joint("right_ankle")[:, 1])
    return float(np.median(feet - view.middle("hip")[:, 1]))


def _direction(
    observed: NDArray[np.float32], ghost: NDArray[np.float32], height: float
) -> tuple[str, ...]:
    """Direction of a limb compared with normal, from its first to its last joint `(n, 2)`."""
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
    """Ratio of the speed of a point `(T, 2)` to normal; None if not clearly different."""
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
