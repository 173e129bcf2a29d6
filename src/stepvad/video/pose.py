"""The interfaces of detectors and pose networks, and the default ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stepvad.config import PoseRuntime
from stepvad.video.detection import PersonDetector
from stepvad.video.engine import PoseEngine, choose_engine
from stepvad.video.keypoints import PoseNetwork
from stepvad.video.models import DETECTOR, POSE, model_file
from stepvad.video.networks import ImageNetwork, open_network
from stepvad.video.people import Boxes, People
from stepvad.video.pixels import Image


class BoxDetector(Protocol):
    """Finds people in images."""

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes of the people in every image, in pixels; images are RGB, `(H, W, 3)`."""
        ...


class JointEstimator(Protocol):
    """Finds the joints of people whose boxes are known."""

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints of the people in these boxes, in pixels; a box without a person may be dropped."""
        ...


class PoseEstimator(BoxDetector, JointEstimator, Protocol):
    """Finds people and their joints in images; implement it to use your own networks.

    Two steps, since boxes may come from elsewhere: from another detector, or from the last pose of
    a person whom the detector loses.
    """


@dataclass(frozen=True, slots=True)
class TopDown:
    """Runs a detector, then a pose network on every box; thread-safe if both are."""

    detector: BoxDetector
    pose: JointEstimator

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes of the people in every image."""
        return self.detector.detect(images)

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints of the people in these boxes."""
        return self.pose.estimate(images, boxes)


def open_estimator(
    detector: str | Path = DETECTOR,
    pose: str | Path = POSE,
    *,
    runtime: PoseRuntime | PoseEngine = "auto",
    threads: int = 1,
) -> TopDown:
    """Open a detector and a pose network, by name (downloaded once) or by path of an ONNX file."""
    return TopDown(
        open_detector(detector, runtime=runtime, threads=threads),
        PoseNetwork(_network(pose, runtime, threads)),
    )


def open_detector(
    detector: str | Path = DETECTOR,
    *,
    runtime: PoseRuntime | PoseEngine = "auto",
    threads: int = 1,
) -> PersonDetector:
    """Open a detector alone, to put a pose network of your own behind it."""
    return PersonDetector(_network(detector, runtime, threads))


def _network(model: str | Path, runtime: PoseRuntime | PoseEngine, threads: int) -> ImageNetwork:
    engine = runtime if isinstance(runtime, PoseEngine) else choose_engine(runtime)
    return open_network(model_file(model), runtime=engine, threads=threads)
