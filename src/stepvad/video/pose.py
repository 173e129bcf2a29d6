"""The interface of pose estimators, and the default one."""

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


class PoseEstimator(Protocol):
    """Finds people and their joints in images; implement it to use your own networks.

    Two steps, since boxes may come from elsewhere or from every other frame only.
    """

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes of the people in every image, in pixels."""
        ...

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints of the people in these boxes, in pixels; a box without a person may be dropped."""
        ...


@dataclass(frozen=True, slots=True)
class TopDown:
    """Runs a person detector, then a pose network on every box; thread-safe."""

    detector: PersonDetector
    pose: PoseNetwork

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes of the people in every image, best first."""
        return self.detector(images)

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints of the people in these boxes, whatever their confidence."""
        return self.pose(images, boxes)


def open_estimator(
    detector: str | Path = DETECTOR,
    pose: str | Path = POSE,
    *,
    runtime: PoseRuntime | PoseEngine = "auto",
    threads: int = 1,
) -> TopDown:
    """Open a detector and a pose network, by name (downloaded once) or by path of an ONNX file."""
    engine = runtime if isinstance(runtime, PoseEngine) else choose_engine(runtime)

    def network(model: str | Path) -> ImageNetwork:
        return open_network(model_file(model), runtime=engine, threads=threads)

    return TopDown(PersonDetector(network(detector)), PoseNetwork(network(pose)))
