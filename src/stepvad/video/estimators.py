"""Networks that find people in images: boxes by a detector, joints by a pose network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stepvad.config import PoseRuntime
from stepvad.errors import ModelFileError
from stepvad.people import Boxes, Float32s, People, iou, no_boxes
from stepvad.video.graphs import CELLS, AnyArray, movenet_pixels
from stepvad.video.models import DETECTOR, POSE, model_file
from stepvad.video.networks import (
    ImageNetwork,
    PoseEngine,
    Region,
    choose_engine,
    crop,
    letterbox,
    letterbox_size,
    open_network,
    region_around,
)
from stepvad.video.source import Image

PERSON = 0
"""COCO's class index of *person*."""
DETECTOR_SIZES = {"yolox": (416, 416), "rtmdet": (320, 320)}
"""Width and height that each detector was trained for, if its graph takes any."""
RTMDET_MEAN = np.array([103.53, 116.28, 123.675], np.float32)
RTMDET_STD = np.array([57.375, 57.12, 58.395], np.float32)
"""Normalisation that RTMDet was trained with, in BGR order."""
RTMDET_LOWER = 0.15
"""What RTMDet's scores are below YOLOX's where both find as many people."""

SIMCC_SPLIT = 2.0
"""Bins per pixel of a SimCC head."""
RTMPOSE_MEAN = np.array([123.675, 116.28, 103.53], np.float32)
RTMPOSE_STD = np.array([58.395, 57.12, 57.375], np.float32)
"""Normalisation that RTMPose was trained with, in RGB order."""


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


@dataclass(frozen=True, slots=True)
class PersonDetector:
    """Detects people; drops boxes that score below `least_score`."""

    network: ImageNetwork
    least_score: float = 0.3
    most_overlap: float = 0.45

    def __post_init__(self) -> None:
        """Reject a network that is not a detector."""
        self.network.expect("yolox", "rtmdet", role="detector")

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Detect the people in every image: boxes in pixels of the image, best first."""
        # images of one size form a batch: letterboxed, (N, H, W, 3), with their scales (2,)
        sizes = [self._size(image) for image in images]
        found = [no_boxes()] * len(images)
        for size in dict.fromkeys(sizes):
            rows = [row for row, its in enumerate(sizes) if its == size]
            fitted, scales = zip(*(letterbox(images[row], size) for row in rows), strict=True)
            results = self.network(self._fed(np.stack(fitted)))
            for row, outputs, scale in zip(rows, results, scales, strict=True):
                found[row] = _clipped(self._read(outputs, size), scale, images[row])
        return found

    def _size(self, image: Image) -> tuple[int, int]:
        """Width and height of the network's input: the smallest that holds the image."""
        size = self.network.size(DETECTOR_SIZES[self.network.kind()])
        any_size = self.network.any_size or self.network.size((0, 0)) == (0, 0)
        return letterbox_size(image, size, max(CELLS)) if any_size else size

    def _fed(self, stack: NDArray[np.uint8]) -> AnyArray:
        """Images as the network's input: BGR with channels first, `(N, 3, H, W)`."""
        channels = stack[..., ::-1].transpose(0, 3, 1, 2)
        values = np.ascontiguousarray(channels, np.float32)
        if self.network.kind() == "rtmdet":  # it was trained so
            values -= RTMDET_MEAN[:, None, None]
            values /= RTMDET_STD[:, None, None]
        return values

    def _read(self, outputs: list[AnyArray], size: tuple[int, int]) -> Boxes:
        if self.network.kind() == "yolox":
            boxes = decode_yolox(outputs[0], size, self.least_score)
            return boxes.select(without_doubles(boxes, self.most_overlap))
        names = [port.name for port in self.network.outputs]
        dets, labels = (outputs[names.index(name)] for name in ("dets", "labels"))
        return decode_rtmdet(dets, labels, self.least_score)


