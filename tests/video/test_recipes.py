"""The examples that bring other people's networks and results."""

from __future__ import annotations

import re
import runpy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stepvad import video
from stepvad.people import Boxes
from stepvad.skeletons import COCO17
from stepvad.video import Image, extract_clip
from stepvad.video.estimators import TopDown
from tests.video import graphs
from tests.video.clips import N_FRAMES, walking_images, write_pictures, write_walker

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytest.importorskip("av")
pytest.importorskip("cv2")


def recipe(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="recipe")


def side(name: str) -> str:
    """A joint's name in MediaPipe's manner, short."""
    first, _, rest = name.partition("_")
    return f"{first[0].upper()}{rest.capitalize()}" if rest else name.capitalize()


def words(text: str) -> list[str]:
    return text.split()


BLAZEPOSE = words(
    "Nose LEye_in LEye LEye_out REye_in REye REye_out LEar REar LMouth RMouth LShoulder RShoulder "
    "LElbow RElbow LWrist RWrist LPinky RPinky LIndex RIndex LThumb RThumb LHip RHip LKnee RKnee "
    "LAnkle RAnkle LHeel RHeel LFoot RFoot"
)


def test_the_public_names_of_video_are_there_with_words_on_them() -> None:
    assert video.__all__ == sorted(video.__all__)
    for name in video.__all__:
        assert getattr(video, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Wings'"):
        _ = video.Wings  # type: ignore[attr-defined]  # that is the point


def test_every_recipe_is_short_and_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guides" / "your-pose-network.md").read_text("utf-8")
    for file in EXAMPLES.glob("*.py"):
        if file.name == "publish_poses.py":  # of a fleet
            continue
        assert len(file.read_text("utf-8").splitlines()) <= 62, file.name
        if file.name != "score_onnx.py":
            assert f"examples/{file.name}" in guide


def test_nothing_imports_ultralytics() -> None:
    imports = re.compile(r"^\s*(import|from) ultralytics", re.MULTILINE)
    for folder in ("src", "tests", "examples", "scripts", "studies"):
        for file in (ROOT / folder).rglob("*.py"):
            assert not imports.search(file.read_text("utf-8")), file


class Still:
    """Boxes of one person in the middle of every picture."""

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        return [
            Boxes(np.array([[20, 10, 40, 40]], np.float32), np.ones(1, np.float32)) for _ in images
        ]


def test_a_detector_and_a_pose_network_of_different_makers_work_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = recipe("own_estimator")["BrightSpot"]()
    file = write_walker(tmp_path / "a.mkv")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clip = extract_clip(file, TopDown(Still(), own))
    assert [*tmp_path.iterdir()] == [file]
    assert (clip.n_frames, clip.fps, len(clip.tracks)) == (N_FRAMES, 10, 1)
    folder = write_pictures(tmp_path / "a", walking_images())
    assert extract_clip(folder, TopDown(Still(), own), picture_rate=10).digest() == clip.digest()
    (track,) = extract_clip(file, own).tracks
    assert track.keypoints[:, 0].tolist() == [[10 + i, 10] for i in range(N_FRAMES)]


def test_networks_of_rtmlib_see_bgr_and_only_people() -> None:
    given: list[int] = []

    def detector(image: Image) -> Any:
        given.append(int(image[0, 0, 2]))
        return np.array([[1.0, 2, 11, 22]]) if image[0, 0, 2] else np.array([])

    def pose(image: Image, bboxes: Any) -> Any:
        assert len(bboxes)
        return np.full((len(bboxes), 17, 2), 7.0), np.full((len(bboxes), 17), 1.2)

    names = recipe("rtmlib_networks")
    estimator = TopDown(names["RtmlibDetector"](detector), names["RtmlibPose"](pose))
    red, black = np.zeros((2, 30, 20, 3), np.uint8)
    red[..., 0] = 9
    boxes = estimator.detect([red, black])
    one, nobody = estimator.estimate([red, black], boxes)
    assert given == [9, 0]
    assert boxes[0].corners.tolist() == [[1, 2, 11, 22]]
    assert (len(one), len(nobody)) == (1, 0)
    assert one.keypoints[0, 3].tolist() == [7, 7]
    assert one.confidence.max() == 1


def test_landmarks_of_mediapipe_become_joints_of_the_picture() -> None:
    marks = [SimpleNamespace(x=i / 33, y=0.5, visibility=0.8) for i in range(33)]
    crops: list[tuple[int, ...]] = []

    def find(crop: Image) -> Sequence[Any]:
        crops.append(crop.shape)
        return marks if crop.any() else ()

    image = np.zeros((100, 200, 3), np.uint8)
    image[:50] = 255
    corners = np.array([[50, 10, 70, 50], [0, 70, 10, 80]], np.float32)
    boxes = Boxes(corners, np.ones(2, np.float32))
    (people,) = recipe("mediapipe_pose")["MediaPipePose"](find).estimate([image], [boxes])
    assert crops == [(52, 32, 3), (12, 11, 3)]
    for joint, name in enumerate(COCO17.joints):
        x = BLAZEPOSE.index(side(name)) / 33 * 32 + 44
        assert people.keypoints[0, joint].tolist() == pytest.approx([x, 0.5 * 52 + 4])
    assert people.confidence[0].tolist() == pytest.approx([0.8] * 17)
    assert people.confidence[1].max() == 0


def test_a_detector_can_be_opened_alone(tmp_path: Path) -> None:
    file = graphs.yolox(tmp_path / "d.onnx", {80: [0.5, 0.5, 0.0, 0.0, 1.0, 0.9]})
    (boxes,) = video.open_detector(file).detect([np.zeros((416, 416, 3), np.uint8)])
    assert len(boxes) == 1
