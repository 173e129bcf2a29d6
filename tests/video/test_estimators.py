"""Pose estimators: one's own, and the package's with the real networks where they are at hand."""

from __future__ import annotations

import builtins
import hashlib
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.config import PoseRuntime
from stepvad.errors import DataError, MissingExtraError, ModelFileError
from stepvad.people import Boxes, People, iou, no_boxes
from stepvad.tracker import Tracker
from stepvad.video.estimators import (
    RTMDET_MEAN,
    RTMDET_STD,
    PersonDetector,
    PoseEstimator,
    PoseNetwork,
    TopDown,
    decode_movenet,
    decode_rtmdet,
    decode_simcc,
    decode_yolox,
    grid,
    open_estimator,
    without_doubles,
)
from stepvad.video.graphs import Port
from stepvad.video.models import CARDS, ModelCard
from stepvad.video.networks import (
    ImageNetwork,
    PoseEngine,
    Region,
    crop,
    letterbox,
    open_network,
    region_around,
)
from stepvad.video.source import Image
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
        found.append(people.select(people.certain(0.25)))
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
    people = people.select(people.certain(0.25))
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


pytest.importorskip("cv2")
BLACK = np.zeros((64, 128, 3), np.uint8)


def test_cells_go_row_by_row_and_from_the_fine_grid_to_the_coarse() -> None:
    cells, strides = grid((64, 32))
    assert len(cells) == 8 * 4 + 4 * 2 + 2 * 1
    assert cells[0].tolist() == [0, 0]
    assert cells[9].tolist() == [1, 1]
    assert cells[32 + 5].tolist() == [1, 1]
    assert strides[[31, 32, 40]].tolist() == [8, 16, 32]


def test_yolox_boxes_by_hand() -> None:
    output = np.zeros((84, 85), np.float32)
    # cell 64 + 4 * 1 + 2 is (2, 1) of the grid of stride 16
    output[70] = 0.0
    output[70, :6] = [0.5, 0.25, np.log(2.0), np.log(3.0), 0.8, 0.5]
    output[3, :6] = [0, 0, 0, 0, 0.9, 0.1]  # 0.09 is too low
    output[4, [4, 6]] = 0.9  # certain, but of another class
    boxes = decode_yolox(output, (64, 64), 0.3)
    # centre (2.5, 1.25) * 16 = (40, 20), sides (2, 3) * 16 = (32, 48)
    np.testing.assert_allclose(boxes.corners, [[24, -4, 56, 44]], rtol=1e-6)
    np.testing.assert_allclose(boxes.scores, [0.4], rtol=1e-6)


def test_yolox_of_another_size_is_refused() -> None:
    with pytest.raises(ModelFileError, match="expected 84 cells"):
        decode_yolox(np.zeros((85, 85), np.float32), (64, 64), 0.3)


def test_rtmdet_keeps_certain_people() -> None:
    dets = np.array([[0, 0, 4, 4, 0.9], [0, 0, 5, 5, 0.2], [0, 0, 6, 6, 0.8]], np.float32)
    boxes = decode_rtmdet(dets, np.array([0, 0, 7]), 0.3)
    assert boxes.corners.tolist() == [[0, 0, 4, 4]]
    assert boxes.scores.tolist() == [1.0]


def test_scores_of_rtmdet_count_as_much_as_those_of_yolox() -> None:
    dets = np.array([[0, 0, 4, 4, 0.3], [9, 9, 13, 13, 0.4]], np.float32)
    boxes = decode_rtmdet(dets, np.zeros(2, np.int64), 0.3)
    # of YOLOX a tracker continues tracks from 0.5 and starts them from 0.55
    np.testing.assert_allclose(boxes.scores, [0.45, 0.55], rtol=1e-6)