@dataclass(frozen=True, slots=True)
class PoseNetwork:
    """Estimates COCO's 17 joints for every box, whatever their confidence."""

    network: ImageNetwork
    size: tuple[int, int] = (192, 256)

    def __post_init__(self) -> None:
        """Reject a network that is not a pose network."""
        self.network.expect("movenet", "simcc", role="pose network")

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Estimate the people of every image; the crops of all images form one batch."""
        # a crop for every box of every image, all in one list
        size = self.network.size(self.size)
        pairs = list(zip(images, boxes, strict=True))
        regions = [
            region_around(corners, image, size) for image, some in pairs for corners in some.corners
        ]
        owners = [image for image, some in pairs for _ in range(len(some))]
        crops = [crop(image, at, size) for image, at in zip(owners, regions, strict=True)]
        keypoints, confidence = self._joints(crops, regions, size)
        # joints (N, 17, 2) and confidence (N, 17) of all boxes, divided by image again
        ends = np.cumsum([len(some) for some in boxes])[:-1]
        parts = zip(boxes, np.split(keypoints, ends), np.split(confidence, ends), strict=True)
        return [People(*part) for part in parts] if boxes else []

    def _joints(
        self, crops: list[Image], regions: list[Region], size: tuple[int, int]
    ) -> tuple[Float32s, Float32s]:
        if not crops:
            return np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32)
        results = self.network(self._fed(np.stack(crops)))
        read = [self._read(outputs, size) for outputs in results]
        places = [at.to_picture(xy) for at, (xy, _) in zip(regions, read, strict=True)]
        return np.stack(places), np.stack([confidence for _, confidence in read])

    def _fed(self, stack: NDArray[np.uint8]) -> AnyArray:
        if self.network.kind() == "movenet":
            adapted = self.network.input.shape[1] == 3
            return movenet_pixels(stack) if adapted else stack.astype(np.int32)
        values = (stack - RTMPOSE_MEAN) / RTMPOSE_STD
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2), np.float32)

    def _read(self, outputs: list[AnyArray], size: tuple[int, int]) -> tuple[Float32s, Float32s]:
        if self.network.kind() == "movenet":
            return decode_movenet(outputs[0])
        return decode_simcc(outputs[0], outputs[1], size)


def decode_yolox(output: Float32s, size: tuple[int, int], least_score: float) -> Boxes:
    """Decode the people in YOLOX's output `(cells, 85)`, in pixels of the network's input.

    A row is x, y, w, h, objectness and the classes, *person* first. With the cell
    g and its stride s the centre is ((x, y) + g) s, the sides are exp(w, h) s, and the score is
    objectness times class.
    """
    # the rows that are people, and the cell and stride of each, (n, 2) and (n, 1)
    scores = output[:, 4] * output[:, 5 + PERSON]
    rows = np.flatnonzero(scores >= least_score)
    cells, strides = grid(size)
    if len(cells) != len(output):
        raise ModelFileError(
            f"expected {len(cells)} cells for pictures of {size}, got {len(output)}",
            hint="give the size that the detector was exported for",
        )
    stride = strides[rows, None]
    centre = (output[rows, :2] + cells[rows]) * stride
    # exp would overflow for a damaged output
    half = np.exp(np.minimum(output[rows, 2:4], 20)) * stride / 2
    return Boxes(np.concatenate([centre - half, centre + half], axis=1), scores[rows])


@cache
def grid(size: tuple[int, int]) -> tuple[Float32s, Float32s]:
    """Cells `(cells, 2)` as x and y, and their strides `(cells,)`, row by row, fine grid first."""
    cells, strides = [], []
    for stride in CELLS:
        columns, rows = size[0] // stride, size[1] // stride
        y, x = np.divmod(np.arange(rows * columns), columns)
        cells.append(np.stack([x, y], axis=1))
        strides.append(np.full(rows * columns, stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(strides).astype(np.float32)


def decode_rtmdet(dets: Float32s, labels: AnyArray, least_score: float) -> Boxes:
    """Select the people among boxes `(N, 5)` (corners and score) with labels `(N,)`.

    Their scores become those that YOLOX would give, which following and tracking expect.
    """
    rows = (dets[:, 4] >= least_score) & (labels == PERSON)
    return Boxes(dets[rows, :4], np.minimum(dets[rows, 4] + RTMDET_LOWER, 1))


def without_doubles(boxes: Boxes, most_overlap: float) -> NDArray[np.int64]:
    """Non-maximum suppression: rows to keep, best first.

    No row overlaps a better one by more than `most_overlap`.
    """
    # best first; a box that overlaps one kept is the same person
    order = np.argsort(-boxes.scores, kind="stable")
    overlap = iou(boxes.corners, boxes.corners) > most_overlap
    kept: list[int] = []
    for row in order.tolist():
        if not overlap[row, kept].any():
            kept.append(row)
    return np.array(kept, np.int64)


def decode_movenet(output: Float32s) -> tuple[Float32s, Float32s]:
    """Decode `(1, 17, 3)` (y, x, c) to points `(17, 2)`, x and y in 0..1 of the crop, and c."""
    return output[0, :, 1::-1], output[0, :, 2]


def decode_simcc(x: Float32s, y: Float32s, size: tuple[int, int]) -> tuple[Float32s, Float32s]:
    """Points `(V, 2)` in 0..1 of the crop, and confidence, from bins `(V, 2 W)` and `(V, 2 H)`.

    A joint is at the maximum of its bins; its confidence is the lower of the two maxima.
    """
    # the highest bin along each axis, (V, 2), in pixels of the crop
    pixels = np.stack([x.argmax(axis=1), y.argmax(axis=1)], axis=1) / SIMCC_SPLIT
    confidence = np.maximum(np.minimum(x.max(axis=1), y.max(axis=1)), 0)
    return (pixels / np.array(size)).astype(np.float32), confidence.astype(np.float32)


def _network(model: str | Path, runtime: PoseRuntime | PoseEngine, threads: int) -> ImageNetwork:
    engine = runtime if isinstance(runtime, PoseEngine) else choose_engine(runtime)
    return open_network(model_file(model), runtime=engine, threads=threads)


def _clipped(boxes: Boxes, scale: Float32s, image: Image) -> Boxes:
    """Boxes in pixels of the image, clipped to its border; boxes outside it are dropped."""
    if not len(boxes):
        return no_boxes()
    height, width = image.shape[:2]
    # from pixels of the network's input to those of the image, without what lies outside
    border = np.array([width, height, width, height], np.float32)
    corners: Float32s = np.clip(boxes.corners / np.tile(scale, 2), 0, border)
    some = (corners[:, 2:] > corners[:, :2]).all(axis=1)
    return Boxes(corners[some], boxes.scores[some])
