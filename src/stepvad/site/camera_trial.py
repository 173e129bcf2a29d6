"""Try a camera before it is part of a site: one frame in a child process, seen as skeletons.

Pixels never leave that process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepvad.codec import decode, encode
from stepvad.errors import DataError, StepvadError, os_reason
from stepvad.intake.child_messages import ImageSide
from stepvad.intake.playback import open_scene
from stepvad.poses import Pose
from stepvad.settings.sections import CameraSettings, PoseSettings
from stepvad.skeletons import COCO17, strokes
from stepvad.supervision.logs import Form
from stepvad.supervision.process import GONE, ChildPipe, ChildProcess, HungError
from stepvad.video.camera import Camera, StateChange
from stepvad.video.following import look
from stepvad.video.networks import choose_engine
from stepvad.video.people import NOBODY, PoseEstimator, open_estimator
from stepvad.video.source import Image, open_footage

TRIAL_S = 45.0
"""Deadline of a trial, from its start: networks are loaded and the camera answers."""
LOOK_S = 4.0
"""How long to wait for somebody to come into view."""
WAIT_S = 0.2
MOST_SHOWN = 64
SEEN = 0.05
"""Minimum confidence of a joint to be shown."""

Place = Annotated[float, Meta(ge=-1e6, le=1e6)]
Joint = tuple[Place, Place] | None


@dataclass(frozen=True, slots=True)
class CameraPicture:
    """What a camera shows: the size of its picture, and joints of people in pixels."""

    size: tuple[ImageSide, ImageSide]
    people: Annotated[list[list[Joint]], Meta(max_length=MOST_SHOWN)]
    bones: list[list[int]]


@dataclass(frozen=True, slots=True)
class CameraProblem:
    """Why a camera shows nothing, in words without credentials."""

    problem: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """A picture, or why there is none."""

    picture: CameraPicture | None = None
    problem: str = ""


def try_camera(
    camera: CameraSettings, pose: PoseSettings, form: Form, *, within_s: float = TRIAL_S
) -> CameraPicture | CameraProblem:
    """Open a camera in a child process and find the people in one of its frames."""
    deadline = time.monotonic() + within_s
    try:
        child = ChildProcess(f"trial-{camera.name}", form, show_camera, camera, pose)
    except OSError as error:
        return CameraProblem(f"it could not be tried: {os_reason(error)}")
    try:
        while time.monotonic() < deadline:
            data = child.receive(WAIT_S)
            if data is not None:
                found = decode(_Answer, data, "child process")
                return found.picture or CameraProblem(found.problem)
        return CameraProblem(f"no picture within {within_s:g} s")
    except (HungError, *GONE, DataError):
        return CameraProblem("its decoder stopped without an answer")
    finally:
        child.kill()


def show_camera(site: ChildPipe, camera: CameraSettings, pose: PoseSettings) -> None:
    """Main function of the child process: send one answer."""

    def answer(said: _Answer) -> None:
        site.send(encode(said))

    try:
        if camera.has_pictures:
            estimator = open_estimator(
                pose.detector,
                pose.pose,
                runtime=choose_engine(pose.engine, pose.precision, pose.device),
                threads=pose.threads,
            )
            found = _first_people(_images(camera, answer), estimator, pose.min_confidence)
        else:
            scene = open_scene(camera)
            bones = strokes(scene.clip.skeleton)
            found = CameraPicture(scene.size, _joints(scene.first()), bones)
        answer(_Answer(found))
    except StepvadError as error:
        answer(_Answer(problem=str(error)))


def _images(camera: CameraSettings, answer: Callable[[_Answer], None]) -> Iterator[Image]:
    """The images of a camera; if a live one cannot be opened, that is the answer."""
    if not camera.is_live:
        for frame in open_footage(Path(camera.url), picture_rate=camera.picture_rate):
            yield frame.image
        return

    def on_state(change: StateChange) -> None:
        if change.state == "offline":
            answer(_Answer(problem=change.reason))

    for frame in Camera(camera.name, camera.live_source(), on_state=on_state):
        yield frame.image


def _first_people(
    images: Iterable[Image], estimator: PoseEstimator, min_confidence: float
) -> CameraPicture:
    """The people of the first image that shows any, or of the last one until `LOOK_S`."""
    late: float | None = None
    picture: CameraPicture | None = None
    for image in images:
        now = time.monotonic()
        late = now + LOOK_S if late is None else late
        (found,) = look(estimator, [image], [NOBODY])
        found = found.take(found.certain(min_confidence))
        height, width, _ = image.shape
        poses = [
            Pose(n, keypoints, confidence)
            for n, (keypoints, confidence) in enumerate(
                zip(found.keypoints, found.confidence, strict=True)
            )
        ]
        picture = CameraPicture((width, height), _joints(poses), strokes(COCO17))
        if poses or now > late:
            break
    if picture is None:
        raise DataError("expected at least one frame, got none")
    return picture


def _joints(poses: Iterable[Pose]) -> list[list[Joint]]:
    """The joints of people; None for those that were not found."""
    return [
        [
            (float(x), float(y)) if sure >= SEEN else None
            for (x, y), sure in zip(
                np.round(pose.keypoints, 1).tolist(), pose.confidence.tolist(), strict=True
            )
        ]
        for pose in poses
    ][:MOST_SHOWN]