def test_overlap_by_hand() -> None:
    a = np.array([[0, 0, 2, 2]], np.float32)
    b = np.array([[1, 1, 3, 3], [0, 0, 2, 2], [2, 0, 4, 2], [5, 5, 5, 5]], np.float32)
    np.testing.assert_allclose(iou(a, b), [[1 / 7, 1, 0, 0]], rtol=1e-6)
    assert iou(b[3:], b[3:]).tolist() == [[0]]  # a box without an area


@pytest.mark.parametrize(
    ("most_overlap", "kept"),
    [(0.3, [1, 3]), (0.95, [1, 0, 2, 3])],
)
def test_only_the_best_of_overlapping_boxes_stays(most_overlap: float, kept: list[int]) -> None:
    corners = [[0, 0, 10, 10], [1, 0, 11, 10], [2, 0, 12, 10], [50, 0, 60, 10]]
    boxes = Boxes(np.array(corners, np.float32), np.array([0.8, 0.9, 0.7, 0.4], np.float32))
    assert without_doubles(boxes, most_overlap).tolist() == kept


def test_a_box_removed_removes_no_others() -> None:
    corners = [[0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]]  # a chain: 0-1 and 1-2 overlap
    boxes = Boxes(np.array(corners, np.float32), np.array([0.9, 0.8, 0.7], np.float32))
    assert without_doubles(boxes, 0.3).tolist() == [0, 2]


def test_equal_scores_keep_the_first_and_no_boxes_keep_none() -> None:
    same = np.array([[0, 0, 10, 10], [0, 0, 10, 10]], np.float32)
    assert without_doubles(Boxes(same, np.array([0.5, 0.5], np.float32)), 0.5).tolist() == [0]
    assert len(without_doubles(Boxes(same[:0], np.empty(0, np.float32)), 0.5)) == 0


def test_a_tiny_yolox_gives_boxes_of_the_picture(tmp_path: Path) -> None:
    person = [0.5, 0.25, np.log(1.0), np.log(0.5), 0.8, 0.9]
    double = [0.5, 0.25, np.log(1.1), np.log(0.5), 0.8, 0.8]
    file = graphs.yolox(tmp_path / "y.onnx", {70: person, 71: [-0.5, *double[1:]]})
    (boxes, again) = PersonDetector(open_network(file)).detect([BLACK, BLACK])
    # (40, 20) with sides (16, 8) in the letterbox; the picture was halved
    np.testing.assert_allclose(boxes.corners, [[64, 32, 96, 48]], rtol=1e-5)
    np.testing.assert_allclose(boxes.scores, [0.72], rtol=1e-5)
    np.testing.assert_array_equal(again.corners, boxes.corners)


def test_boxes_end_at_the_border_and_those_beyond_are_left_out(tmp_path: Path) -> None:
    # the picture fills the upper 32 rows of the letterbox; cell 82 is (0, 1) of stride 32
    rows = {80: [0.5, 0.5, 1.0, 1.0, 1, 1], 82: [0.5, 0.5, -1.0, -1.0, 1, 1]}
    (boxes,) = PersonDetector(open_network(graphs.yolox(tmp_path / "y.onnx", rows))).detect([BLACK])
    assert boxes.corners.shape == (1, 4)
    assert boxes.corners[0, :2].tolist() == [0, 0]
    assert boxes.corners[0, 3] == 64


def test_a_tiny_rtmdet_takes_all_pictures_in_one_call(tmp_path: Path) -> None:
    file = graphs.rtmdet(tmp_path / "r.onnx", [[2, 4, 10, 20, 0.9], [0, 0, 9, 9, 0.9]], [0, 3])
    detector = PersonDetector(open_network(file))
    tall = np.zeros((128, 64, 3), np.uint8)
    wide, high = detector.detect([BLACK, tall])
    np.testing.assert_allclose(wide.corners, [[4, 8, 20, 40]])
    np.testing.assert_allclose(high.corners, [[4, 8, 20, 40]])
    assert detector.detect([]) == []


