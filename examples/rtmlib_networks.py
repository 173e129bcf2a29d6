"""Poses of a video with the networks of rtmlib (Apache-2.0): its detector, then its pose network.

    pip install 'stepvad[video]' rtmlib
    python rtmlib_networks.py lobby.mp4 poses/lobby.json yolox_nano.onnx rtmpose-s.onnx

rtmlib downloads networks that are given as the URL of a .zip file.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepvad import write_clip
from stepvad.people import Boxes, People
from stepvad.video import Image, extract_clip
from stepvad.video.estimators import TopDown


class RtmlibDetector:
    """A detector of rtmlib, such as `YOLOX(file, (416, 416))`."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """Boxes in pixels; rtmlib expects BGR and returns no scores."""
        found = [np.reshape(self._model(image[..., ::-1]), (-1, 4)) for image in images]
        return [Boxes(corners, np.ones(len(corners))) for corners in found]


class RtmlibPose:
    """A pose network of rtmlib with COCO's 17 joints, such as `RTMPose(file)`."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints in pixels; without boxes rtmlib would take the whole picture for a person."""
        people = []
        for image, some in zip(images, boxes, strict=True):
            keypoints, scores = np.empty((0, 17, 2)), np.empty((0, 17))
            if len(some):
                keypoints, scores = self._model(image[..., ::-1], bboxes=some.corners)
            people.append(People(some, keypoints, np.clip(scores, 0, 1)))
        return people


if __name__ == "__main__":
    from rtmlib import YOLOX, RTMPose

    video, out, detector, pose = sys.argv[1:5]
    estimator = TopDown(
        RtmlibDetector(YOLOX(detector, (416, 416), score_thr=0.3)), RtmlibPose(RTMPose(pose))
    )
    write_clip(extract_clip(video, estimator), Path(out))
