"""Motion and posture of synthetic people, and the camera that sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.skeletons import COCO17

WalkerEvent = Literal["run", "fall", "cycle", "backwards", "crouch", "fight"]
Floats = NDArray[np.float64]
FPS = 25.0
RUNNING = 2.2
"""A person runs at or above this speed, in m/s."""
BACKWARDS = -0.3
"""A person walks backwards at or below this speed, in m/s."""
ACTING = 0.3
"""A person crouches or fights at or above this level."""

ANKLE_M = 0.06
"""Height of the ankle when the foot is on the ground."""
SADDLE = 0.55
"""Height of the hips on a bicycle, in body heights."""

TRUNK = 0.288
"""From hips to shoulders, in body heights; all lengths are typical shares of the body height."""
LEG = (0.245, 0.245)
"""Thigh and shank."""
ARM = (0.186, 0.146)
"""Upper arm and forearm."""
CRANK = (0.13, -0.36)
"""Centre of the circle of a cyclist's ankles, ahead of and above the hips."""
PEDAL = 0.10
"""Radius of that circle."""
HANDLEBAR = (0.40, 0.09)
"""Position of a cyclist's wrists, ahead of and above the hips."""
SPEEDS = (0.0, 1.3, 3.6)
"""Standing, walking and running, in m/s; the gait below is interpolated linearly."""
GAIT = {
    "cycles": (0.3, 0.93, 1.45),  # per second
    "hip": (1.0, 24.0, 42.0),  # swing to each side; this and all below in degrees
    "knee": (2.0, 55.0, 95.0),
    "knee_rest": (4.0, 8.0, 25.0),
    "shoulder": (2.0, 20.0, 42.0),
    "elbow": (2.0, 8.0, 15.0),
    "elbow_rest": (14.0, 20.0, 80.0),
    "lean": (1.0, 3.0, 12.0),
}
"""Cadence, and swing of the joints."""
LEFT_RIGHT = np.array([0.0, np.pi])
"""Phases of left and right: legs, arms and pedals are half a cycle apart."""

IMAGE_SIZE = (1280, 720)
"""Width and height of the image in pixels."""


@dataclass(frozen=True, slots=True)
class WalkerMotion:
    """Motion of one person in n frames, all `(n,)` except `position (n, 2)` in metres.

    `heading` is the facing direction in radians; `speed` is in m/s along it, negative backwards;
    `level` ranges from 0 (upright, as usual) to 1 (lying, crouched, fighting, on a bicycle).
    """

    position: Floats
    heading: Floats
    speed: Floats
    event: WalkerEvent | None
    level: Floats
    present: NDArray[np.bool_]

    @property
    def abnormal(self) -> NDArray[np.bool_]:
        """Mask `(n,)` of the frames in which the person performs `event`."""
        match self.event:
            case "run":
                return self.speed >= RUNNING
            case "backwards":
                return self.speed <= BACKWARDS
            case "fall":
                return self.level > 0
            case _:
                return self.level >= ACTING


def move(
    rng: np.random.Generator,
    camera: GroundCamera,
    n: int,
    segment: range,
    event: WalkerEvent | None,
) -> WalkerMotion:
    """A person who enters and leaves; the event is in the middle of the stay, within `segment`."""
    middle = segment.start + int(len(segment) * rng.uniform(0.15, 0.85))
    born, gone = middle - rng.uniform(2, 12) * FPS, middle + rng.uniform(2, 12) * FPS
    if event == "fall":
        gone = middle + min(rng.uniform(2.5, 4.5) * FPS, 0.4 * len(segment))
    elif event == "cycle":  # a bicycle passes by
        born, gone = middle - rng.uniform(1, 3) * FPS, middle + rng.uniform(1, 3) * FPS
    reach = round(min(rng.uniform(1.0, 2.5) * FPS, 0.3 * len(segment)))
    speed, level = _act(rng, n, middle, reach, event)
    speed = moving_mean(speed, round(0.5 * FPS))
    # the path: steps along a heading that wanders, through a point in view at the event, (n, 2)
    lying = level > 0 if event == "fall" else np.zeros(n, dtype=np.bool_)
    turn = drift(rng, n, 1, 20)[:, 0] * np.minimum(0.03 * np.abs(speed), 0.04) * ~lying
    heading = rng.uniform(0, 2 * np.pi) + np.cumsum(turn) - np.sum(turn[: middle + 1])
    step = speed[:, None] / FPS * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    path = np.cumsum(step, axis=0)
    present = (np.arange(n) >= born) & (np.arange(n) < gone)
    position = path - path[middle] + camera.ground_in_view(rng)
    return WalkerMotion(position, heading, speed, event, level, present)


