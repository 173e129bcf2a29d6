"""Kinematic people before a camera: they walk and stand, and in test clips run or fall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.formats import alphapose
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip, Track
from stepvad.progress import Progress, Report, silent
from stepvad.skeletons import COCO17

Event = Literal["run", "fall"]
Floats = NDArray[np.float64]

FPS = 25.0
SIZE = (1280, 720)
"""Width and height of the picture in pixels."""
CAMERAS = 4
"""Cameras that take turns; training and test clips share them."""
EVENTS: tuple[Event | None, ...] = ("run", "fall", "run", "fall", None)
"""What happens in one test clip after the other."""
RUNNING = 2.2
"""From this speed on, in m/s, a person runs."""

SPEEDS = (0.0, 1.3, 3.6)
"""Standing, walking and running, in m/s; the gait below is linear between them."""
GAIT = {
    "cycles": (0.3, 0.93, 1.45),  # per second
    "hip": (1.0, 24.0, 42.0),  # swing to each side, and all below: degrees
    "knee": (2.0, 55.0, 95.0),
    "knee_rest": (4.0, 8.0, 25.0),
    "shoulder": (2.0, 20.0, 42.0),
    "elbow": (2.0, 8.0, 15.0),
    "elbow_rest": (14.0, 20.0, 80.0),
    "lean": (1.0, 3.0, 12.0),
}
"""Cadence, and how far the joints swing."""


@dataclass(frozen=True, slots=True)
class Camera:
    """A pinhole camera above the ground, looking along +y and down by `tilt` radians."""

    height_m: float
    tilt: float
    focal_px: float

    @classmethod
    def of_scene(cls, rng: np.random.Generator) -> Camera:
        """A surveillance camera: 3 to 5 m up, tilted by 11 to 17 degrees."""
        return cls(rng.uniform(3.0, 5.0), np.radians(rng.uniform(11, 17)), rng.uniform(850, 1100))

    def project(self, points: Floats) -> tuple[Floats, Floats]:
        """Pixels `(…, 2)` of points `(…, 3)` in metres, z up, and pixels per metre there `(…)`."""
        x, y, below = points[..., 0], points[..., 1], self.height_m - points[..., 2]
        depth = np.maximum(y * np.cos(self.tilt) + below * np.sin(self.tilt), 0.1)
        down = below * np.cos(self.tilt) - y * np.sin(self.tilt)
        scale = self.focal_px / depth
        pixels = np.stack([SIZE[0] / 2 + scale * x, SIZE[1] / 2 + scale * down], axis=-1)
        return pixels, scale


@dataclass(frozen=True, slots=True)
class Motion:
    """What one person does in each of n frames, all `(n,)` but the `position (n, 2)` in metres.

    `heading` is in radians, `speed` in m/s, `fallen` goes from 0 (upright) to 1 (lying).
    """

    position: Floats
    heading: Floats
    speed: Floats
    fallen: Floats
    present: NDArray[np.bool_]

    @property
    def abnormal(self) -> NDArray[np.bool_]:
        """Whether the person runs, falls or lies."""
        return (self.speed >= RUNNING) | (self.fallen > 0)


def make_clips(
    n_clips: int, *, seed: int, seconds: float = 12.0, people: int = 4, anomalies: bool = False
) -> Iterator[tuple[Clip, FrameLabels]]:
    """Clips of one person up to `people`, with their truth; without anomalies all is normal.

    The same arguments give the same bytes, and a clip does not depend on how many are made.
    """
    if n_clips < 0 or people < 0 or not 1 / FPS <= seconds < np.inf:
        raise DataError(
            f"walkers: expected no negative number of clips or people, and clips of one frame or "
            f"more, got {n_clips} clips, {people} people, {seconds} s",
            hint=f"a frame lasts {1 / FPS} s",
        )
    for number in range(n_clips):
        scene = number % CAMERAS
        camera = Camera.of_scene(np.random.default_rng([seed, scene]))
        rng = np.random.default_rng([seed, scene, number, int(anomalies)])
        name = f"{scene + 1:02d}_{number + 1:04d}"
        event = EVENTS[number % len(EVENTS)] if anomalies else None
        yield _make_clip(name, rng, camera, round(seconds * FPS), people, event)


def write_dataset(
    directory: Path | str,
    *,
    seed: int,
    train_clips: int,
    test_clips: int,
    seconds: float = 12.0,
    people: int = 4,
    report: Report = silent,
) -> None:
    """A data set in ShanghaiTech's layout: `pose/train`, `pose/test` and `gt/test_frame_mask`."""
    root = Path(directory)
    masks = root / "gt" / "test_frame_mask"
    for folder in (root / "pose" / "train", root / "pose" / "test", masks):
        folder.mkdir(parents=True, exist_ok=True)
    for split, n_clips in (("train", train_clips), ("test", test_clips)):
        clips = make_clips(
            n_clips, seed=seed, seconds=seconds, people=people, anomalies=split == "test"
        )
        for number, (clip, truth) in enumerate(clips, start=1):
            file = root / "pose" / split / f"{clip.name}_alphapose_tracked_person.json"
            alphapose.write(clip, file)
            if split == "test":
                np.save(masks / f"{clip.name}.npy", truth.abnormal.astype(np.uint8))
            report(Progress(f"{split} clips", number, n_clips, clip.name))


