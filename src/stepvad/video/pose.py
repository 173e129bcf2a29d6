"""Pictures to people: the seam for any pose estimator, and the one that comes with the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stepvad.video.detection import PersonDetector
from stepvad.video.keypoints import PoseNetwork
from stepvad.video.models import DETECTOR, POSE, model_file
from stepvad.video.networks import Network, Runtime, open_network
from stepvad.video.people import Boxes, People
from stepvad.video.pixels import Image


class PoseEstimator(Protocol):
    """Anything that finds people and their joints in pictures; bring your own.

    Two steps, so that boxes may come from elsewhere or from every other picture only.
    """

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes of the people of every picture, in pixels."""
        ...

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints of the people in these boxes, in pixels; a box without a person may be dropped."""
        ...


@dataclass(frozen=True, slots=True)
class TopDown:
    """A person detector, then a pose network on every box; threads may share one."""

    detector: PersonDetector
    pose: PoseNetwork

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes of the people of every picture, best first."""
        return self.detector(images)

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints of the people in these boxes, however unsure."""
        return self.pose(images, boxes)


def open_estimator(
    detector: str | Path = DETECTOR,
    pose: str | Path = POSE,
    *,
    runtime: Runtime = "onnxruntime",
    threads: int = 1,
) -> TopDown:
    """A detector and a pose network, by name (fetched once) or by the path of an ONNX file."""

    def network(model: str | Path) -> Network:
        return open_network(model_file(model), runtime=runtime, threads=threads)

    return TopDown(PersonDetector(network(detector)), PoseNetwork(network(pose)))
