"""Poses of a video with MediaPipe (Apache-2.0) behind the default detector, one crop per person.

    pip install 'stepvad[video]' mediapipe
    python mediapipe_pose.py lobby.mp4 poses/lobby.json pose_landmarker_full.task yolox_nano.onnx

The .task file is on MediaPipe's page of models; the detector may be left out.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepvad import write_clip
from stepvad.people import Boxes, People
from stepvad.video import Image, extract_clip
from stepvad.video.estimators import TopDown, open_detector

COCO17 = [0, 2, 5, 7, 8, 11, 12, 13, 14, 15, 16, 23, 24, 25, 26, 27, 28]  # of BlazePose's 33
MARGIN = 0.15  # of the longer side of a box, around it


class MediaPipePose:
    """Joints by `find`: from a crop to 33 landmarks with x, y and visibility, or to none."""

    def __init__(self, find: Callable[[Image], Sequence[Any]]) -> None:
        self._find = find

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """Joints in pixels; a crop in which MediaPipe finds nobody has joints of no confidence."""
        return [self._people(*pair) for pair in zip(images, boxes, strict=True)]

    def _people(self, image: Image, boxes: Boxes) -> People:
        joints = np.zeros((len(boxes), 17, 3))
        for row, (left, top, right, bottom) in enumerate(boxes.corners.astype(int)):
            more = int(MARGIN * max(right - left, bottom - top))
            x, y = max(left - more, 0), max(top - more, 0)
            crop = np.ascontiguousarray(image[y : bottom + more, x : right + more])
            if marks := self._find(crop):
                scale = crop.shape[1], crop.shape[0], 1
                part = [(marks[i].x, marks[i].y, marks[i].visibility) for i in COCO17]
                joints[row] = np.array(part) * scale + (x, y, 0)
        return People(boxes, joints[..., :2], joints[..., 2])


if __name__ == "__main__":
    import mediapipe as mp
    from mediapipe.tasks.python import BaseOptions, vision

    video, out, model, *detector = sys.argv[1:]
    options = vision.PoseLandmarkerOptions(base_options=BaseOptions(model_asset_path=model))
    with vision.PoseLandmarker.create_from_options(options) as landmarker:

        def find(crop: Image) -> Sequence[Any]:
            """The landmarks of the first person."""
            found = landmarker.detect(mp.Image(image_format=mp.ImageFormat.SRGB, data=crop))
            return next(iter(found.pose_landmarks), ())

        estimator = TopDown(open_detector(*detector), MediaPipePose(find))
        write_clip(extract_clip(video, estimator), Path(out))