def _make_clip(
    name: str,
    rng: np.random.Generator,
    camera: Camera,
    n_frames: int,
    people: int,
    event: Event | None,
) -> tuple[Clip, FrameLabels]:
    """One clip in which the first person, if any, does what `event` says."""
    tracks = []
    abnormal = np.zeros(n_frames, dtype=np.bool_)
    for person in range(rng.integers(1, people, endpoint=True) if people else 0):
        motion = _move(rng, camera, n_frames, event if person == 0 else None)
        pixels, scale = camera.project(_joints(rng, motion))
        inside = ((pixels >= 0) & (pixels < SIZE)).all(axis=-1).mean(axis=1) >= 0.6
        seen = motion.present & inside
        abnormal |= motion.abnormal & seen
        confidence = _confidence(rng, motion)
        frames = np.flatnonzero(seen & ~_missed(rng, confidence))
        keypoints = pixels + _error(rng, confidence, scale)
        tracks.append(
            Track(
                person + 1,
                frames,
                np.round(keypoints[frames], 2),
                np.round(confidence[frames], 3),
            )
        )
    clip = Clip(name, FPS, n_frames, tuple(track for track in tracks if len(track)), COCO17)
    return clip, FrameLabels(abnormal, np.ones(n_frames, dtype=np.bool_))


def _move(rng: np.random.Generator, camera: Camera, n: int, event: Event | None) -> Motion:
    """Where a person is and what they do, from coming to going."""
    frames = np.arange(n)
    middle = int(n * rng.uniform(0.15, 0.85))
    born, gone = middle - rng.uniform(2, 12) * FPS, middle + rng.uniform(2, 12) * FPS
    speed, fallen = _walk_and_stand(rng, n), np.zeros(n)
    match event:
        case "run":
            reach = round(min(rng.uniform(1.0, 2.0) * FPS, 0.3 * n))
            speed[max(middle - reach, 0) : middle + reach] = rng.uniform(3.0, 4.5)
        case "fall":
            fallen = np.clip((frames - middle) / (rng.uniform(0.6, 1.0) * FPS), 0, 1) ** 2
            speed[middle:] = 0.0
            gone = middle + min(rng.uniform(2.5, 4.5) * FPS, 0.4 * n)
        case None:
            pass
    speed = _moving_mean(speed, round(0.5 * FPS))
    turn = np.cumsum(_drift(rng, n, 1, 20)[:, 0] * np.minimum(0.03 * speed, 0.04) * (fallen == 0))
    heading = rng.uniform(0, 2 * np.pi) + turn - turn[middle]
    step = speed[:, None] / FPS * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    path = np.cumsum(step, axis=0)
    y = rng.uniform(8, 15)
    x = rng.uniform(-0.3, 0.3) * SIZE[0] * y / camera.focal_px  # well inside the picture
    present = (frames >= born) & (frames < gone)
    return Motion(path - path[middle] + (x, y), heading, speed, fallen, present)


