"""Tiny networks with the inputs and outputs of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


def save(
    path: Path,
    shape: list[Any],
    outputs: dict[str, NDArray[Any]],
    *,
    element: int = TensorProto.FLOAT,
) -> Path:
    """A graph that answers every picture with the same outputs `(1, ...)`, once per picture.

    Where the number of pictures is free, every output is repeated for each of them.
    """
    free = isinstance(shape[0], str)
    nodes = []
    constants = [numpy_helper.from_array(array, f"{name}_c") for name, array in outputs.items()]
    if free:
        nodes.append(helper.make_node("Shape", ["input"], ["n"], start=0, end=1))
    for name, array in outputs.items():
        if free:
            rest = numpy_helper.from_array(np.ones(array.ndim - 1, np.int64), f"{name}_rest")
            constants.append(rest)
            nodes.append(helper.make_node("Concat", ["n", f"{name}_rest"], [f"{name}_n"], axis=0))
            nodes.append(helper.make_node("Tile", [f"{name}_c", f"{name}_n"], [name]))
        else:
            nodes.append(helper.make_node("Identity", [f"{name}_c"], [name]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", element, shape)],
        [_value(name, array, shape[0]) for name, array in outputs.items()],
        constants,
    )
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    )
    return path


def _value(name: str, array: NDArray[Any], number: Any) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, element, [number, *array.shape[1:]])


def yolox(path: Path, rows: dict[int, list[float]], *, size: int = 64) -> Path:
    """YOLOX for square pictures: `rows` are x, y, w, h, objectness, person by cell."""
    cells = sum((size // stride) ** 2 for stride in (8, 16, 32))
    output = np.zeros((1, cells, 85), np.float32)
    for cell, row in rows.items():
        output[0, cell, :6] = row
    return save(path, [1, 3, size, size], {"output": output})


def of_bright(path: Path, output: str) -> Path:
    """Have a graph see nobody in pictures that are darker than 60: its output is 0 there."""
    model = onnx.load(str(path))
    model.graph.node[0].CopyFrom(helper.make_node("Mul", [f"{output}_c", "lit"], [output]))
    for node in (
        helper.make_node("Cast", ["is_lit"], ["lit"], to=TensorProto.FLOAT),
        helper.make_node("Greater", ["mean", "limit"], ["is_lit"]),
        helper.make_node("ReduceMean", ["light"], ["mean"], keepdims=0),
        helper.make_node("Cast", ["input"], ["light"], to=TensorProto.FLOAT),
    ):
        model.graph.node.insert(0, node)
    model.graph.initializer.append(numpy_helper.from_array(np.array(60, np.float32), "limit"))
    path.write_bytes(model.SerializeToString())
    return path


def rtmdet(
    path: Path, dets: list[list[float]], labels: list[int], *, size: tuple[Any, Any] = (64, 64)
) -> Path:
    """A detector that removes double boxes itself; a `size` of names takes any pictures."""
    boxes, numbers = np.array([dets], np.float32), np.array([labels], np.int64)
    arrays: dict[str, NDArray[Any]] = {"dets": boxes, "labels": numbers}
    return save(path, ["batch", 3, *size], arrays)


def movenet(path: Path, joints: NDArray[np.float32], *, size: int = 32) -> Path:
    """MoveNet: `joints (17, 3)` are y, x, confidence."""
    shape = [1, size, size, 3]
    return save(path, shape, {"Identity": joints[None, None]}, element=TensorProto.INT32)


def simcc(path: Path, x: NDArray[np.float32], y: NDArray[np.float32]) -> Path:
    """A SimCC head for 192x256 with any number of pictures."""
    return save(path, ["batch", 3, 256, 192], {"simcc_x": x[None], "simcc_y": y[None]})
