"""Synthetic people in front of a camera: they walk and stand, and act abnormally in test clips."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError, Report, silent
from stepvad.evaluation import datasets
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.walker_motion import (
    FPS,
    IMAGE_SIZE,
    Floats,
    GroundCamera,
    WalkerMotion,
    drift,
    move,
    world_joints,
)
from stepvad.evaluation.walker_motion import WalkerEvent as Event
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17

__all__ = ["EVENTS", "FPS", "Event", "make", "make_clips", "write_dataset"]

SUFFIX = "_alphapose_tracked_person.json"
"""Suffix of ShanghaiTech's pose files after the name of the clip."""

CAMERAS = 4
"""Number of cameras, used in turn; training and test clips share them."""
EVENTS: tuple[Event | None, ...] = (
    "run", "fall", "cycle", "backwards", "crouch", "fight", None
)  # fmt: skip
"""Events of the test clips, in turn."""
SEGMENT_S = 12.0
"""Longer clips are divided into parts of about this length, each with its own people and event."""

FIRST_LEG_JOINT = COCO17.joints.index("left_hip")
"""First joint hidden by an obstacle that covers the legs."""


def make(
    *, seed: int, train_clips: int, test_clips: int, seconds: float = 12.0, people: int = 4
) -> Dataset:
    """Create a data set of walkers; reproducible byte for byte.

    Test clips are generated immediately and kept in memory, training clips each time they are
    read.
    """
    clips = partial(make_clips, seed=seed, seconds=seconds, people=people)
    return datasets.of_clips(
        f"walkers of seed {seed}",
        train=lambda: sorted((clip for clip, _ in clips(train_clips)), key=lambda clip: clip.name),
        test=clips(test_clips, anomalies=True),
    )


def write_dataset(
    directory: Path | str,
    *,
    seed: int,
    train_clips: int,
    test_clips: int,
    seconds: float = 12.0,
    report: Report = silent,
) -> None:
    """Write the data set of `make` in ShanghaiTech's layout, with poses in AlphaPose's format."""
    dataset = make(seed=seed, train_clips=train_clips, test_clips=test_clips, seconds=seconds)
    datasets.write_dataset(dataset, directory, suffix=SUFFIX, report=report)


def make_clips(
    n_clips: int, *, seed: int, seconds: float = 12.0, people: int = 4, anomalies: bool = False
) -> Iterator[tuple[Clip, FrameLabels]]:
    """Yield clips of one to `people` people, with labels; all normal without `anomalies`.

    Reproducible byte for byte, and a clip does not depend on the number of clips. With anomalies,
    the first person of a clip performs the next of `EVENTS`.
    """
    if n_clips < 0 or people < 0 or not 1 / FPS <= seconds < np.inf:
        raise DataError(
            f"walkers: expected no negative number of clips or people, and clips of one frame or "
            f"more, got {n_clips} clips, {people} people, {seconds} s",
            hint=f"a frame lasts {1 / FPS} s",
        )
    for number in range(n_clips):
        scene = number % CAMERAS
        camera = GroundCamera.of_scene(np.random.default_rng([seed, scene]))
        rng = np.random.default_rng([seed, scene, number, int(anomalies)])
        name = f"{scene + 1:02d}_{number + 1:04d}"
        event = EVENTS[number % len(EVENTS)] if anomalies else None
        yield _make_clip(name, rng, camera, round(seconds * FPS), people, event)


def confidence_of(rng: np.random.Generator, motion: WalkerMotion) -> Floats:
    """Confidence `(n, 17)`: lower on the far side, for a face turned away, and behind obstacles."""
    n, n_joints = len(motion.heading), COCO17.V
    to_camera = np.arctan2(-motion.position[:, 1], -motion.position[:, 0])
    view = motion.heading - to_camera  # 0: facing the camera
    hidden = np.zeros((n, n_joints))
    for joint, name in enumerate(COCO17.joints):
        side = 1 if name.startswith("left") else -1 if name.startswith("right") else 0
        hidden[:, joint] = np.maximum(side * np.sin(view), 0) * 0.2
        if name.endswith(("nose", "eye")):
            hidden[:, joint] += np.maximum(-np.cos(view), 0) * 0.4
    confidence = 0.93 - hidden + 0.04 * drift(rng, n, n_joints, 8)
    for _ in range(rng.poisson(n / (8 * FPS))):  # about one obstacle per eight seconds
        start, length = rng.integers(n), round(rng.uniform(0.2, 1.0) * FPS)
        first_joint = rng.choice([0, FIRST_LEG_JOINT])  # the whole body, or the legs
        confidence[start : start + length, first_joint:] *= rng.uniform(0.1, 0.5)
    return np.clip(confidence, 0.02, 0.99)


def keypoint_errors(rng: np.random.Generator, confidence: Floats, scale: Floats) -> Floats:
    """Keypoint errors `(n, 17, 2)` in pixels, larger for lower confidence."""
    course = [drift(rng, len(confidence), COCO17.V, 3) for _ in range(2)]
    return (0.13 * scale * (1 - confidence))[..., None] * np.stack(course, axis=-1)


def missed_frames(rng: np.random.Generator, confidence: Floats) -> NDArray[np.bool_]:
    """Mask `(n,)` of missed frames: one in a hundred, one in ten behind an obstacle."""
    return rng.random(len(confidence)) < np.where(confidence.mean(axis=1) < 0.5, 0.1, 0.01)


def _make_clip(
    name: str,
    rng: np.random.Generator,
    camera: GroundCamera,
    n_frames: int,
    people: int,
    event: Event | None,
) -> tuple[Clip, FrameLabels]:
    """One clip in which the first person of each part performs `event`, if any."""
    tracks: list[Track] = []
    abnormal = np.zeros(n_frames, dtype=np.bool_)
    # long clips are divided into parts, at least one
    n_parts = max(round(n_frames / (SEGMENT_S * FPS)), 1)
    edges = [n_frames * part // n_parts for part in range(n_parts + 1)]
    for segment in (range(first, end) for first, end in pairwise(edges)):
        for person in range(rng.integers(1, people, endpoint=True) if people else 0):
            doing = event if person == 0 else None
            track, acting = _see(rng, camera, n_frames, segment, doing, len(tracks) + 1)
            tracks.append(track)
            abnormal |= acting
    clip = Clip(name, FPS, n_frames, tuple(track for track in tracks if len(track)), COCO17)
    classes = {str(event): abnormal} if abnormal.any() else {}
    return clip, FrameLabels(abnormal, np.ones(n_frames, dtype=np.bool_), classes)


def _see(
    rng: np.random.Generator,
    camera: GroundCamera,
    n_frames: int,
    segment: range,
    event: Event | None,
    number: int,
) -> tuple[Track, NDArray[np.bool_]]:
    """One person as detected by the pose estimator, and the mask `(n,)` of abnormal frames."""
    # the true motion, in pixels (n, 17, 2); who is mostly outside the picture is not seen
    motion = move(rng, camera, n_frames, segment, event)
    pixels, scale = camera.project(world_joints(rng, motion))
    inside = ((pixels >= 0) & (pixels < IMAGE_SIZE)).all(axis=-1).mean(axis=1) >= 0.6
    seen = motion.present & inside
    # the estimator misses some poses, and errs where it is uncertain
    confidence = confidence_of(rng, motion)
    frames = np.flatnonzero(seen & ~missed_frames(rng, confidence))
    keypoints = pixels + keypoint_errors(rng, confidence, scale)
    track = Track(number, frames, np.round(keypoints[frames], 2), np.round(confidence[frames], 3))
    return track, motion.abnormal & seen
