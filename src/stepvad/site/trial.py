"""Try a camera: the people it shows now, what it costs, and how many such cameras fit here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepvad.codec import decode, encode
from stepvad.errors import DataError, StepvadError, os_reason
from stepvad.executors import usable_cores
from stepvad.people import Boxes, People
from stepvad.poses import Pose
from stepvad.site.camera_process import ImageSide
from stepvad.site.playback import open_scene
from stepvad.site.processes import GONE, ChildPipe, ChildProcess, HungError
from stepvad.site.settings.sections import CameraSettings, PoseSettings, SiteSettings
from stepvad.site.stages import Form
from stepvad.skeletons import COCO17, strokes
from stepvad.video.camera import Camera, StateChange
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.networks import choose_engine
from stepvad.video.source import Frame, Image, open_footage
from stepvad.video.watching import Watch

TRIAL_S = 45.0
"""Deadline of a trial, from its start: networks are loaded and the camera answers."""
LOOK_S = 4.0
"""Longest wait for somebody to come into view."""
WAIT_S = 0.2
MOST_SHOWN = 64
SEEN = 0.05
"""Minimum confidence of a joint to be shown."""
TIMED = 10
"""Frames whose cost is measured."""
BUSY = 0.7
"""Share of the cores that cameras may take; scores, the page and the system get the rest."""
LEAST_RATE = 5.0
"""Frames a second to which a busy site lowers a camera's rate, and no further."""
LARGE = 1280 * 720
"""Pixels of a frame above which decoding costs too much."""
SUBSTREAM = (
    "most cameras send a smaller picture as well, the substream (or second stream), under another "
    "address: Hikvision ends in /Streaming/Channels/102 instead of 101, Dahua in subtype=1 instead "
    "of subtype=0; for others see the camera's manual or its own page. About 640 x 360 pixels are "
    "enough unless people are far away"
)
Place = Annotated[float, Meta(ge=-1e6, le=1e6)]
Joint = tuple[Place, Place] | None
Positive = Annotated[float, Meta(ge=0, le=1e6)]
Look = Callable[[Frame, float], People]
"""People in a frame at a time, in seconds."""


@dataclass(frozen=True, slots=True)
class CameraCost:
    """Core time that a camera takes here, by ten of its frames."""

    sent: Positive
    """Frames a second that the camera sends."""
    decoding_s: Positive
    """For each frame that it sends."""
    looking_s: Positive
    """For each frame in which people are looked for."""
    people: Positive
    """People in view, on average."""

    def cores(self, rate: float) -> float:
        """Cores that are busy at `rate` frames a second."""
        return self.decoding_s * self.sent + self.looking_s * min(rate, self.sent)

    def carried(self, rate: float, cores: int) -> int:
        """Number of such cameras that a machine carries at `rate` frames a second."""
        # one thread looks at the frames of a camera: it cannot be busier than a core
        if self.looking_s * min(rate, self.sent) > BUSY:
            return 0
        return math.floor(cores * BUSY / self.cores(rate))


@dataclass(frozen=True, slots=True)
class CameraPicture:
    """The size of a camera's picture, and the joints of people in pixels."""

    size: tuple[ImageSide, ImageSide]
    people: Annotated[list[list[Joint]], Meta(max_length=MOST_SHOWN)]
    bones: list[list[int]]
    cost: CameraCost | None = None
    """None for poses from a file, a short video, and where a GPU finds the people."""
    advice: list[str] = field(default_factory=list)
    """What the machine carries, and what would let it carry more."""


@dataclass(frozen=True, slots=True)
class CameraProblem:
    """The reason why a camera shows nothing, in words without credentials."""

    problem: str


