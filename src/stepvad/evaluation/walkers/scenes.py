"""Clips of people in front of one of a few cameras, with frame labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.walkers import body, estimator
from stepvad.evaluation.walkers.camera import SIZE, GroundCamera
from stepvad.evaluation.walkers.motion import FPS, WalkerEvent, move
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17

CAMERAS = 4
"""Number of cameras, used in turn; training and test clips share them."""
EVENTS: tuple[WalkerEvent | None, ...] = (
    "run", "fall", "cycle", "backwards", "crouch", "fight", None
)  # fmt: skip
"""Events of the test clips, in turn."""
SEGMENT_S = 12.0
"""Longer clips are divided into parts of about this length, each with its own people and event."""


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


def _make_clip(
    name: str,
    rng: np.random.Generator,
    camera: GroundCamera,
    n_frames: int,
    people: int,
    event: WalkerEvent | None,
) -> tuple[Clip, FrameLabels]:
    """One clip in which the first person of each part performs `event`, if any."""
    tracks: list[Track] = []
    abnormal = np.zeros(n_frames, dtype=np.bool_)
    for segment in _segments(n_frames):
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
    event: WalkerEvent | None,
    number: int,
) -> tuple[Track, NDArray[np.bool_]]:
    """One person as detected by the pose estimator, and the mask `(n,)` of abnormal frames."""
    motion = move(rng, camera, n_frames, segment, event)
    pixels, scale = camera.project(body.joints(rng, motion))
    inside = ((pixels >= 0) & (pixels < SIZE)).all(axis=-1).mean(axis=1) >= 0.6
    seen = motion.present & inside
    confidence = estimator.confidence_of(rng, motion)
    frames = np.flatnonzero(seen & ~estimator.missed(rng, confidence))
    keypoints = pixels + estimator.error(rng, confidence, scale)
    track = Track(number, frames, np.round(keypoints[frames], 2), np.round(confidence[frames], 3))
    return track, motion.abnormal & seen


def _segments(n_frames: int) -> list[range]:
    """Divide the clip into parts of about `SEGMENT_S`, at least one."""
    n_parts = max(round(n_frames / (SEGMENT_S * FPS)), 1)
    edges = [n_frames * part // n_parts for part in range(n_parts + 1)]
    return [range(first, end) for first, end in pairwise(edges)]