def _walk_and_stand(rng: np.random.Generator, n: int) -> Floats:
    """Speed `(n,)` of a person who walks for some seconds and stands for some, in turn."""
    pace, walking, pieces = rng.uniform(1.0, 1.6), bool(rng.random() < 0.75), [np.empty(0)]
    while sum(map(len, pieces)) < n:
        duration_s = rng.uniform(3, 8) if walking else rng.uniform(1, 4)
        pieces.append(np.full(round(duration_s * FPS), pace if walking else 0.0))
        walking = not walking
    return np.concatenate(pieces)[:n]


def _joints(rng: np.random.Generator, motion: Motion) -> Floats:
    """COCO-17 joints in the world, `(n, 17, 3)` in metres, the lowest one on the ground."""
    body = _swing(rng, motion) * rng.uniform(1.55, 1.92)
    body[..., 2] -= body[..., 2].min(axis=1, keepdims=True) - 0.06  # an ankle is 6 cm up
    body = _topple(body, motion.fallen, toward=rng.uniform(0, 2 * np.pi))
    cos, sin = np.cos(motion.heading)[:, None], np.sin(motion.heading)[:, None]
    ahead, left, up = np.moveaxis(body, -1, 0)
    x = motion.position[:, :1] + cos * ahead - sin * left
    y = motion.position[:, 1:] + sin * ahead + cos * left
    return np.stack([x, y, up], axis=-1)


def _swing(rng: np.random.Generator, motion: Motion) -> Floats:
    """Joints about the middle of the hips, `(n, 17, 3)` ahead, left and up, in body heights.

    Bone lengths follow the usual shares of body height (thigh and shank 0.245, arms 0.186, 0.146).
    """
    n = len(motion.speed)
    gait = {k: rng.normal(1, 0.08) * np.interp(motion.speed, SPEEDS, v) for k, v in GAIT.items()}
    phase = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.cumsum(gait["cycles"]) / FPS
    unrest = 2.0 * _drift(rng, n, 5, 25)
    crumple = 4 * motion.fallen * (1 - motion.fallen)
    lean = np.radians(gait["lean"] + unrest[:, 4] + 20 * crumple)
    spine = np.stack([np.sin(lean), np.zeros(n), np.cos(lean)], axis=1)
    brow = np.array([np.cos(0.1), 0, -np.sin(0.1)])
    joints = {"nose": 0.40 * spine + 0.065 * brow}
    for side, sign in (("left", 1), ("right", -1)):
        beat = phase if side == "left" else phase + np.pi
        across = np.array([0, sign, 0])
        thigh = gait["hip"] * np.sin(beat) + 0.3 * gait["hip"] + 30 * crumple
        bend = gait["knee_rest"] + gait["knee"] * np.maximum(np.cos(beat + 0.5), 0) ** 1.5
        shank = thigh - bend - 60 * crumple
        arm = -gait["shoulder"] * np.sin(beat) + unrest[:, sign] + 50 * motion.fallen
        forearm = arm + gait["elbow_rest"] - gait["elbow"] * np.sin(beat) + unrest[:, 2 + sign]
        hip = np.tile(0.055 * across, (n, 1))
        shoulder = 0.288 * spine + 0.115 * across
        joints[f"{side}_hip"], joints[f"{side}_shoulder"] = hip, shoulder
        joints[f"{side}_knee"], joints[f"{side}_ankle"] = _limb(hip, (0.245, 0.245), thigh, shank)
        joints[f"{side}_elbow"], joints[f"{side}_wrist"] = _limb(
            shoulder, (0.186, 0.146), arm, forearm
        )
        joints[f"{side}_eye"] = 0.42 * spine + 0.05 * brow + 0.02 * across
        joints[f"{side}_ear"] = 0.41 * spine + 0.045 * across
    return np.stack([joints[name] for name in COCO17.joints], axis=1)


