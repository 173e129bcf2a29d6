"""Simplified networks: the same numbers as the untouched ones, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from stepvad.people import Boxes
from stepvad.video.estimators import PersonDetector, PoseNetwork
from stepvad.video.networks import CROPS, ImageNetwork, PoseEngine, open_network
from stepvad.video.simplify import cleaned
from tests.video import graphs
from tests.video.test_estimators import models, street

FAR = np.iinfo(np.int64).max


class Layout:
    """A graph under construction."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.rng = np.random.default_rng(seed)

    def constant(self, values: Any, kind: Any = np.int64) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def half(self, values: Any) -> str:
        """A constant kept as float16 and cast, as MoveNet's are."""
        return self.add("Cast", self.constant(values, np.float16), to=TensorProto.FLOAT)

    def add(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """Append a node."""
        name = f"v{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, results))]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return name

    def weights(self, *shape: int) -> NDArray[np.float32]:
        """Random weights that keep values near one."""
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        return (self.rng.normal(size=shape) / np.sqrt(fan)).astype(np.float32)

    def save(self, path: Path, given: int, shape: list[int], result: list[int]) -> Path:
        """Write the network; its output is that of the last node."""
        self.nodes[-1].output[0] = "output"
        graph = helper.make_graph(
            self.nodes,
            "layout",
            [helper.make_tensor_value_info("input", given, shape)],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, result)],
            self.constants,
        )
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        path.write_bytes(model.SerializeToString())
        return path


