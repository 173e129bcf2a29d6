"""Simplified networks: the same numbers as the untouched ones, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from stepvad.video.cleaning import cleaned
from stepvad.video.detection import PersonDetector
from stepvad.video.engine import PoseEngine
from stepvad.video.keypoints import PoseNetwork
from stepvad.video.networks import CROPS, ImageNetwork, open_network
from stepvad.video.people import Boxes
from tests.video import graphs, layouts
from tests.video.test_pose import models, street

__all__ = ["models", "street"]

pytest.importorskip("cv2")

RNG = np.random.default_rng(0)
ENGINES = [
    pytest.param(PoseEngine(), id="onnxruntime"),
    pytest.param(PoseEngine("openvino"), id="openvino"),
]


def pictures(number: int, size: int) -> NDArray[np.uint8]:
    """Coarse noise with fine noise on it."""
    coarse = RNG.integers(0, 200, (number, size // 8, size // 8, 3)).repeat(8, 1).repeat(8, 2)
    return (coarse + RNG.integers(0, 55, coarse.shape)).astype(np.uint8)


def both(file: Path, engine: PoseEngine) -> tuple[ImageNetwork, ImageNetwork]:
    """The untouched network on ONNX Runtime, and the simplified one."""
    if engine.library == "openvino":
        pytest.importorskip("openvino")
    whole = open_network(file, runtime=PoseEngine(), clean=False)
    clean = open_network(file, runtime=engine)
    assert (whole.clean, clean.clean) == (False, True)
    assert whole.kind() == clean.kind()
    assert whole.size((0, 0)) == clean.size((0, 0))
    return whole, clean


def outputs(network: ImageNetwork, stack: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The first output for every picture."""
    if not network.clean and network.kind() == "yolox":
        bgr = np.ascontiguousarray(stack[..., ::-1].transpose(0, 3, 1, 2), np.float32)
        return np.stack([result[0] for result in network(bgr)])
    fed = stack if network.clean else stack.astype(np.int32)
    return np.stack([result[0] for result in network(fed)])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_clean_yolox_gives_the_first_six_columns(engine: PoseEngine, tmp_path: Path) -> None:
    whole, clean = both(layouts.yolox(tmp_path / "y.onnx"), engine)
    stack = pictures(3, 64)
    expected = outputs(whole, stack)[..., :6]
    assert expected.std(axis=1).min() > 1e-3
    np.testing.assert_allclose(outputs(clean, stack), expected, atol=2e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_clean_movenet_takes_any_number_of_people(engine: PoseEngine, tmp_path: Path) -> None:
    whole, clean = both(layouts.movenet(tmp_path / "m.onnx"), engine)
    for number in (1, 7, 9):
        stack = pictures(number, 32)
        expected = outputs(whole, stack)
        assert number == 1 or np.ptp(expected[..., :2], axis=0).max() > 0.2
        np.testing.assert_allclose(outputs(clean, stack), expected, atol=2e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(48, 64, 3), (64, 30, 3), (27, 64, 3)])