def _limb(
    root: Floats, lengths: tuple[float, float], upper: Floats, lower: Floats
) -> tuple[Floats, Floats]:
    """Ends of two bones that hang from `root`, each at an angle forward of straight down."""
    ends = []
    for length, angle in zip(lengths, (np.radians(upper), np.radians(lower)), strict=True):
        bone = np.stack([np.sin(angle), np.zeros_like(angle), -np.cos(angle)], axis=1)
        root = root + length * bone
        ends.append(root)
    return ends[0], ends[1]


def _topple(body: Floats, fallen: Floats, *, toward: float) -> Floats:
    """Turn a body about its feet until it lies, its head in the direction `toward`."""
    angle = np.radians(88) * fallen[:, None]
    direction = np.array([np.cos(toward), np.sin(toward)])
    along, up = body[..., :2] @ direction, body[..., 2]
    moved = along * np.cos(angle) + up * np.sin(angle) - along
    height = np.maximum(up * np.cos(angle) - along * np.sin(angle), 0.0) + 0.1 * np.sin(angle)
    return np.concatenate([body[..., :2] + moved[..., None] * direction, height[..., None]], axis=2)


def _confidence(rng: np.random.Generator, motion: Motion) -> Floats:
    """Confidence `(n, 17)`: less for the far side, a face turned away, and behind obstacles."""
    n, n_joints = len(motion.heading), COCO17.V
    to_camera = np.arctan2(-motion.position[:, 1], -motion.position[:, 0])
    view = motion.heading - to_camera  # 0: walks towards the camera
    hidden = np.zeros((n, n_joints))
    for joint, name in enumerate(COCO17.joints):
        side = 1 if name.startswith("left") else -1 if name.startswith("right") else 0
        hidden[:, joint] = np.maximum(side * np.sin(view), 0) * 0.2
        if name.endswith(("nose", "eye")):
            hidden[:, joint] += np.maximum(-np.cos(view), 0) * 0.4
    confidence = 0.93 - hidden + 0.04 * _drift(rng, n, n_joints, 8)
    for _ in range(rng.poisson(n / (8 * FPS))):  # about one obstacle in eight seconds
        start, length = rng.integers(n), round(rng.uniform(0.2, 1.0) * FPS)
        first_joint = rng.choice([0, COCO17.joints.index("left_hip")])  # the whole body, or legs
        confidence[start : start + length, first_joint:] *= rng.uniform(0.1, 0.5)
    return np.clip(confidence, 0.02, 0.99)


def _error(rng: np.random.Generator, confidence: Floats, scale: Floats) -> Floats:
    """How far keypoints are off, `(n, 17, 2)` in pixels: the less confident, the further."""
    drift = [_drift(rng, len(confidence), COCO17.V, 3) for _ in range(2)]
    return (0.13 * scale * (1 - confidence))[..., None] * np.stack(drift, axis=-1)


def _missed(rng: np.random.Generator, confidence: Floats) -> NDArray[np.bool_]:
    """Frames without a detection, `(n,)`: one in a hundred, one in ten behind an obstacle."""
    return rng.random(len(confidence)) < np.where(confidence.mean(axis=1) < 0.5, 0.1, 0.01)


def _drift(rng: np.random.Generator, n: int, columns: int, width: int) -> Floats:
    """Noise `(n, columns)` of unit variance that forgets itself within `width` frames."""
    total = np.cumsum(rng.standard_normal((n + width, columns)), axis=0)
    return (total[width:] - total[:-width]) / np.sqrt(width)


def _moving_mean(values: Floats, width: int) -> Floats:
    """Mean over `width` frames around each, the ends repeated."""
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")
