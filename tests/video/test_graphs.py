"""Adapted graphs: the same numbers as the untouched ones, what stays as it is, and the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from stepvad.people import Boxes
from stepvad.video import graphs as stored
from stepvad.video.estimators import PersonDetector, PoseNetwork
from stepvad.video.graphs import main, movenet_pixels, prepare_networks, read_graph, stored_graph
from stepvad.video.networks import CROPS, ImageNetwork, PoseEngine, open_network
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


def movenet(path: Path, *, size: int = 32, scale: float = 1 / 127.5) -> Path:
    """A MoveNet of few channels; with another `scale` it normalises in another way."""
    net = Layout()
    value = net.add("Cast", "input", to=TensorProto.FLOAT)
    value = net.add("Split", value, net.constant([1]), axis=0)
    value = net.add("Squeeze", value, net.constant([0]))
    value = net.add("Unsqueeze", value, net.constant([0]))
    value = net.add("Mul", value, net.half(scale))
    value = net.add("Sub", value, net.half(1.0))
    value = net.add("Transpose", value, perm=[0, 3, 1, 2])
    weights = net.half(net.weights(51, 3, 3, 3))
    sides: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2]}
    value = net.add("Conv", value, weights, auto_pad="SAME_UPPER", **sides)
    value = net.add("ReduceMax", value, axes=[2, 3], keepdims=0)
    net.add("Reshape", value, net.constant([1, 1, 17, 3]))
    return net.save(path, TensorProto.INT32, [1, size, size, 3], [1, 1, 17, 3])


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
    """The untouched network on ONNX Runtime, and the adapted one."""
    if engine.library == "openvino":
        pytest.importorskip("openvino")
    whole = open_network(file, runtime=PoseEngine(), adapt=False)
    adapted = open_network(file, runtime=engine)
    assert whole.kind() == adapted.kind()
    assert whole.size((0, 0)) == adapted.size((0, 0))
    return whole, adapted


def outputs(network: ImageNetwork, stack: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The first output for every picture."""
    fed: NDArray[Any] = stack.astype(np.int32)
    if network.kind() == "yolox":
        fed = np.ascontiguousarray(stack[..., ::-1].transpose(0, 3, 1, 2), np.float32)
    elif network.input.shape[1] == 3:
        fed = movenet_pixels(stack)
    return np.stack([result[0] for result in network(fed)])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [yolox, movenet])