def world_joints(rng: np.random.Generator, motion: WalkerMotion) -> Floats:
    """COCO-17 joints in the world, `(n, 17, 3)` in metres.

    The lowest joint is on the ground; a cyclist sits on a saddle above it.
    """
    height_m, toward = rng.uniform(1.55, 1.92), rng.uniform(0, 2 * np.pi)
    # joints about the hips, then on the ground or on the saddle, (n, 17, 3)
    body = height_m * _about_the_hips(posture_of(rng, motion))
    if motion.event == "cycle":
        body[..., 2] += SADDLE * height_m
    else:
        body[..., 2] -= body[..., 2].min(axis=1, keepdims=True) - ANKLE_M
    if motion.event == "fall":
        body = _topple(body, motion.level, toward=toward)
    # turned into the heading, and moved to where the person is
    cos, sin = np.cos(motion.heading)[:, None], np.sin(motion.heading)[:, None]
    ahead, left, up = np.moveaxis(body, -1, 0)
    x = motion.position[:, :1] + cos * ahead - sin * left
    y = motion.position[:, 1:] + sin * ahead + cos * left
    return np.stack([x, y, up], axis=-1)


@dataclass(frozen=True, slots=True)
class Posture:
    """Angles in degrees: `lean (n,)` of the trunk, all others `(n, 2)`, left and right.

    Lean, thigh and arm are forward of the vertical; knees bend backwards, elbows forwards; `out`
    is the sideways angle of the arms.
    """

    lean: Floats
    thigh: Floats
    knee: Floats
    arm: Floats
    elbow: Floats
    out: Floats

    def towards(self, other: Posture, level: Floats) -> Posture:
        """A posture between this one (level 0) and another (level 1), frame by frame."""
        both = level[:, None]
        return Posture(
            self.lean + level * (other.lean - self.lean),
            self.thigh + both * (other.thigh - self.thigh),
            self.knee + both * (other.knee - self.knee),
            self.arm + both * (other.arm - self.arm),
            self.elbow + both * (other.elbow - self.elbow),
            self.out + both * (other.out - self.out),
        )


def posture_of(rng: np.random.Generator, motion: WalkerMotion) -> Posture:
    """The posture of a person in every frame."""
    usual = _gait(rng, motion)
    match motion.event:
        case "fall":
            return _crumpled(usual, motion.level)
        case "crouch":
            return usual.towards(_crouch(rng, usual), motion.level)
        case "fight":
            return usual.towards(_fight(rng, usual), motion.level)
        case "cycle":
            return _ride(rng, len(motion.level))
        case _:
            return usual


def drift(rng: np.random.Generator, n: int, columns: int, width: int) -> NDArray[np.float64]:
    """Noise `(n, columns)` of unit variance that decorrelates within `width` frames."""
    total = np.cumsum(rng.standard_normal((n + width, columns)), axis=0)
    return (total[width:] - total[:-width]) / np.sqrt(width)


