"""Person detectors: what the numbers of a network mean, and tiny networks end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import ModelFileError
from stepvad.video.detection import (
    RTMDET_MEAN,
    RTMDET_STD,
    PersonDetector,
    decode_rtmdet,
    decode_yolox,
    grid,
    without_doubles,
)
from stepvad.video.networks import ImageNetwork, Port, open_network
from stepvad.video.people import Boxes, iou
from tests.video import graphs

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
