"""Pose estimators: one's own, and the package's with the real networks where they are at hand."""

from __future__ import annotations

import builtins
import hashlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.config import PoseRuntime
from stepvad.errors import MissingExtraError, ModelFileError
from stepvad.video.engine import PoseEngine
from stepvad.video.models import CARDS, ModelCard
from stepvad.video.networks import open_network
from stepvad.video.pixels import Image
from stepvad.video.pose import PoseEstimator, TopDown, open_estimator
from stepvad.video.tracker import Tracker
from tests.video import graphs

ROOT = Path(__file__).parents[2]


def test_an_estimator_of_ones_own_feeds_a_tracker() -> None:
    own: PoseEstimator = runpy.run_path(str(ROOT / "examples" / "own_estimator.py"))["BrightSpot"]()
    pictures = np.zeros((3, 40, 60, 3), np.uint8)
    for at, picture in enumerate(pictures):
        picture[10:30, 5 + at : 15 + at] = 255
    tracker = Tracker()
    ids = []
    for picture in pictures:
        (people,) = own.estimate([picture], own.detect([picture]))
        (pose,) = tracker.update(people)
        ids.append(pose.track_id)
    assert len(set(ids)) == 1
    assert pose.keypoints[0].tolist() == [12, 10]
    assert len(own.detect([np.zeros((4, 4, 3), np.uint8)])[0]) == 0


def test_a_file_that_is_no_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"not a network")
    with pytest.raises(ModelFileError, match="expected a network in ONNX"):
        open_network(tmp_path / "x.onnx")


def test_a_network_that_takes_no_pictures_is_refused(tmp_path: Path) -> None:
    file = graphs.save(tmp_path / "x.onnx", [1, 3], {"y": np.zeros((1, 2), np.float32)})
    with pytest.raises(ModelFileError, match="expected one input of stacked pictures"):
        open_network(file)


def test_a_network_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    file = graphs.save(tmp_path / "x.onnx", [1, 3, 4, 4], {"y": np.zeros((1, 2), np.float32)})
    with pytest.raises(ModelFileError, match=r"expected a detector .* got the outputs y"):
        open_network(file).kind()


@pytest.mark.parametrize(("module", "extra"), [("openvino", "openvino"), ("cv2", "video")])
def test_a_missing_library_names_its_extra(
    module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refusing(name: str, *rest: Any) -> Any:
        if name == module:
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    yolox = graphs.yolox(tmp_path / "y.onnx", {})
    movenet = graphs.movenet(tmp_path / "m.onnx", np.zeros((17, 3), np.float32))
    monkeypatch.setattr(builtins, "__import__", refusing)
    runtime: PoseRuntime = "openvino" if module == "openvino" else "onnxruntime"
    with pytest.raises(MissingExtraError, match=f"needs the {extra} extra"):
        open_estimator(yolox, movenet, runtime=runtime).detect([np.zeros((9, 9, 3), np.uint8)])


@pytest.fixture(scope="module")
def models(data_dir: Path) -> Path:
    """The directory of the real networks, beside the public data."""
    directory = data_dir.parent / "models"
    if not directory.is_dir():
        pytest.skip(f"no networks at {directory}")
    return directory


@pytest.fixture(scope="module")
def street(data_dir: Path) -> Image:
    """The first picture of a clip with pedestrians."""
    av = pytest.importorskip("av")
    clip = data_dir.parent / "media" / "vtest.avi"
    if not clip.is_file():
        pytest.skip(f"no clip at {clip}")
    with av.open(str(clip)) as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


@pytest.mark.data
@pytest.mark.parametrize("card", [card for card in CARDS if not card.url], ids=lambda c: c.name)
def test_cards_tell_the_truth(card: ModelCard, models: Path) -> None:
    content = (models / card.file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == card.sha256
    assert open_network(models / card.file).kind() == "movenet"


@pytest.mark.data
def test_both_runtimes_find_the_same_people(models: Path, street: Image) -> None:
    pytest.importorskip("cv2")
    pytest.importorskip("openvino")
    found = []
    for engine in (PoseEngine("onnxruntime"), PoseEngine("openvino")):
        estimator = _real(models, engine)
        (people,) = estimator.estimate([street], estimator.detect([street]))
        found.append(people.take(people.certain(0.25)))
    here, there = found
    assert len(here) == len(there) == 3
    np.testing.assert_allclose(here.boxes.corners, there.boxes.corners, atol=0.01)
    np.testing.assert_allclose(here.keypoints, there.keypoints, atol=0.1)
    np.testing.assert_allclose(here.confidence, there.confidence, atol=0.01)


@pytest.mark.data
def test_joints_of_pedestrians_stand_upright_in_their_boxes(models: Path, street: Image) -> None:
    pytest.importorskip("cv2")
    estimator = _real(models, PoseEngine())
    (people,) = estimator.estimate([street], estimator.detect([street]))
    people = people.take(people.certain(0.25))
    corners, joints = people.boxes.corners, people.keypoints
    assert (joints[:, 0, 1] < joints[:, 11, 1]).all()
    assert (joints[:, 11, 1] < joints[:, 15, 1]).all()
    margin = 0.2 * (corners[:, None, 2:] - corners[:, None, :2])
    assert (joints > corners[:, None, :2] - margin).mean() > 0.95
    assert (joints < corners[:, None, 2:] + margin).mean() > 0.95


def _real(models: Path, engine: PoseEngine) -> TopDown:
    return open_estimator(
        models / "yolox_nano.onnx", models / "movenet-lightning.onnx", runtime=engine
    )