def moving_mean(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Mean over `width` frames around each frame, with the ends repeated."""
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")


@dataclass(frozen=True, slots=True)
class GroundCamera:
    """A pinhole camera above the ground, looking along +y and down by `tilt` radians."""

    height_m: float
    tilt: float
    focal_px: float

    @classmethod
    def of_scene(cls, rng: np.random.Generator) -> GroundCamera:
        """A random surveillance camera: 3 to 5 m up, tilted by 11 to 17 degrees."""
        return cls(rng.uniform(3.0, 5.0), np.radians(rng.uniform(11, 17)), rng.uniform(850, 1100))

    def project(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Pixels `(…, 2)` of points `(…, 3)` in metres, z up, and pixels per metre there `(…)`."""
        x, y, below = points[..., 0], points[..., 1], self.height_m - points[..., 2]
        # along the optical axis, and below it
        depth = np.maximum(y * np.cos(self.tilt) + below * np.sin(self.tilt), 0.1)
        down = below * np.cos(self.tilt) - y * np.sin(self.tilt)
        scale = self.focal_px / depth
        pixels = np.stack(
            [IMAGE_SIZE[0] / 2 + scale * x, IMAGE_SIZE[1] / 2 + scale * down], axis=-1
        )
        return pixels, scale

    def ground_in_view(self, rng: np.random.Generator) -> tuple[float, float]:
        """A random ground point well inside the image, 8 to 15 m away: x and y in metres."""
        y = rng.uniform(8, 15)
        return rng.uniform(-0.3, 0.3) * IMAGE_SIZE[0] * y / self.focal_px, y


def _act(
    rng: np.random.Generator, n: int, middle: int, reach: int, event: WalkerEvent | None
) -> tuple[Floats, Floats]:
    """Unsmoothed speed `(n,)`, and level `(n,)`."""
    speed, level = _walk_and_stand(rng, n), np.zeros(n)
    during = slice(max(middle - reach, 0), middle + reach)
    match event:
        case "run":
            speed[during] = rng.uniform(3.0, 4.5)
        case "backwards":
            speed[during] = -rng.uniform(0.8, 1.3)
        case "fall":
            speed[middle:] = 0.0
            level = np.clip((np.arange(n) - middle) / (rng.uniform(0.6, 1.0) * FPS), 0, 1) ** 2
        case "cycle":
            speed[:], level[:] = rng.uniform(2.5, 4.5), 1.0
        case "crouch" | "fight":
            speed[during], level[during] = rng.uniform(0, 0.5), 1.0
            level = moving_mean(level, round(0.7 * FPS))
        case None:
            pass
    return speed, level


def _walk_and_stand(rng: np.random.Generator, n: int) -> Floats:
    """Speed `(n,)` of a person who alternately walks and stands for some seconds."""
    pace, walking, pieces = rng.uniform(1.0, 1.6), bool(rng.random() < 0.75), [np.empty(0)]
    while sum(map(len, pieces)) < n:
        duration_s = rng.uniform(3, 8) if walking else rng.uniform(1, 4)
        pieces.append(np.full(round(duration_s * FPS), pace if walking else 0.0))
        walking = not walking
    return np.concatenate(pieces)[:n]


def _about_the_hips(pose: Posture) -> Floats:
    """Joints relative to the middle of the hips, `(n, 17, 3)` ahead, left, up, in body heights."""
    lean = np.radians(pose.lean)
    spine = np.stack([np.sin(lean), np.zeros_like(lean), np.cos(lean)], axis=1)
    brow = np.array([np.cos(0.1), 0, -np.sin(0.1)])
    found = {"nose": 0.40 * spine + 0.065 * brow}
    for number, (side, sign) in enumerate((("left", 1), ("right", -1))):
        across = np.array([0, sign, 0])  # from the spine to this side
        hip = np.tile(0.055 * across, (len(lean), 1))
        shoulder = TRUNK * spine + 0.115 * across
        thigh, arm = pose.thigh[:, number], pose.arm[:, number]
        knee, ankle = _limb(hip, LEG, (thigh, thigh - pose.knee[:, number]))
        out = sign * pose.out[:, number]
        elbow, wrist = _limb(shoulder, ARM, (arm, arm + pose.elbow[:, number]), out)
        found[f"{side}_hip"], found[f"{side}_knee"], found[f"{side}_ankle"] = hip, knee, ankle
        found[f"{side}_shoulder"] = shoulder
        found[f"{side}_elbow"], found[f"{side}_wrist"] = elbow, wrist
        found[f"{side}_eye"] = 0.42 * spine + 0.05 * brow + 0.02 * across
        found[f"{side}_ear"] = 0.41 * spine + 0.045 * across
    return np.stack([found[name] for name in COCO17.joints], axis=1)


def _limb(
    root: Floats,
    lengths: tuple[float, float],
    angles: tuple[Floats, Floats],
    out: Floats | float = 0.0,
) -> tuple[Floats, Floats]:
    """Ends of two bones that hang from `root`, each at an angle forward of straight down.

    `out` is the angle of the upper bone to the left; the lower bone returns by half of it.
    """
    ends = []
    for length, angle, side in zip(lengths, np.radians(angles), (out, -0.5 * out), strict=True):
        cos, sin = np.cos(np.radians(side)), np.sin(np.radians(side))
        across = np.broadcast_to(sin, angle.shape)
        root = root + length * np.stack([cos * np.sin(angle), across, -cos * np.cos(angle)], axis=1)
        ends.append(root)
    return ends[0], ends[1]


def _topple(body: Floats, fallen: Floats, *, toward: float) -> Floats:
    """Rotate a body about its feet until it lies with its head in the direction `toward`."""
    angle = np.radians(88) * fallen[:, None]
    direction = np.array([np.cos(toward), np.sin(toward)])
    along, up = body[..., :2] @ direction, body[..., 2]
    # rotation in the plane of the fall; nothing sinks below the ground
    moved = along * np.cos(angle) + up * np.sin(angle) - along
    height = np.maximum(up * np.cos(angle) - along * np.sin(angle), 0.0) + 0.1 * np.sin(angle)
    return np.concatenate([body[..., :2] + moved[..., None] * direction, height[..., None]], axis=2)


def _gait(rng: np.random.Generator, motion: WalkerMotion) -> Posture:
    """Posture of walking and running; backwards is walking played in reverse."""
    pace = np.abs(motion.speed)
    gait = {k: rng.normal(1, 0.08) * np.interp(pace, SPEEDS, v)[:, None] for k, v in GAIT.items()}
    cycles = np.where(motion.speed[:, None] < 0, -1, 1) * gait["cycles"]
    beat = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.cumsum(cycles, axis=0) / FPS + LEFT_RIGHT
    unrest = 2.0 * drift(rng, len(pace), 5, 25)
    return Posture(
        lean=gait["lean"][:, 0] + unrest[:, 4],
        thigh=gait["hip"] * (np.sin(beat) + 0.3),
        knee=gait["knee_rest"] + gait["knee"] * np.maximum(np.cos(beat + 0.2), 0) ** 1.5,
        arm=-gait["shoulder"] * np.sin(beat) + unrest[:, :2],
        elbow=gait["elbow_rest"] - gait["elbow"] * np.sin(beat) + unrest[:, 2:4],
        out=np.zeros_like(beat),
    )


def _crumpled(usual: Posture, fallen: Floats) -> Posture:
    """Posture during a fall: the knees buckle and the arms reach out."""
    crumple = 4 * fallen * (1 - fallen)
    return Posture(
        lean=usual.lean + 20 * crumple,
        thigh=usual.thigh + 30 * crumple[:, None],
        knee=usual.knee + 60 * crumple[:, None],
        arm=usual.arm + 50 * fallen[:, None],
        elbow=usual.elbow,
        out=30 * fallen[:, None] + usual.out,
    )


def _crouch(rng: np.random.Generator, usual: Posture) -> Posture:
    """Posture of crouching: hips almost on the heels, trunk forward, arms on the knees."""
    deep = rng.uniform(0.85, 1.0)
    return Posture(
        lean=30 + usual.lean,
        thigh=deep * np.array([90.0, 80.0]) + 0.3 * usual.thigh,
        knee=deep * np.array([128.0, 122.0]) + 0.3 * usual.knee,
        arm=30 + 0.3 * usual.arm,
        elbow=35 + 0.3 * usual.elbow,
        out=10 + usual.out,
    )


def _fight(rng: np.random.Generator, usual: Posture) -> Posture:
    """Posture of fighting: fists in front of the face, alternating punches."""
    n = len(usual.lean)
    pace = rng.uniform(1.2, 2.0) * (1 + 0.15 * drift(rng, n, 1, 10))
    beat = 2 * np.pi * np.cumsum(pace, axis=0) / FPS + LEFT_RIGHT
    blow = np.maximum(np.sin(beat), 0) ** 1.5
    return Posture(
        lean=6 + usual.lean,
        thigh=0.5 * usual.thigh + np.array([18.0, -12.0]),
        knee=15 + 0.5 * usual.knee,
        arm=45 + 60 * blow + 0.3 * usual.arm,
        elbow=120 - 110 * blow,
        out=35 - 25 * blow,
    )


def _ride(rng: np.random.Generator, n: int) -> Posture:
    """Posture of cycling: feet on the pedals, hands on the handlebar."""
    lean = rng.uniform(28, 36) + 1.5 * drift(rng, n, 1, 25)[:, 0]
    turns = rng.uniform(0.8, 1.4) * np.arange(1, n + 1) / FPS
    beat = rng.uniform(0, 2 * np.pi) + 2 * np.pi * turns[:, None] + LEFT_RIGHT
    ankle = np.stack([CRANK[0] + PEDAL * np.sin(beat), CRANK[1] + PEDAL * np.cos(beat)], axis=-1)
    shoulder = TRUNK * np.stack([np.sin(np.radians(lean)), np.cos(np.radians(lean))], axis=-1)
    thigh, knee = _reach(ankle, LEG, side=1)
    arm, elbow = _reach(HANDLEBAR - shoulder[:, None], ARM, side=-1)
    arm, elbow = np.repeat(arm, 2, axis=1), np.repeat(elbow, 2, axis=1)
    return Posture(lean, thigh, knee, arm, elbow, np.zeros_like(arm))


def _reach(
    target: Floats, lengths: tuple[float, float], *, side: Literal[1, -1]
) -> tuple[Floats, Floats]:
    """Angle of the upper of two bones and the bend between them that put their end at `target`.

    `target (…, 2)` is ahead of and above the root; the joint in between lies in front of the
    straight line (side 1, a knee) or behind it (-1, an elbow).
    """
    # the law of cosines, in a triangle whose third side is the line to the target
    upper, lower = lengths
    distance = np.clip(np.linalg.norm(target, axis=-1), abs(upper - lower) + 1e-3, upper + lower)
    at_root = (upper**2 + distance**2 - lower**2) / (2 * upper * distance)
    at_joint = (upper**2 + lower**2 - distance**2) / (2 * upper * lower)
    line = np.arctan2(target[..., 0], -target[..., 1])
    inner, bend = np.arccos(np.clip([at_root, -at_joint], -1, 1))
    return np.degrees(line + side * inner), np.degrees(bend)
