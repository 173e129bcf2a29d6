"""Simplify known networks when they are loaded: the same weights, less work, any batch size.

A clean network takes pictures as they are, uint8 RGB `(N, H, W, 3)`. A graph that is not laid out
as expected stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from stepvad.video.movenet_tail import add_tail, read_tail
from stepvad.video.networks import YOLOX_COLUMNS
from stepvad.video.rewriting import (
    AnyArray,
    Rewriting,
    Shape,
    UnknownGraphError,
    attributes,
    expect,
)

log = logging.getLogger(__name__)

TO_CHANNELS_FIRST, TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
SIZELESS = {"Add", "Concat", "Conv", "LeakyRelu", "MaxPool", "Mul", "Relu", "Resize", "Sigmoid"}
"""Operators in the body of a YOLOX that work for pictures of any size."""


def cleaned(model: onnx.ModelProto, kind: str) -> onnx.ModelProto | None:
    """The network without needless work, or None if its graph is not a known one."""
    ways: dict[str, Callable[[Rewriting], onnx.ModelProto]] = {
        "yolox": clean_yolox,
        "movenet": clean_movenet,
    }
    if kind not in ways:
        return None
    try:
        return ways[kind](Rewriting(model))
    except (UnknownGraphError, LookupError, ValueError, onnx.checker.ValidationError) as error:
        log.debug("a %s stays as it is: %s", kind, error)
        return None


def clean_yolox(graph: Rewriting) -> onnx.ModelProto:
    """YOLOX for any number of pictures of any size, with the class *person* alone.

    The slices at its input become part of the first convolution, as does the order of colours.
    """
    heads = _yolox_heads(graph)
    size = [length.dim_value for length in graph.input.type.tensor_type.shape.dim][2:]
    first = _fold_focus(graph)
    _check_sizeless(graph, heads)
    flat = [_only_person(graph, head) for head in heads]
    rows = graph.add("Transpose", graph.add("Concat", *flat, axis=2), perm=[0, 2, 1])
    first.input[0] = _pictures_in(graph)
    weights = graph.value(first.input[1])
    first.input[1] = graph.constant(weights[:, ::-1])  # of RGB in place of BGR
    free = ["height", "width"] if all(size) else size
    outputs: dict[str, Shape] = {rows: ["batch", "cells", YOLOX_COLUMNS]}
    return graph.model(TensorProto.UINT8, ["batch", *free, 3], outputs)


def _yolox_heads(graph: Rewriting) -> list[onnx.NodeProto]:
    """The joined outputs of every grid: box, objectness, classes."""
    last = graph.maker(graph.output, "Transpose")
    if attributes(last)["perm"] != [0, 2, 1]:
        raise UnknownGraphError("expected cells before columns")
    heads = []
    for name in graph.maker(last.input[0], "Concat").input:
        reshape = graph.maker(name, "Reshape")
        if graph.value(reshape.input[1]).tolist()[1:] != [85, -1]:
            raise UnknownGraphError("expected 85 columns")
        heads.append(graph.maker(reshape.input[0], "Concat"))
    return heads


def _only_person(graph: Rewriting, head: onnx.NodeProto) -> str:
    """The first six channels of a grid `(N, 6, cells)`; the other classes are not computed."""
    box, objectness, classes = expect(head.input, 3)
    for name, channels in ((box, 4), (graph.maker(objectness, "Sigmoid").input[0], 1)):
        if len(graph.value(graph.maker(name, "Conv").input[1])) != channels:
            raise UnknownGraphError("expected box and objectness")
    conv = graph.maker(graph.maker(classes, "Sigmoid").input[0], "Conv")
    weights, bias = (graph.value(name) for name in expect(conv.input, 3)[1:])
    conv.input[1:] = [graph.constant(weights[:1]), graph.constant(bias[:1])]
    joined = graph.add("Concat", box, objectness, classes, axis=1)
    return graph.add("Reshape", joined, graph.constant([0, YOLOX_COLUMNS, -1]))


def _fold_focus(graph: Rewriting) -> onnx.NodeProto:
    """The first convolution on pixels: four slices of every other pixel become its stride.

    Channel c of slice (dy, dx) at (i, j) is pixel (2 i + dy, 2 j + dx), so a kernel of 3x3 over the
    slices is one of 6x6 over pixels with stride 2; zeros beyond the border stay zeros.
    """
    readers = graph.readers(graph.input.name)
    if [node.op_type for node in readers] == ["Conv"]:
        return readers[0]
    offsets = {}
    for rows in expect(readers, 4):
        columns = graph.reader(rows.output[0])
        offsets[columns.output[0]] = _start(graph, rows, 2), _start(graph, columns, 3)
    join = graph.reader(next(iter(offsets)))
    conv = graph.reader(join.output[0])
    if set(join.input) != set(offsets) or conv.op_type != "Conv" or join.op_type != "Concat":
        raise UnknownGraphError("expected four slices and a convolution")
    has = attributes(conv)
    if has["pads"] != [1] * 4 or has["strides"] != [1, 1] or has["kernel_shape"] != [3, 3]:
        raise UnknownGraphError("expected a convolution of 3x3 with a border of 1")
    narrow = graph.value(conv.input[1])
    wide = np.zeros((len(narrow), 3, 6, 6), np.float32)
    for at, name in enumerate(join.input):
        dy, dx = offsets[name]
        wide[:, :, dy::2, dx::2] = narrow[:, 3 * at : 3 * at + 3]
    inputs = [graph.input.name, graph.constant(wide), *conv.input[2:]]
    first = graph.add("Conv", *inputs, kernel_shape=[6, 6], strides=[2, 2], pads=[2] * 4)
    graph.replace(conv.output[0], first)
    return graph.maker(first, "Conv")


def _start(graph: Rewriting, node: onnx.NodeProto, axis: int) -> int:
    """Where a slice of every other pixel along an axis starts: 0 or 1."""
    if node.op_type != "Slice":
        raise UnknownGraphError("expected a slice")
    start, end, axes, step = (graph.value(name).tolist() for name in expect(node.input, 5)[1:])
    if axes != [axis] or step != [2] or start not in ([0], [1]) or end[0] < 1 << 30:
        raise UnknownGraphError("expected every other pixel")
    return int(start[0])


def _check_sizeless(graph: Rewriting, heads: list[onnx.NodeProto]) -> None:
    """Raise if a node between the first convolution and the heads depends on the picture's size."""
    for node in graph.needed([head.output[0] for head in heads]):
        scales = node.op_type == "Resize" and len(node.input) == 3
        if node.op_type not in SIZELESS or (node.op_type == "Resize" and not scales):
            raise UnknownGraphError(f"expected operators for any size, got {node.op_type}")


