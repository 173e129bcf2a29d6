"""Single-person pose networks: MoveNet, and SimCC heads as in RTMPose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.video.networks import AnyArray, ImageNetwork
from stepvad.video.people import Boxes, Float32s, People
from stepvad.video.pixels import Image, Region, crop, region_around

SIMCC_SPLIT = 2.0
"""Bins per pixel of a SimCC head."""
RTMPOSE_MEAN = np.array([123.675, 116.28, 103.53], np.float32)
RTMPOSE_STD = np.array([58.395, 57.12, 57.375], np.float32)
"""Normalisation that RTMPose was trained with, in RGB order."""


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
        size = self.network.size(self.size)
        pairs = list(zip(images, boxes, strict=True))
        regions = [
            region_around(corners, image, size) for image, some in pairs for corners in some.corners
        ]
        owners = [image for image, some in pairs for _ in range(len(some))]
        crops = [crop(image, at, size) for image, at in zip(owners, regions, strict=True)]
        keypoints, confidence = self._joints(crops, regions, size)
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
        if self.network.clean:
            return stack
        if self.network.kind() == "movenet":
            return stack.astype(np.int32)
        values = (stack - RTMPOSE_MEAN) / RTMPOSE_STD
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2), np.float32)

    def _read(self, outputs: list[AnyArray], size: tuple[int, int]) -> tuple[Float32s, Float32s]:
        if self.network.kind() == "movenet":
            return decode_movenet(outputs[0])
        return decode_simcc(outputs[0], outputs[1], size)


def decode_movenet(output: Float32s) -> tuple[Float32s, Float32s]:
    """Decode `(1, 17, 3)` (y, x, c) to points `(17, 2)`, x and y in 0..1 of the crop, and c."""
    return output[0, :, 1::-1], output[0, :, 2]


def decode_simcc(x: Float32s, y: Float32s, size: tuple[int, int]) -> tuple[Float32s, Float32s]:
    """Points `(V, 2)` in 0..1 of the crop, and confidence, from bins `(V, 2 W)` and `(V, 2 H)`.

    A joint is at the maximum of its bins; its confidence is the lower of the two maxima.
    """
    pixels = np.stack([x.argmax(axis=1), y.argmax(axis=1)], axis=1) / SIMCC_SPLIT
    confidence = np.maximum(np.minimum(x.max(axis=1), y.max(axis=1)), 0)
    return (pixels / np.array(size)).astype(np.float32), confidence.astype(np.float32)