def try_all(settings: SiteSettings) -> Iterator[str]:
    """Try all cameras with pictures, one after the other; a line for what each costs here."""
    costs: list[tuple[CameraCost, float]] = []
    for camera in settings.cameras:
        if not camera.has_pictures:
            continue
        found = try_camera(camera, settings.pose, settings.logs)
        if isinstance(found, CameraProblem):
            yield f"warning: camera {camera.name}: no picture: {found.problem}"
            continue
        if found.cost is not None:
            fits, rate = found.cost.carried(camera.rate, usable_cores()) > 0, camera.rate
            costs.append((found.cost, rate))
            states = chain(["ok" if fits else "warning"], repeat("advice"))
            for state, words in zip(states, found.advice, strict=False):
                yield f"{state}: camera {camera.name}: {words}"
    if len(costs) > 1:
        yield _together(costs, usable_cores())


def try_camera(
    camera: CameraSettings, pose: PoseSettings, form: Form, *, within_s: float = TRIAL_S
) -> CameraPicture | CameraProblem:
    """Open a camera in a child process and find the people in some of its frames."""
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
        # networks for pictures, or poses from a file
        if camera.has_pictures:
            estimator = open_estimator(
                pose.detector,
                pose.pose,
                runtime=choose_engine(pose.engine, pose.precision, pose.device),
                threads=pose.threads or 1,
            )
            found = _looked_at(_frames(camera, answer), estimator, camera, pose)
        elif camera.kind == "nats":
            answer(_Answer(problem="its device publishes poses, which only a running site reads"))
            return
        else:
            scene = open_scene(camera)
            bones = strokes(scene.clip.skeleton)
            found = CameraPicture(scene.size, _joints(scene.first()), bones)
        answer(_Answer(found))
    except StepvadError as error:
        answer(_Answer(problem=str(error)))


def advice(
    size: tuple[int, int], cost: CameraCost, camera: CameraSettings, cores: int
) -> Iterator[str]:
    """What a machine carries of a camera, then what lets it carry more, for installers."""
    # at the rate that is asked for, and at the one to which a busy site falls
    least = min(LEAST_RATE, camera.rate)
    first, second = (cost.carried(rate, cores) for rate in (camera.rate, least))
    fits = f"{_counted(first, 'such camera')} at {camera.rate:g} frames a second"
    if least < camera.rate:
        fits += f", {second} at {least:g}"
    people = max(round(cost.people), 1)
    yield (
        f"this machine carries {fits}, with {_counted(people, 'person', 'people')} in view of each "
        f"(decoding: {1000 * cost.decoding_s * cost.sent:.0f} ms of a core a second; finding "
        f"people: {1000 * cost.looking_s:.0f} ms a frame; {1 - BUSY:.0%} of "
        f"{_counted(cores, 'core')} left for the rest)"
    )
    if camera.kind != "stream":
        return
    if size[0] * size[1] > LARGE:
        yield f"it sends {size[0]} x {size[1]} pixels, and all are decoded: {SUBSTREAM}"
    if cost.sent > 1.5 * camera.rate:
        yield (
            f"it sends {cost.sent:.0f} frames a second, all are decoded, and {camera.rate:g} are "
            f"used: set {math.ceil(camera.rate)} in the camera"
        )


