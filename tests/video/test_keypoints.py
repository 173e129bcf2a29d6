"""Pose networks: what their numbers mean, crops and the way back, tiny networks end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError, ModelFileError
from stepvad.video.keypoints import PoseNetwork, decode_movenet, decode_simcc
from stepvad.video.networks import open_network
from stepvad.video.people import Boxes, People, no_boxes
from stepvad.video.pixels import Region, crop, letterbox, region_around
from tests.video import graphs

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
    people = People(ONE.take(np.array([0, 0])), np.zeros((2, 17, 2), np.float32), confidence)
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
