"""Render one clip: the people on stage as a camera and pose estimator see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip
from stepvad.skeletons import COCO17
from studies.mocap import bodies, estimator
from studies.mocap.cameras import PERSON_M, SIZE, PinholeCamera, inside
from studies.mocap.catalogue import MotionKind
from studies.mocap.identities import Detections, identify
from studies.mocap.motions import Float64s
from studies.mocap.staging import Actor, stage
from studies.mocap.takes import TakeSplit
from studies.mocap.truth import Mask

IN_PICTURE = 0.6
"""Share of joints that must be inside the image for a person to be in it."""
SEEN = 0.2
"""Share of joints that must be unobstructed for a person to be seen."""


@dataclass(frozen=True, slots=True, eq=False)
class MocapScene:
    """A clip, and the anomaly class of each frame, `(n_frames,)`, empty if normal."""

    clip: Clip
    classes: NDArray[np.str_]

    @property
    def labels(self) -> FrameLabels:
        """Frame labels; every frame counts."""
        abnormal = self.classes != ""
        kinds = np.unique(self.classes[abnormal]).tolist()
        classes = {kind: self.classes == kind for kind in kinds}
        return FrameLabels(abnormal, np.ones_like(abnormal), classes)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An actor projected into the camera.

    COCO-17 `pixels (n, 17, 2)` and `depth (n, 17)`, the `trunk (n, 2, 2)` and `trunk_depth (n, 2)`
    for `bodies.behind_trunk`, and the height of a standing person there, `height_px (n,)`.
    """

    pixels: Float64s
    depth: Float64s
    trunk: Float64s
    trunk_depth: Float64s
    height_px: Float64s


def make_scene(
    rng: np.random.Generator,
    camera: PinholeCamera,
    take_split: TakeSplit,
    kinds: tuple[MotionKind, ...],
    *,
    name: str,
    seconds: float,
) -> MocapScene:
    """Create a clip with the given kinds of anomaly among people who behave normally."""
    n_frames = round(seconds * camera.fps)
    actors = stage(rng, camera, take_split, kinds, n_frames)
    views = [_view(actor, camera) for actor in actors]
    classes = np.full(n_frames, "", dtype="<U10")
    found = []
    for number, (actor, view) in enumerate(zip(actors, views, strict=True)):
        outside = _covered(number, actors, views, camera)
        in_picture = inside(view.pixels).mean(axis=1) >= IN_PICTURE
        shown = in_picture & ((~outside).mean(axis=1) >= SEEN)
        if actor.kind is not None:
            classes[actor.first + np.flatnonzero(actor.abnormal & shown)] = actor.kind
        hidden = outside | _self_hidden(actor, view, camera) | ~inside(view.pixels)
        found.append(_detect(rng, actor.first, view, hidden, shown, camera.fps))
    tracks = identify(rng, found, n_frames, fps=camera.fps)
    return MocapScene(Clip(name, camera.fps, n_frames, tracks, COCO17), classes)


def _view(actor: Actor, camera: PinholeCamera) -> View:
    pixels, depth = camera.project(bodies.coco17(actor.joints))
    trunk, trunk_depth = camera.project(bodies.trunk_of(actor.joints))
    height_px = camera.focal_px * PERSON_M / trunk_depth.mean(axis=1)
    return View(pixels, depth, _rays(trunk, camera), trunk_depth, height_px)


def _rays(pixels: Float64s, camera: PinholeCamera) -> Float64s:
    """Pixels relative to the image centre, divided by the focal length."""
    return (pixels - np.array(SIZE) / 2) / camera.focal_px


def _covered(number: int, actors: list[Actor], views: list[View], camera: PinholeCamera) -> Mask:
    """Mask `(n, 17)` of one actor's joints behind a box or another person."""
    actor, view = actors[number], views[number]
    covered = np.zeros(view.depth.shape, dtype=np.bool_)
    joints = bodies.coco17(actor.joints)
    for box in camera.boxes:
        covered |= box.hides(camera.height_m, joints)
    points = _rays(view.pixels, camera)
    for other, front in zip(actors, views, strict=True):
        first, end = max(actor.first, other.first), min(actor.end, other.end)
        if other is actor or first >= end:
            continue
        mine = slice(first - actor.first, end - actor.first)
        theirs = slice(first - other.first, end - other.first)
        covered[mine] |= bodies.behind_trunk(
            points[mine], view.depth[mine], front.trunk[theirs], front.trunk_depth[theirs]
        )
    return covered


def _self_hidden(actor: Actor, view: View, camera: PinholeCamera) -> Mask:
    """Mask `(n, 17)` of joints behind the actor's own trunk, or on the far side of the head."""
    points = _rays(view.pixels, camera)
    hidden = bodies.behind_trunk(points, view.depth, view.trunk, view.trunk_depth)
    eye = np.array([0.0, 0.0, camera.height_m])
    return hidden | bodies.faces_away(actor.joints, eye)


def _detect(
    rng: np.random.Generator, first: int, view: View, hidden: Mask, shown: Mask, fps: float
) -> Detections:
    """The estimator's detections of one actor."""
    confidence = estimator.confidence(rng, hidden, view.height_px, fps=fps)
    keypoints = view.pixels + estimator.jitter(rng, confidence, view.height_px, fps=fps)
    at = np.flatnonzero(shown & ~estimator.missed(rng, confidence, fps=fps))
    return Detections(first + at, keypoints[at], confidence[at])