def _counted(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _together(costs: list[tuple[CameraCost, float]], cores: int) -> str:
    """Whether all cameras fit while people are in view of all."""
    budget = BUSY * cores
    asked = sum(cost.cores(rate) for cost, rate in costs) / budget
    least = sum(cost.cores(min(rate, LEAST_RATE)) for cost, rate in costs) / budget
    words = f"all {len(costs)} cameras together take {asked:.0%} of what this machine carries"
    if asked <= 1:
        return f"ok: {words}"
    return f"warning: {words}, and {least:.0%} at {LEAST_RATE:g} frames a second, to which it falls"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A picture, or why there is none."""

    picture: CameraPicture | None = None
    problem: str = ""


def _frames(camera: CameraSettings, answer: Callable[[_Answer], None]) -> Generator[Frame]:
    """The frames of a camera; if a live one cannot be opened, that is the answer."""
    if not camera.is_live:
        footage = open_footage(Path(camera.url), picture_rate=camera.picture_rate)
        yield from footage
        return

    def on_state(change: StateChange) -> None:
        if change.state == "offline" and change.reason != "stopped":
            answer(_Answer(problem=change.reason))

    yield from Camera(camera.name, camera.live_source(), on_state=on_state)


def _looked_at(
    frames: Generator[Frame], estimator: PoseEstimator, camera: CameraSettings, pose: PoseSettings
) -> CameraPicture:
    """The people of the first frame that shows any, and what ten frames after it cost."""
    watch = Watch(estimator, camera.rate)

    def look(frame: Frame, time_s: float) -> People:
        people = watch.look(frame.image, time_s, frame.image.shape)
        return people.select(people.certain(pose.min_confidence))

    frame, people = _first_people(frames, look)
    height, width, _ = frame.image.shape
    poses = [
        Pose(n, keypoints, confidence)
        for n, (keypoints, confidence) in enumerate(
            zip(people.keypoints, people.confidence, strict=True)
        )
    ]
    picture = CameraPicture((width, height), _joints(poses), strokes(COCO17))
    cost = _cost(frames, look, estimator, camera.rate) if pose.device == "cpu" else None
    if cost is None:
        return picture
    return replace(picture, cost=cost, advice=[*advice(picture.size, cost, camera, usable_cores())])


def _first_people(frames: Iterable[Frame], look: Look) -> tuple[Frame, People]:
    """The first frame that shows people, or the last one until `LOOK_S`."""
    # an empty picture is a good answer, too, if nobody comes for some seconds
    late: float | None = None
    found: tuple[Frame, People] | None = None
    for frame in frames:
        now = time.monotonic()
        late = now + LOOK_S if late is None else late
        found = frame, look(frame, now)
        if len(found[1]) or now > late:
            break
    if found is None:
        raise DataError("expected at least one frame, got none")
    return found


def _cost(
    frames: Generator[Frame], look: Look, estimator: PoseEstimator, rate: float
) -> CameraCost | None:
    """Measure what it costs to decode until ten frames are due, then to look at those."""
    began, began_s = time.monotonic(), time.process_time()
    decoded, kept, times = 0, list[Frame](), list[float]()
    due = math.inf
    for frame in frames:
        if frame.arrived < began:
            continue  # it waited in a buffer: decoded before
        decoded += 1
        times.append(frame.wall if frame.pts is None else frame.pts)
        # as far apart as the site takes them, or nearly; stream time may jump
        if not due - 1 < times[-1] < due:
            due = times[-1] + 0.75 / max(rate, LEAST_RATE)
            kept.append(frame)
        if len(kept) == TIMED:
            break
    decoding_s = time.process_time() - began_s
    frames.close()
    if len(kept) < TIMED or times[-1] <= times[0]:
        return None
    # the looks, as the site makes them; nothing is decoded meanwhile
    now, began_s = time.monotonic(), time.process_time()
    people = sum(len(look(frame, now + n / rate)) for n, frame in enumerate(kept))
    looking_s = (time.process_time() - began_s) / TIMED
    if not people:
        looking_s += _cost_of_a_person(kept[0].image, estimator)
    sent = (decoded - 1) / (times[-1] - times[0])
    return CameraCost(sent, decoding_s / decoded, looking_s, people / TIMED)


def _cost_of_a_person(image: Image, estimator: PoseEstimator) -> float:
    """Core seconds for the joints of one person, as if somebody were in the middle."""
    height, width, _ = image.shape
    corners = np.array([[0.4 * width, 0.2 * height, 0.6 * width, 0.8 * height]], np.float32)
    middle = Boxes(corners, np.ones(1, np.float32))
    estimator.estimate([image], [middle])  # the first run is slower
    began_s = time.process_time()
    for _ in range(TIMED):
        estimator.estimate([image], [middle])
    return (time.process_time() - began_s) / TIMED


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
