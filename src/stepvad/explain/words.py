"""Words for what is unusual: parts of the body, and phrases beside normal motion or footage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad.skeletons import Skeleton
from stepvad.windows.views import MEANINGS

PART_WORDS: Mapping[str, frozenset[str]] = {
    "head": frozenset({"head", "face", "nose", "eye", "ear", "mouth"}),
    "torso": frozenset({"neck", "shoulder", "hip"}),
    "leg": frozenset({"knee", "ankle", "heel", "toe", "foot"}),
    "arm": frozenset({"elbow", "wrist", "hand", "thumb", "index", "pinky", "finger", "forefinger"}),
}
"""Words in the names of joints, by part; the first that fits decides.

Shoulders and hips, where arms and legs begin, belong to the torso.
"""
PARTS = ("head", "torso", "left arm", "right arm", "left leg", "right leg")
LIMBS: Mapping[str, tuple[str, str]] = {
    "left arm": ("left_shoulder", "left_wrist"),
    "right arm": ("right_shoulder", "right_wrist"),
    "left leg": ("left_hip", "left_ankle"),
    "right leg": ("right_hip", "right_ankle"),
}
"""First and last joint of each limb."""

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

STILL = 0.05
"""Speed below which a person stands still, in terms of what is usual at the place."""
CLEARLY = 1.15
"""Ratio from which a size or a speed is said to be so many times another."""
HARDLY = 0.01
"""Share of normal windows that look as unusual, below which hardly anybody was there."""


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
    """Phrase for a subject that is not a part of the body."""

    @property
    def says(self) -> str:
        """The phrase, such as `left arm raised and moving 3x faster than normal`."""
        if self.phrase:
            return self.phrase
        said = list(self.adjectives)
        if self.speed is not None and self.speed < 1:
            said.append("moving less than half as fast as normal")
        elif self.speed is not None:
            times = f"more than {MOST:g}" if self.speed > MOST else f"{self.speed:.2g}"
            said.append(f"moving {times}x faster than normal")
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
    if parts[0].contribution <= 0:
        return ()
    views = _View(observed, skeleton.joints), _View(ghost, skeleton.joints)
    # the whole body; lengths are in heights of the ghost
    height = max(float(np.median(np.ptp(ghost[..., 1], axis=1))), 1e-6)
    adjectives = _posture(*views, height)
    speed = _speed(views[0].centre, views[1].centre, height)
    found = []
    if adjectives or speed is not None:
        found.append(Finding(BODY, adjectives, speed, int(frames[0]), int(frames[-1])))
    # the parts that contribute most, each in its strongest frames
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
class ViewedNumbers:
    """The numbers of a window, of its nearest normal one, and of normal footage.

    `seen` and `normal` are in the order of the view; `usual (meanings, quantiles)` are the
    quantiles of amounts in a motion.
    """

    seen: NDArray[np.float64]
    normal: NDArray[np.float64]
    usual: NDArray[np.float64]
    rarity: float
    """Share of normal windows that look as unusual to the view."""
    n_normal: int
    """Normal windows that the model has seen."""

    def motion(self, meaning: str) -> str:
        """A phrase for what is unusual about one meaning of the motion; a verb comes first."""
        # a number, or the length of a pair, beside that of all footage
        which = [*MEANINGS["motion"][meaning]]
        usual = self.usual[[*MEANINGS["motion"]].index(meaning)]
        value = float(np.linalg.norm(self.seen[which]) if len(which) > 1 else self.seen[which[0]])
        more, than = _compared(value, usual)
        match meaning:
            case "speed" if more:
                times = value / usual[-1] if usual[-1] > 0 else np.inf
                much = f"{times:.2g}x as fast as" if times >= CLEARLY else "faster than"
                much = f"more than {MOST:g}x as fast as" if times > MOST else much
                return f"crosses the picture {much} {than}"
            case "speed" if more is False:
                return f"moves more slowly than {than}"
            case "speed":
                return f"{_way(self.seen[which])} as few people do"
            case "growth" if more is not None:
                return f"gets {'larger' if more else 'smaller'} in the picture faster than {than}"
            case "width" if more is not None:
                return f"is {'wider' if more else 'narrower'} for the height than {than}"
        return f"moves with an unusual {meaning}"

    def place(self, meaning: str, *, leads: bool) -> str:
        """A phrase for one meaning of the place, which `leads` if it contributes most."""
        match meaning:
            case "size":
                times = float(np.exp(self.seen[2] - self.normal[2]))
                if times >= CLEARLY:
                    return f"is {times:.2g}x as large as people are there"
                if times <= 1 / CLEARLY:
                    return f"is only {100 * times:.0f} % as large as people are there"
                return "has an unusual size for the place"
            case "width":
                wide = "wider" if self.seen[3] > self.normal[3] else "narrower"
                return f"is {wide} for the height than people are there"
        if not leads or self.rarity > HARDLY:
            return "is in an unusual place"
        nobody = self.rarity * self.n_normal < 1
        return f"is where {'nobody' if nobody else 'hardly anybody'} was before"


@dataclass(frozen=True, slots=True)
class BodyPart:
    """The contribution of a part of the body to a score, and the frames with most of it.

    With several views also that of what motion and place mean, such as the speed.
    """

    name: str
    contribution: float
    share: float
    """Fraction of all contributions that raise the score; 0 for a part that lowers it."""
    first_frame: int
    last_frame: int


def rank(
    contributions: NDArray[np.float64],
    frames: NDArray[np.int64],
    skeleton: Skeleton,
    meanings: Mapping[str, float] | None = None,
) -> tuple[BodyPart, ...]:
    """Parts of the body by their contributions `(T, V)`, and `meanings`, the largest first."""
    # contributions by part and frame, (T,) each; a meaning has no frame of its own
    over_time = {
        name: contributions[:, joints].sum(axis=1) for name, joints in parts_of(skeleton).items()
    }
    for name, total in (meanings or {}).items():
        over_time[name] = np.full(len(frames), total / len(frames))
    raising = sum(max(float(part.sum()), 0.0) for part in over_time.values())
    found = []
    for name, part in over_time.items():
        total = float(part.sum())
        share = max(total, 0.0) / raising if raising > 0 else 0.0
        first, last = strong_span(part)
        found.append(BodyPart(name, total, share, int(frames[first]), int(frames[last])))
    return tuple(sorted(found, key=lambda part: -part.contribution))


def parts_of(skeleton: Skeleton) -> dict[str, list[int]]:
    """Joint numbers by part; a joint outside all parts is a part of its own."""
    parts: dict[str, list[int]] = {name: [] for name in PARTS}
    for number, joint in enumerate(skeleton.joints):
        parts.setdefault(part_of(joint), []).append(number)
    return {name: numbers for name, numbers in parts.items() if numbers}


def part_of(joint: str) -> str:
    """The part of the body that a joint belongs to by its name, or the name in words.

    >>> part_of("left_elbow"), part_of("right_big_toe"), part_of("tail_tip")
    ('left arm', 'right leg', 'tail tip')
    """
    words = joint.split("_")
    part = next((part for part, known in PART_WORDS.items() if known & {*words}), None)
    if part in ("leg", "arm"):
        side = next((side for side in ("left", "right") if side in words), None)
        part = part and side and f"{side} {part}"
    return part or " ".join(words)


def strong_span(over_time: NDArray[np.float64]) -> tuple[int, int]:
    """First and last frame that contribute at least a third of the strongest one."""
    if over_time.max() <= 0:
        return 0, len(over_time) - 1
    strong = np.flatnonzero(over_time >= over_time.max() / 3)
    return int(strong[0]), int(strong[-1])


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A motion with access to the joints that phrases mention, if the skeleton has them."""

    motion: MotionArray
    joints: tuple[str, ...]

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
        # the left and the right shoulder have clearly swapped sides
        both = [v.joint("left_shoulder") - v.joint("right_shoulder") for v in (observed, ghost)]
        across, usual = (float(np.median(way[:, 0])) for way in both)
        wide = min(abs(across), abs(usual)) >= ACROSS * height
        if "lying" not in found and across * usual < 0 and wide:
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


def _compared(value: float, usual: NDArray[np.float64]) -> tuple[bool | None, str]:
    """Tell if there is clearly more or less of something, and than whom; None if neither."""
    least, few, most, highest = usual
    if value > most:
        return True, "anybody before" if value > highest else "99 % of people"
    if value < few:
        return False, "anybody before" if value < least else "99 % of people"
    return None, ""


def _way(velocity: NDArray[np.float64]) -> str:
    """The direction of a person in the picture."""
    across, down = velocity.tolist()
    if np.hypot(across, down) < STILL:
        return "stands still"
    if abs(across) >= abs(down):
        return "goes to the right" if across > 0 else "goes to the left"
    return "goes down in the picture" if down > 0 else "goes up in the picture"
