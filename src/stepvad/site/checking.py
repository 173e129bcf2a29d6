"""Checks before a site starts: its settings, and a camera."""

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
from stepvad.files import secret
from stepvad.people import NOBODY
from stepvad.poses import Pose
from stepvad.site.intake.child_messages import ImageSide
from stepvad.site.models import Loaded, Models
from stepvad.site.notify.words import opens_here_only, page_address
from stepvad.site.playback import open_scene
from stepvad.site.processes import GONE, ChildPipe, ChildProcess, HungError
from stepvad.site.settings.page import BROWSERS, server_tls
from stepvad.site.settings.sections import CameraSettings, PoseSettings, SiteSettings
from stepvad.site.sinks import target_named
from stepvad.site.stages import Form
from stepvad.skeletons import COCO17, strokes
from stepvad.stream import Stream
from stepvad.video.camera import Camera, StateChange, device_of
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.following import detect_and_recover
from stepvad.video.models import model_file
from stepvad.video.networks import choose_engine
from stepvad.video.source import Image, open_footage
from stepvad.windows.runs import is_resampled, rate_note

TRIAL_S = 45.0
"""Deadline of a trial, from its start: networks are loaded and the camera answers."""
LOOK_S = 4.0
"""Longest wait for somebody to come into view."""
WAIT_S = 0.2
MOST_SHOWN = 64
SEEN = 0.05
"""Minimum confidence of a joint to be shown."""
Place = Annotated[float, Meta(ge=-1e6, le=1e6)]
Joint = tuple[Place, Place] | None


def check(settings: SiteSettings) -> Iterator[str]:
    """Yield a line for each check that passes; the first failure raises."""
    # each camera: its model, its source and the way to it
    models = Models()
    for camera in settings.cameras:
        if settings.learns(camera) and not settings.model_of(camera).exists():
            _try(camera)
            yield f"ok: camera {camera.name}: no alerts until the site has learned a first model"
            yield from _link(camera)
            continue
        # the model, the limit and the rate fit together
        model = models.load(settings.model_of(camera))
        rules = model.rules_of(camera)
        Stream(model.detector, fps=camera.rate)
        _try(camera)
        yield f"ok: camera {camera.name}: alerts at scores of {rules.threshold:.3g} or more"
        yield from _rate(camera, model)
        yield from _link(camera)
    if any(camera.has_pictures for camera in settings.cameras):
        for network in (settings.pose.detector, settings.pose.pose):
            yield f"ok: the network {network} is in {model_file(network)}"
    yield from _sinks(settings)
    web = settings.web
    if web.enabled and web.certificate and web.key:
        server_tls(web.certificate, web.key)
        yield f"ok: the page can use the certificate {web.certificate}"


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


@dataclass(frozen=True, slots=True)
class CameraPicture:
    """The size of a camera's picture, and the joints of people in pixels."""

    size: tuple[ImageSide, ImageSide]
    people: Annotated[list[list[Joint]], Meta(max_length=MOST_SHOWN)]
    bones: list[list[int]]


@dataclass(frozen=True, slots=True)
class CameraProblem:
    """The reason why a camera shows nothing, in words without credentials."""

    problem: str


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


def _sinks(settings: SiteSettings) -> Iterator[str]:
    """Check secrets and the targets of messages to people; connects to nobody."""
    # every reference to a secret leads to one
    sinks, web = settings.sinks, settings.web
    references = [webhook.secret for webhook in sinks.webhooks]
    references += [sinks.mqtt.password if sinks.mqtt else None, web.token]
    references += [to for people in sinks.notify for to in people.to if to != BROWSERS]
    for reference in references:
        if reference is not None:
            secret(reference)
            yield f"ok: there is a secret in {reference}"
    for people in sinks.notify:
        for to in people.to:
            yield f"ok: people {people.name}: {to}: {target_named(to, settings).describe()}"
    link = page_address(web)
    if sinks.notify and opens_here_only(link):
        yield (
            f"warning: messages link to {link}, which opens on this machine only; "
            "set public_url under [web]"
        )


def _rate(camera: CameraSettings, model: Loaded) -> Iterator[str]:
    """Compare a camera's frame rate with those of its model and calibration."""
    config = model.detector.config
    note = rate_note(config, camera.rate)
    if note is not None:
        is_fine = is_resampled(config, camera.rate)
        yield f"{'ok' if is_fine else 'warning'}: camera {camera.name}: {note}"
    note = model.calibration_note(camera.name, camera.rate, camera.threshold)
    if note is not None:
        yield f"warning: camera {camera.name}: {note}"


def _try(camera: CameraSettings) -> None:
    """Check that a camera's source can be opened; makes no network connections."""
    match camera.kind:
        case "stream":
            camera.address()
        case "video":
            open_footage(Path(camera.url), picture_rate=camera.picture_rate)
        case "device":
            device_of(camera.url).check_readable()
        case "poses" | "demo":
            open_scene(camera)


def _link(camera: CameraSettings) -> Iterator[str]:
    """Report whether a camera's password is protected in transit."""
    if camera.kind != "stream":
        return
    # from the worst way of a password to the best
    address, name = camera.address(), camera.name
    scheme, password = address.scheme, address.has_password
    if camera.tls_insecure:
        got = "get the password" if password else "be accepted"
        yield (
            f"warning: camera {name}: TLS is not verified (tls_insecure): an impostor would {got}; "
            "name its authority or its certificate as tls_ca"
        )
    elif camera.uses_tls:
        address.tls.context()
        yield f"ok: camera {name}: TLS is verified, host name included, by {address.tls.bundle()}"
    elif password:
        yield (
            f"warning: camera {name}: TLS is not used: over {scheme}:// the password travels in "
            f"clear (Basic) or as a hash (Digest); use {scheme}s:// if the camera has it"
        )
    else:
        yield f"ok: camera {name}: TLS is not used, and there is no password to protect"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A picture, or why there is none."""

    picture: CameraPicture | None = None
    problem: str = ""


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
    # an empty picture is a good answer, too, if nobody comes for some seconds
    late: float | None = None
    picture: CameraPicture | None = None
    for image in images:
        now = time.monotonic()
        late = now + LOOK_S if late is None else late
        (found,) = detect_and_recover(estimator, [image], [NOBODY])
        # people that are sure enough, with their joints in pixels, (V, 2)
        found = found.select(found.certain(min_confidence))
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