@pytest.mark.parametrize(("size", "fed"), [((64, 64), (64, 64)), (("height", "width"), (192, 320))])
def test_rtmdet_looks_at_pictures_320_wide_without_a_border(
    tmp_path: Path, size: tuple[object, object], fed: tuple[int, int]
) -> None:
    shapes = []
    network = open_network(graphs.rtmdet(tmp_path / "r.onnx", [[0, 0, 9, 9, 0.9]], [0], size=size))

    def watched(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        shapes.append(inputs[0].shape)
        return network.graph(inputs)

    (boxes,) = PersonDetector(replace(network, graph=watched)).detect(
        [np.zeros((360, 640, 3), np.uint8)]
    )
    assert shapes == [(1, 3, *fed)]
    np.testing.assert_allclose(boxes.corners[0, 2:] * fed[1] / 640, 9, rtol=1e-6)


def test_what_networks_are_fed() -> None:
    seen: list[np.ndarray] = []

    def graph(inputs: object) -> list[object]:
        seen.append(np.asarray(inputs)[0])
        return [np.zeros((1, 0, 5), np.float32), np.zeros((1, 0), np.int64)]

    ports = (Port("dets", (0, 0, 5)), Port("labels", (0, 0)))
    network = ImageNetwork(Path("r"), graph, Port("input", (0, 3, 2, 2)), ports)
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 255
    assert len(PersonDetector(network).detect([red])[0]) == 0
    expected = (np.array([0, 0, 255]) - RTMDET_MEAN) / RTMDET_STD
    np.testing.assert_allclose(seen[0][0, :, 1, 1], expected, rtol=1e-5)


def test_a_pose_network_is_no_detector(tmp_path: Path) -> None:
    file = graphs.movenet(tmp_path / "m.onnx", np.zeros((17, 3), np.float32))
    with pytest.raises(ModelFileError, match=r"expected a detector .*, got movenet"):
        PersonDetector(open_network(file))


pytest.importorskip("cv2")
PICTURE = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
ONE = Boxes(np.array([[10, 10, 30, 50]], np.float32), np.array([0.9], np.float32))


def test_a_crop_is_a_square_around_the_box() -> None:
    # the longer side is 40, 1.25 times is 50, the centre is (20, 30)
    assert region_around(ONE.corners[0], PICTURE, (192, 192)) == Region(-5, 5, 50, 50)


def test_a_crop_has_the_shape_of_the_network() -> None:
    # 40 high asks for 30 wide at 3 to 4; 1.25 times is 37.5 and 50
    assert region_around(ONE.corners[0], PICTURE, (192, 256)) == Region(1, 5, 38, 50)


def test_beyond_the_border_a_crop_is_black() -> None:
    region = Region(-5, 40, 50, 50)
    cut = crop(PICTURE, region, (50, 50))
    assert not cut[:, :5].any()
    assert not cut[20:].any()
    np.testing.assert_array_equal(cut[:20, 5:], PICTURE[40:, :45])
    assert not crop(PICTURE, Region(200, 200, 9, 9), (5, 5)).any()


def test_a_point_of_a_crop_goes_back_to_its_pixel() -> None:
    picture = np.zeros((200, 300, 3), np.uint8)
    picture[80:84, 120:124] = 255
    region = Region(100, 50, 64, 64)
    bright = np.argwhere(crop(picture, region, (192, 192))[..., 0] > 127) + 0.5
    middle = bright.mean(axis=0)[::-1] / 192
    np.testing.assert_allclose(region.to_picture(middle.astype(np.float32)), [122, 82], atol=1e-3)


@pytest.mark.parametrize("shape", [(576, 768), (994, 1768), (37, 911), (416, 416), (1000, 3)])
def test_a_letterbox_keeps_the_picture_at_the_top_left(shape: tuple[int, int]) -> None:
    picture = np.full((*shape, 3), 7, np.uint8)
    box, scale = letterbox(picture, (416, 416))
    inside = (box == 7).all(axis=2)
    assert inside[0, 0]
    width, height = inside.any(axis=0).sum(), inside.any(axis=1).sum()
    np.testing.assert_allclose(scale * shape[::-1], [width, height], rtol=1e-6)
    assert max(width, height) == 416
    assert (box[~inside] == 114).all()


def test_movenet_gives_y_before_x() -> None:
    output = np.zeros((1, 17, 3), np.float32)
    output[0, 4] = [0.25, 0.75, 0.6]
    xy, confidence = decode_movenet(output)
    assert xy[4].tolist() == [0.75, 0.25]
    assert confidence[4] == np.float32(0.6)


def test_simcc_by_hand() -> None:
    x, y = np.zeros((2, 384), np.float32), np.zeros((2, 512), np.float32)
    x[0, 96], y[0, 384] = 0.9, 0.5
    x[1], y[1] = -0.2, -0.1
    xy, confidence = decode_simcc(x, y, (192, 256))
    assert xy[0].tolist() == [0.25, 0.75]  # 48 of 192 and 192 of 256 pixels
    np.testing.assert_allclose(confidence, [0.5, 0.0])


def test_a_tiny_movenet_gives_joints_of_the_picture(tmp_path: Path) -> None:
    joints = np.tile(np.array([0.5, 0.1, 0.8], np.float32), (17, 1))
    pose = PoseNetwork(open_network(graphs.movenet(tmp_path / "m.onnx", joints)))
    nobody, somebody = pose.estimate([PICTURE, PICTURE], [no_boxes(), ONE])
    assert len(nobody) == 0
    # the crop is Region(-5, 5, 50, 50)
    np.testing.assert_allclose(somebody.keypoints[0, 3], [0, 30], atol=1e-5)
    np.testing.assert_allclose(somebody.confidence, 0.8)
    assert pose.estimate([], []) == []
    assert [len(people) for people in pose.estimate([PICTURE], [no_boxes()])] == [0]


def test_a_tiny_simcc_takes_everybody_in_one_call(tmp_path: Path) -> None:
    x, y = np.zeros((17, 384), np.float32), np.zeros((17, 512), np.float32)
    x[:, 192], y[:, 128] = 0.7, 0.6
    pose = PoseNetwork(open_network(graphs.simcc(tmp_path / "s.onnx", x, y)))
    two = Boxes(np.repeat(ONE.corners, 2, axis=0), np.array([0.9, 0.8], np.float32))
    first, second = pose.estimate([PICTURE, PICTURE], [two, ONE])
    assert (len(first), len(second)) == (2, 1)
    np.testing.assert_allclose(first.keypoints[1, 0], [1 + 38 / 2, 5 + 50 / 4], atol=1e-5)
    np.testing.assert_allclose(second.confidence, 0.6)


def test_people_of_a_low_mean_confidence_are_not_certain() -> None:
    confidence = np.tile(np.array([[0.0] * 8 + [0.5] * 9], np.float32), (2, 1))  # mean 0.265
    confidence[1, 8] = 0.0
    people = People(ONE.select(np.array([0, 0])), np.zeros((2, 17, 2), np.float32), confidence)
    assert people.certain(0.25).tolist() == [True, False]
    assert people.certain(0.0).all()


def test_a_detector_is_no_pose_network(tmp_path: Path) -> None:
    network = open_network(graphs.yolox(tmp_path / "y.onnx", {}))
    with pytest.raises(ModelFileError, match=r"expected a pose network .*, got yolox"):
        PoseNetwork(network)


def test_people_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"keypoints must have shape \(1, 17, 2\)"):
        People(ONE, np.zeros((2, 17, 2), np.float32), np.zeros((1, 17), np.float32))
    with pytest.raises(DataError, match="expected finite numbers"):
        Boxes(np.full((1, 4), np.nan, np.float32), np.ones(1, np.float32))


def test_a_picture_that_shrinks_a_lot_is_averaged_not_sampled() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200  # every other column, which sampling would take or miss as a whole
    assert np.unique(crop(stripes, Region(0, 0, 64, 64), (8, 8))).tolist() == [100]