def yolox(path: Path, *, size: int = 64, step: int = 2) -> Path:
    """A YOLOX of eight channels; `step` other than 2 takes other pixels than YOLOX does."""
    net = Layout()

    def conv(name: str, channels: int, inner: int = 8, kernel: int = 3, stride: int = 1) -> str:
        weights = net.constant(net.weights(channels, inner, kernel, kernel), np.float32)
        bias = net.constant(net.weights(channels), np.float32)
        sides: dict[str, Any] = {
            "pads": [kernel // 2] * 4,
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
        }
        return net.add("Conv", name, weights, bias, **sides)

    def swish(name: str) -> str:
        return net.add("Mul", name, net.add("Sigmoid", name))

    def every_other(name: str, start: int, axis: int) -> str:
        ends = (net.constant([value]) for value in (start, FAR, axis, step))
        return net.add("Slice", name, *ends)

    parts = [
        every_other(every_other("input", dy, 2), dx, 3)
        for dy, dx in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    value = conv(net.add("Concat", *parts, axis=1), 8, 12)
    value = swish(net.add("Mul", value, net.constant(1 / 64, np.float32)))
    grids = []
    for _ in range(4):
        value = swish(conv(value, 8, stride=2))
        grids.append(value)
    scales = net.constant([1, 1, 2, 2], np.float32)
    finer = net.add("Resize", grids[3], net.constant([], np.float32), scales, mode="nearest")
    grids[2] = net.add("Concat", net.add("Add", grids[2], finer), axis=1)
    rows = []
    for grid in grids[1:]:
        box, certain, kinds = conv(grid, 4, 8, 1), conv(grid, 1, 8, 1), conv(grid, 80, 8, 1)
        parts = [box, net.add("Sigmoid", certain), net.add("Sigmoid", kinds)]
        rows.append(net.add("Concat", *parts, axis=1))
    flat = [net.add("Reshape", row, net.constant([1, 85, -1])) for row in rows]
    net.add("Transpose", net.add("Concat", *flat, axis=2), perm=[0, 2, 1])
    cells = sum((size // stride) ** 2 for stride in (8, 16, 32))
    return net.save(path, TensorProto.FLOAT, [1, 3, size, size], [1, cells, 85])


def movenet(path: Path, *, size: int = 32, spare: bool = False) -> Path:
    """A MoveNet of eight channels on a quarter of the pixels; `spare` adds a node to its end."""
    net, side = Layout(), size // 4
    first, last = [0, 3, 1, 2], [0, 2, 3, 1]

    def conv(name: str, channels: int, inner: int, kernel: int = 3, stride: int = 1) -> str:
        weights = net.half(net.weights(channels, inner, kernel, kernel))
        bias = net.half(net.weights(channels))
        turned = net.add("Transpose", name, perm=first)
        sides: dict[str, Any] = {
            "auto_pad": "SAME_UPPER",
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
        }
        return net.add("Transpose", net.add("Conv", turned, weights, bias, **sides), perm=last)

    value = net.add("Cast", "input", to=TensorProto.FLOAT)
    value = net.add("Split", value, net.constant([1]), axis=0)
    value = net.add("Squeeze", value, net.constant([0]))
    value = net.add("Unsqueeze", value, net.constant([0]))
    value = net.add("Sub", value, net.half(np.full((1, 1, 1, 3), 3.0)))
    value = net.add("Mul", value, net.half(np.array([[[[0.008, 0.009, 0.007]]]])))
    value = net.add("Sub", value, net.half(1.0))
    value = conv(conv(value, 8, 3, stride=2), 8, 8, stride=2)
    value = net.add("Add", conv(value, 8, 8), value)
    heat, regression, centre, offset = (conv(value, n, 8, 1) for n in (17, 34, 1, 34))
    joints = _joints(net, side, heat, centre, regression, offset)
    if spare:
        joints = net.add("Neg", net.add("Neg", joints))
    net.add("Identity", joints)
    return net.save(path, TensorProto.INT32, [1, size, size, 3], [1, 1, 17, 3])


def _joints(net: Layout, side: int, heat: str, centre: str, regression: str, offset: str) -> str:
    """One person's joints from four maps, as published."""
    rows, columns = np.mgrid[:side, :side]
    heat, centre = net.add("Sigmoid", heat), net.add("Sigmoid", centre)
    weights = 1 / (np.hypot(rows - side / 2, columns - side / 2) + 1.8)
    weighted = net.add("Mul", centre, net.half(weights[..., None]))
    middle = net.add("Reshape", weighted, net.constant([1, -1, 1]))
    y, x, at_y, at_x = _cell(net, middle, side)
    at = _stack(net, net.constant([0], np.int32), at_y, at_x)
    moved = net.add("GatherND", regression, net.add("Cast", at, to=TensorProto.INT64))
    moved = net.add("Reshape", moved, net.constant([17, -1]))
    dy, dx = _columns(net, moved)
    expected = net.add("Add", y, dy), net.add("Add", x, dx)
    squares = []
    for places, name in zip((rows, columns), expected, strict=True):
        away = net.add("Sub", net.half(places[..., None]), name)
        squares.append(net.add("Mul", away, away))
    distance = net.add("Sqrt", net.add("Add", *squares))
    near = net.add("Div", heat, net.add("Add", distance, net.half(1.8)))
    near = net.add("Reshape", near, net.constant([1, -1, 17]))
    y, x, at_y, at_x = _cell(net, near, side)
    at = _stack(net, net.constant(np.zeros(17), np.int32), at_y, at_x)
    each = net.constant(np.arange(17)[:, None], np.int32)
    at_each = net.add("Concat", at, each, axis=1)
    within = net.add("GatherND", offset, net.add("Cast", at, to=TensorProto.INT64))
    sure = net.add("GatherND", heat, net.add("Cast", at_each, to=TensorProto.INT64))
    within = net.add("Reshape", within, net.constant([17, 17, -1]))
    sure = net.add("Unsqueeze", sure, net.constant([0]))
    own = net.constant(np.stack([np.arange(17)] * 2, axis=1), np.int32)
    within = net.add("GatherND", within, net.add("Cast", own, to=TensorProto.INT64))
    sure = net.add("Unsqueeze", sure, net.constant([0]))
    dy, dx = _columns(net, within)
    sure = net.add("Unsqueeze", sure, net.constant([-1]))
    dy, dx = (net.add("Unsqueeze", name, net.constant([0])) for name in (dy, dx))
    y, x = net.add("Add", y, dy), net.add("Add", x, dx)
    parts = [net.add("Unsqueeze", name, net.constant([2])) for name in (y, x)]
    places = net.add("Unsqueeze", net.add("Concat", *parts, axis=2), net.constant([0]))
    places = net.add("Mul", places, net.half([[[[1 / side, 1 / side]]]]))
    return net.add("Concat", places, sure, axis=3)


def _cell(net: Layout, values: str, side: int) -> tuple[str, str, str, str]:
    """Row and column of the highest cell, as floats and as indices."""
    width = net.constant(side, np.int32)
    best = net.add("ArgMax", values, axis=1, keepdims=0)
    best = net.add("Cast", best, to=TensorProto.INT32)
    row = net.add("Div", best, width)
    y = net.add("Cast", row, to=TensorProto.FLOAT)
    at_y = net.add("Reshape", row, net.constant([-1]))
    column = net.add("Sub", best, net.add("Mul", row, width))
    x = net.add("Cast", column, to=TensorProto.FLOAT)
    return y, x, at_y, net.add("Reshape", column, net.constant([-1]))


def _stack(net: Layout, *columns: str) -> str:
    turned = [net.add("Unsqueeze", name, net.constant([1])) for name in columns]
    return net.add("Concat", *turned, axis=1)


def _columns(net: Layout, pairs: str) -> tuple[str, str]:
    both = net.add("Split", pairs, net.constant([1, 1]), axis=1, results=2)
    one = net.constant([1])
    return net.add("Squeeze", both, one), net.add("Squeeze", f"{both}_1", one)


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
    whole, clean = both(yolox(tmp_path / "y.onnx"), engine)
    stack = pictures(3, 64)
    expected = outputs(whole, stack)[..., :6]
    assert expected.std(axis=1).min() > 1e-3
    np.testing.assert_allclose(outputs(clean, stack), expected, atol=2e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_clean_movenet_takes_any_number_of_people(engine: PoseEngine, tmp_path: Path) -> None:
    whole, clean = both(movenet(tmp_path / "m.onnx"), engine)
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
    _, clean = both(yolox(tmp_path / "y.onnx", size=64), engine)
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
    detector = PersonDetector(open_network(yolox(tmp_path / "y.onnx")), least_score=0.0)
    wide, tall = pictures(1, 64)[0, :32], pictures(1, 64)[0, :, :32]
    together = detector.detect([wide, tall, wide])
    for image, boxes in zip([wide, tall, wide], together, strict=True):
        (alone,) = detector.detect([image])
        assert len(alone) > 0
        np.testing.assert_allclose(boxes.corners, alone.corners, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(lambda file: movenet(file, spare=True), "movenet", id="other-end"),
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
    assert cleaned(onnx.load(yolox(tmp_path / "x.onnx", step=3)), "yolox") is None


def test_a_movenet_of_an_unknown_layout_still_finds_joints(tmp_path: Path) -> None:
    known = PoseNetwork(open_network(movenet(tmp_path / "m.onnx")))
    other = PoseNetwork(open_network(movenet(tmp_path / "o.onnx", spare=True)))
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

    network = open_network(movenet(tmp_path / "m.onnx"))
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