def test_an_adapted_network_gives_the_same(
    make: Callable[[Path], Path], engine: PoseEngine, tmp_path: Path
) -> None:
    file = make(tmp_path / "x.onnx")
    whole, adapted = both(file, engine)
    assert stored_graph(file).content != file.read_bytes()
    stack = pictures(3, whole.size((0, 0))[0])
    expected = outputs(whole, stack)
    assert expected.std(axis=0).max() > 1e-3
    np.testing.assert_allclose(outputs(adapted, stack), expected, atol=2e-4)  # of float16


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(48, 64, 3), (64, 30, 3), (27, 64, 3)])
def test_a_yolox_takes_the_shape_of_the_picture(
    engine: PoseEngine, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    _, adapted = both(yolox(tmp_path / "y.onnx", size=64), engine)
    seen: list[tuple[int, ...]] = []

    def watched(inputs: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        seen.append(inputs[0].shape)
        (rows,) = adapted.graph(inputs)
        assert rows.shape == (1, cells(inputs[0].shape[2:]), 85)
        return [rows]

    detector = PersonDetector(replace(adapted, graph=watched))
    detector.detect([np.zeros(shape, np.uint8)] * 2)
    height, width = (-(-side // 32) * 32 for side in shape[:2])
    assert seen == [(1, 3, height, width)] * 2


def cells(shape: tuple[int, ...]) -> int:
    """Cells of all grids of a YOLOX."""
    return sum(shape[0] // stride * (shape[1] // stride) for stride in (8, 16, 32))


def test_pictures_of_several_shapes_get_their_own_boxes(tmp_path: Path) -> None:
    detector = PersonDetector(open_network(yolox(tmp_path / "y.onnx")), least_score=0.0)
    wide, tall = pictures(1, 64)[0, :32], pictures(1, 64)[0, :, :32]
    together = detector.detect([wide, tall, wide])
    for image, boxes in zip([wide, tall, wide], together, strict=True):
        (alone,) = detector.detect([image])
        assert len(alone) > 0
        np.testing.assert_allclose(boxes.corners, alone.corners, rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda file: movenet(file, scale=1 / 255), id="other-pixels"),
        pytest.param(lambda file: graphs.yolox(file, {}), id="cells-in-a-constant"),
        pytest.param(
            lambda file: graphs.movenet(file, np.zeros((17, 3), np.float32)), id="no-transposition"
        ),
    ],
)
def test_an_unknown_layout_stays_as_it_is(make: Callable[[Path], Path], tmp_path: Path) -> None:
    file = make(tmp_path / "x.onnx")
    assert stored_graph(file) == read_graph(file, adapt=False)


def test_a_movenet_of_an_unknown_layout_still_finds_joints(tmp_path: Path) -> None:
    pose = PoseNetwork(open_network(movenet(tmp_path / "o.onnx", scale=1 / 255)))
    boxes = Boxes(np.array([[0, 0, 30, 30], [9, 9, 60, 60]], np.float32), np.ones(2, np.float32))
    (people,) = pose.estimate([pictures(1, 64)[0]], [boxes])
    assert len(people) == 2


def test_a_graph_is_read_from_the_store_and_anew_if_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPVAD_CACHE", str(tmp_path / "cache"))
    file = yolox(tmp_path / "y.onnx")
    main([str(file), str(movenet(tmp_path / "m.onnx")), "no-network"])
    first, kept = stored_graph(file), [*(tmp_path / "cache" / "graphs").iterdir()]
    assert len(kept) == 2
    # what is stored is enough: the file is not read with onnx again
    with monkeypatch.context() as patched:
        patched.setattr(stored, "read_graph", lambda file: pytest.fail("read again"))
        prepare_networks(str(file))
        assert stored_graph(file) == first
    for one in kept:
        one.write_bytes(one.read_bytes()[:-9])
    assert stored_graph(file) == first
    assert stored_graph(file) == first
    # a cache that cannot be written costs time and nothing else
    monkeypatch.setenv("STEPVAD_CACHE", str(file))
    assert stored_graph(file) == first


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_are_dealt_to_several_threads(engine: PoseEngine, tmp_path: Path) -> None:
    if engine.library == "openvino":
        pytest.importorskip("openvino")
    file, stack = movenet(tmp_path / "m.onnx"), movenet_pixels(pictures(4, 32))
    alone = open_network(file, runtime=engine)(stack)
    network = open_network(file, runtime=engine, threads=2)
    both = threading.Barrier(2, timeout=30)

    def graph(inputs: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        both.wait()  # breaks unless two threads come
        return network.graph(inputs)

    np.testing.assert_allclose(replace(network, graph=graph)(stack), alone, atol=1e-5)


def test_calls_have_few_sizes(tmp_path: Path) -> None:
    calls: list[int] = []

    def graph(inputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        calls.append(len(inputs[0]))
        return [inputs[0].reshape(len(inputs[0]), -1)[:, :1]]

    network = replace(open_network(movenet(tmp_path / "m.onnx")), graph=graph, batches=CROPS)
    stack = np.arange(15, dtype=np.uint8).reshape(15, 1, 1, 1)
    assert [int(result[0][0]) for result in network(stack)] == list(range(15))
    assert calls == [8, 4, 2, 1]
    assert network(stack[:0]) == []


@pytest.mark.data
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["yolox_nano", "movenet-lightning", "movenet-thunder"])
def test_the_published_networks_are_adapted(
    name: str, engine: PoseEngine, models: Path, street: NDArray[np.uint8]
) -> None:
    whole, adapted = both(models / f"{name}.onnx", engine)
    assert adapted.any_size or adapted.input.shape[1] == 3 != whole.input.shape[1]
    side = adapted.size((0, 0))[0]
    stack = np.stack([street[y : y + side, x : x + side] for y, x in ((50, 40), (100, 300))])
    np.testing.assert_allclose(outputs(adapted, stack), outputs(whole, stack), atol=2e-4)


@pytest.mark.data
def test_a_rectangle_finds_the_people_of_the_square(
    models: Path, street: NDArray[np.uint8]
) -> None:
    whole, adapted = both(models / "yolox_nano.onnx", PoseEngine())
    (square,) = PersonDetector(whole).detect([street])
    (rectangle,) = PersonDetector(adapted).detect([street])
    assert len(square) == len(rectangle) >= 3
    np.testing.assert_allclose(square.corners, rectangle.corners, atol=3)
    np.testing.assert_allclose(square.scores, rectangle.scores, atol=0.02)
