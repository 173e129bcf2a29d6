"""Person detectors: YOLOX, and networks with built-in non-maximum suppression (RTMDet)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import ModelFileError
from stepvad.video.networks import AnyArray, ImageNetwork
from stepvad.video.people import Boxes, Float32s, iou, no_boxes
from stepvad.video.pixels import Image, letterbox, letterbox_size

PERSON = 0
"""COCO's class index of *person*."""
STRIDES = (8, 16, 32)
"""Pixels between the cells of YOLOX's three grids."""
RTMDET_MEAN = np.array([103.53, 116.28, 123.675], np.float32)
RTMDET_STD = np.array([57.375, 57.12, 58.395], np.float32)
"""Normalisation that RTMDet was trained with, in BGR order."""


@dataclass(frozen=True, slots=True)
class PersonDetector:
    """Detects people; drops boxes that score below `least_score`."""

    network: ImageNetwork
    size: tuple[int, int] = (416, 416)
    least_score: float = 0.3
    most_overlap: float = 0.45

    def __post_init__(self) -> None:
        """Reject a network that is not a detector."""
        self.network.expect("yolox", "rtmdet", role="detector")

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Detect the people in every image: boxes in pixels of the image, best first."""
        sizes = [self._size(image) for image in images]
        found = [no_boxes()] * len(images)
        for size in dict.fromkeys(sizes):
            rows = [row for row, its in enumerate(sizes) if its == size]
            fitted, scales = zip(*(letterbox(images[row], size) for row in rows), strict=True)
            results = self.network(self._fed(np.stack(fitted)))
            for row, outputs, scale in zip(rows, results, scales, strict=True):
                found[row] = _inside(self._read(outputs, size), scale, images[row])
        return found

    def _size(self, image: Image) -> tuple[int, int]:
        """Width and height of the network's input: the smallest that holds the image."""
        size = self.network.size(self.size)
        return letterbox_size(image, size, max(STRIDES)) if self.network.clean else size

    def _fed(self, stack: NDArray[np.uint8]) -> AnyArray:
        """Images as the network's input: BGR, channels first, unless the network is clean."""
        if self.network.clean:
            return stack
        channels = stack[..., ::-1].transpose(0, 3, 1, 2)
        values = np.ascontiguousarray(channels, np.float32)
        if self.network.kind() == "rtmdet":
            values -= RTMDET_MEAN[:, None, None]
            values /= RTMDET_STD[:, None, None]
        return values

    def _read(self, outputs: list[AnyArray], size: tuple[int, int]) -> Boxes:
        if self.network.kind() == "yolox":
            boxes = decode_yolox(outputs[0], size, self.least_score)
            return boxes.take(without_doubles(boxes, self.most_overlap))
        names = [port.name for port in self.network.outputs]
        dets, labels = (outputs[names.index(name)] for name in ("dets", "labels"))
        return decode_rtmdet(dets, labels, self.least_score)


def decode_yolox(output: Float32s, size: tuple[int, int], least_score: float) -> Boxes:
    """Decode the people in YOLOX's output `(cells, 6)`, in pixels of the network's input.

    A row is x, y, w, h, objectness and the class *person*; other classes may follow. With the cell
    g and its stride s the centre is ((x, y) + g) s, the sides are exp(w, h) s, and the score is
    objectness times class.
    """
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
    half = np.exp(np.minimum(output[rows, 2:4], 20)) * stride / 2
    return Boxes(np.concatenate([centre - half, centre + half], axis=1), scores[rows])


@cache
def grid(size: tuple[int, int]) -> tuple[Float32s, Float32s]:
    """Cells `(cells, 2)` as x and y, and their strides `(cells,)`, row by row, fine grid first."""
    cells, strides = [], []
    for stride in STRIDES:
        columns, rows = size[0] // stride, size[1] // stride
        y, x = np.divmod(np.arange(rows * columns), columns)
        cells.append(np.stack([x, y], axis=1))
        strides.append(np.full(rows * columns, stride))
    return np.concatenate(cells).astype(np.float32), np.concatenate(strides).astype(np.float32)


def decode_rtmdet(dets: Float32s, labels: AnyArray, least_score: float) -> Boxes:
    """Select the people among boxes `(N, 5)` (corners and score) with labels `(N,)`."""
    rows = (dets[:, 4] >= least_score) & (labels == PERSON)
    return Boxes(dets[rows, :4], dets[rows, 4])


def without_doubles(boxes: Boxes, most_overlap: float) -> NDArray[np.int64]:
    """Non-maximum suppression: rows to keep, best first.

    No row overlaps a better one by more than `most_overlap`.
    """
    order = np.argsort(-boxes.scores, kind="stable")
    overlap = iou(boxes.corners, boxes.corners) > most_overlap
    kept: list[int] = []
    for row in order.tolist():
        if not overlap[row, kept].any():
            kept.append(row)
    return np.array(kept, np.int64)


def _inside(boxes: Boxes, scale: Float32s, image: Image) -> Boxes:
    """Boxes in pixels of the image, clipped to its border; boxes outside it are dropped."""
    if not len(boxes):
        return no_boxes()
    height, width = image.shape[:2]
    border = np.array([width, height, width, height], np.float32)
    corners: Float32s = np.clip(boxes.corners / np.tile(scale, 2), 0, border)
    some = (corners[:, 2:] > corners[:, :2]).all(axis=1)
    return Boxes(corners[some], boxes.scores[some])