def test_a_clean_yolox_takes_the_shape_of_the_picture(
    engine: PoseEngine, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    _, clean = both(layouts.yolox(tmp_path / "y.onnx", size=64), engine)
    seen: list[tuple[int, ...]] = []

    def watched(inputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
        seen.append(inputs[0].shape)
        return [np.zeros((1, cells(inputs[0].shape), 6), np.float32)]

    detector = PersonDetector(replace(clean, graph=watched))
    detector.detect([np.zeros(shape, np.uint8)] * 2)
    height, width = (-(-side // 32) * 32 for side in shape[:2])
    assert seen == [(1, height, width, 3)] * 2


def cells(shape: tuple[int, ...]) -> int:
    """Cells of all grids of a YOLOX."""
    return sum(shape[1] // stride * (shape[2] // stride) for stride in (8, 16, 32))


def test_pictures_of_several_shapes_get_their_own_boxes(tmp_path: Path) -> None:
    detector = PersonDetector(open_network(layouts.yolox(tmp_path / "y.onnx")), least_score=0.0)
    wide, tall = pictures(1, 64)[0, :32], pictures(1, 64)[0, :, :32]
    together = detector.detect([wide, tall, wide])
    for image, boxes in zip([wide, tall, wide], together, strict=True):
        (alone,) = detector.detect([image])
        assert len(alone) > 0
        np.testing.assert_allclose(boxes.corners, alone.corners, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(lambda file: layouts.movenet(file, spare=True), "movenet", id="other-end"),
        pytest.param(lambda file: graphs.yolox(file, {}), "yolox", id="no-convolution"),
        pytest.param(
            lambda file: graphs.movenet(file, np.zeros((17, 3), np.float32)), "movenet", id="none"
        ),
    ],
)
def test_an_unknown_layout_stays_as_it_is(
    make: Callable[[Path], Path], kind: str, tmp_path: Path
) -> None:
    file = make(tmp_path / "x.onnx")
    assert cleaned(onnx.load(file), kind) is None
    assert not open_network(file).clean


def test_slices_of_other_pixels_are_not_folded(tmp_path: Path) -> None:
    assert cleaned(onnx.load(layouts.yolox(tmp_path / "x.onnx", step=3)), "yolox") is None


def test_a_movenet_of_an_unknown_layout_still_finds_joints(tmp_path: Path) -> None:
    known = PoseNetwork(open_network(layouts.movenet(tmp_path / "m.onnx")))
    other = PoseNetwork(open_network(layouts.movenet(tmp_path / "o.onnx", spare=True)))
    assert (known.network.clean, other.network.clean) == (True, False)
    boxes = Boxes(np.array([[0, 0, 30, 30], [9, 9, 60, 60]], np.float32), np.ones(2, np.float32))
    image = pictures(1, 64)[0]
    (here,), (there,) = known.estimate([image], [boxes]), other.estimate([image], [boxes])
    np.testing.assert_allclose(here.keypoints, there.keypoints, atol=1e-3)
    np.testing.assert_allclose(here.confidence, there.confidence, atol=1e-5)


def test_calls_have_few_sizes(tmp_path: Path) -> None:
    calls: list[int] = []

    def graph(inputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        calls.append(len(inputs[0]))
        return [inputs[0].reshape(len(inputs[0]), -1)[:, :1]]

    network = open_network(layouts.movenet(tmp_path / "m.onnx"))
    network = replace(network, graph=graph, batches=CROPS)
    stack = np.arange(15, dtype=np.uint8).reshape(15, 1, 1, 1)
    assert [int(result[0][0]) for result in network(stack)] == list(range(15))
    assert calls == [8, 4, 2, 1]
    assert network(stack[:0]) == []


@pytest.mark.data
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["yolox_nano", "movenet-lightning", "movenet-thunder"])
def test_the_published_networks_are_simplified(
    name: str, engine: PoseEngine, models: Path, street: NDArray[np.uint8]
) -> None:
    whole, clean = both(models / f"{name}.onnx", engine)
    side = clean.size((0, 0))[0]
    stack = np.stack([street[y : y + side, x : x + side] for y, x in ((50, 40), (100, 300))])
    expected = outputs(whole, stack)[..., :6]
    np.testing.assert_allclose(outputs(clean, stack), expected, atol=2e-4)


@pytest.mark.data
def test_a_rectangle_finds_the_people_of_the_square(
    models: Path, street: NDArray[np.uint8]
) -> None:
    whole, clean = both(models / "yolox_nano.onnx", PoseEngine())
    (square,) = PersonDetector(whole).detect([street])
    (rectangle,) = PersonDetector(clean).detect([street])
    assert len(square) == len(rectangle) >= 3
    np.testing.assert_allclose(square.corners, rectangle.corners, atol=3)
    np.testing.assert_allclose(square.scores, rectangle.scores, atol=0.02)