def _pictures_in(graph: Rewriting) -> str:
    """Pictures as floats with channels first."""
    floats = graph.add("Cast", graph.input.name, to=TensorProto.FLOAT)
    return graph.add("Transpose", floats, perm=TO_CHANNELS_FIRST)


def clean_movenet(graph: Rewriting) -> onnx.ModelProto:
    """MoveNet for any number of people, with channels first from end to end."""
    tail = read_tail(graph)
    height, width = [length.dim_value for length in graph.input.type.tensor_type.shape.dim][1:3]
    _normalise_channels_first(graph)
    _drop_transposes(graph)
    joints = add_tail(graph, tail)
    shape = ["batch", height, width, 3]
    return graph.model(TensorProto.UINT8, shape, {joints: ["batch", 1, 17, 3]})


def _normalise_channels_first(graph: Rewriting) -> None:
    """Normalise all pictures at once, with channels first; the graph takes out a single one."""
    name, steps = graph.input.name, []
    while (node := graph.reader(name)).op_type != "Transpose":
        if node.op_type in ("Sub", "Mul", "Add", "Div") and node.input[0] == name:
            values = _of_channels(graph.value(node.input[1]))
            steps += [(node.op_type, values)] if node.op_type != "Sub" or values.any() else []
        elif node.op_type not in ("Cast", "Split", "Squeeze", "Unsqueeze"):
            raise UnknownGraphError(f"expected a normalisation, got {node.op_type}")
        (name,) = expect(node.output, 1)
    if attributes(node)["perm"] != TO_CHANNELS_FIRST:
        raise UnknownGraphError("expected channels last")
    fed = _pictures_in(graph)
    for operator, values in steps:
        fed = graph.add(operator, fed, graph.constant(values))
    graph.replace(node.output[0], fed)


def _of_channels(values: AnyArray) -> AnyArray:
    """A constant per channel `(1, 1, 1, 3)`, or one for all, with channels first."""
    if values.ndim == 0:
        return values
    if values.shape != (1, 1, 1, 3):
        raise UnknownGraphError("expected a value per channel")
    return values.transpose(TO_CHANNELS_FIRST)


def _drop_transposes(graph: Rewriting) -> None:
    """Compute with channels first where the graph turns values back and forth."""
    first: dict[str, str] = {}  # values with channels last, and the same with channels first
    for node in list(graph.nodes):
        if node.op_type == "Transpose" and attributes(node)["perm"] == TO_CHANNELS_LAST:
            first[node.output[0]] = node.input[0]
        elif node.op_type == "Transpose" and node.input[0] in first:
            graph.replace(node.output[0], first[node.input[0]])
        elif node.op_type == "Add" and all(name in first for name in node.input):
            node.input[:] = [first[name] for name in node.input]
            first[node.output[0]] = node.output[0]
