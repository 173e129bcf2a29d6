"""Simplify known networks when they are loaded: the same weights, less work, any batch size.

A clean network takes pictures as they are, uint8 RGB `(N, H, W, 3)`. A graph that is not laid out
as expected stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from stepvad.video.models import YOLOX_COLUMNS

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
    # nothing between the first convolution and the heads may depend on the size of a picture
    for node in graph.needed([head.output[0] for head in heads]):
        scales = node.op_type == "Resize" and len(node.input) == 3
        if node.op_type not in SIZELESS or (node.op_type == "Resize" and not scales):
            raise UnknownGraphError(f"expected operators for any size, got {node.op_type}")
    # six rows for each cell, and pictures as they are in front of the first convolution
    flat = [_only_person(graph, head) for head in heads]
    rows = graph.add_node("Transpose", graph.add_node("Concat", *flat, axis=2), perm=[0, 2, 1])
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
    # a box, its objectness and the scores of 80 classes, of which the first is kept
    box, objectness, classes = expect(head.input, 3)
    for name, channels in ((box, 4), (graph.maker(objectness, "Sigmoid").input[0], 1)):
        if len(graph.value(graph.maker(name, "Conv").input[1])) != channels:
            raise UnknownGraphError("expected box and objectness")
    conv = graph.maker(graph.maker(classes, "Sigmoid").input[0], "Conv")
    weights, bias = (graph.value(name) for name in expect(conv.input, 3)[1:])
    conv.input[1:] = [graph.constant(weights[:1]), graph.constant(bias[:1])]
    joined = graph.add_node("Concat", box, objectness, classes, axis=1)
    return graph.add_node("Reshape", joined, graph.constant([0, YOLOX_COLUMNS, -1]))


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
    # kernels (K, 12, 3, 3) over slices become kernels (K, 3, 6, 6) over pixels
    narrow = graph.value(conv.input[1])
    wide = np.zeros((len(narrow), 3, 6, 6), np.float32)
    for at, name in enumerate(join.input):
        dy, dx = offsets[name]
        wide[:, :, dy::2, dx::2] = narrow[:, 3 * at : 3 * at + 3]
    inputs = [graph.input.name, graph.constant(wide), *conv.input[2:]]
    first = graph.add_node("Conv", *inputs, kernel_shape=[6, 6], strides=[2, 2], pads=[2] * 4)
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


def _pictures_in(graph: Rewriting) -> str:
    """Pictures as floats with channels first."""
    floats = graph.add_node("Cast", graph.input.name, to=TensorProto.FLOAT)
    return graph.add_node("Transpose", floats, perm=TO_CHANNELS_FIRST)


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
        fed = graph.add_node(operator, fed, graph.constant(values))
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


JOINTS = 17
TAIL = (
    "Sigmoid Sigmoid Mul Reshape ArgMax Cast Div Cast Reshape Mul Sub Cast Reshape Unsqueeze "
    "Unsqueeze Unsqueeze Concat Cast GatherND Reshape Split Squeeze Squeeze Add Add Sub Mul Sub "
    "Mul Add Sqrt Add Div Reshape ArgMax Cast Div Cast Reshape Mul Sub Cast Reshape Unsqueeze "
    "Unsqueeze Unsqueeze Concat Concat Cast GatherND Cast GatherND Reshape Unsqueeze GatherND "
    "Unsqueeze Split Squeeze Squeeze Unsqueeze Unsqueeze Unsqueeze Add Add Unsqueeze Unsqueeze "
    "Concat Unsqueeze Mul Concat Identity"
)
"""The operators after the last convolutions, in order."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The four maps, with channels first, and the constants that joints are read with."""

    heat: str
    centre: str
    regression: str
    offset: str
    weights: AnyArray
    """Weight of every cell as a person's centre `(H, W)`."""
    rows: AnyArray
    columns: AnyArray
    """Row and column of every cell, `(H, W)` each."""
    softening: AnyArray
    """Added to distances before the heat is divided by them."""
    scale: AnyArray
    """Size of a cell in 0..1 of the picture, `(2,)` as y and x."""


def read_tail(graph: Rewriting) -> Tail:
    """The maps and constants of a MoveNet; raises if its last nodes are not as published."""
    nodes = list(dropwhile(lambda node: node.op_type != "Sigmoid", graph.nodes))
    if " ".join(node.op_type for node in nodes) != TAIL:
        raise UnknownGraphError("expected the end of a MoveNet")
    gathers = [node for node in nodes if node.op_type == "GatherND"]
    maps = nodes[0].input[0], nodes[1].input[0], gathers[0].input[0], gathers[1].input[0]
    # the same maps before they are turned to channels last
    turned = (graph.maker(name, "Transpose").input[0] for name in maps)
    heat, centre, regression, offset = (graph.maker(name, "Conv").output[0] for name in turned)
    centred = [node for node in nodes if node.op_type == "Sub" and node.input[0] in graph.constants]
    rows, columns = (graph.value(node.input[0])[..., 0] for node in centred[:2])
    softened = graph.maker(nodes[32].input[1], "Add")
    return Tail(
        heat,
        centre,
        regression,
        offset,
        weights=graph.value(nodes[2].input[1])[..., 0],
        rows=rows,
        columns=columns,
        softening=graph.value(softened.input[1]),
        scale=graph.value(nodes[-3].input[1]).reshape(2),
    )


def add_tail(graph: Rewriting, tail: Tail) -> str:
    """Joints `(N, 1, 17, 3)` as y, x and confidence, from the maps of N people."""
    width = tail.weights.shape[1]
    centre = graph.add_node(
        "Mul", graph.add_node("Sigmoid", tail.centre), graph.constant(tail.weights)
    )
    # the cell of each person's middle, and where the regression expects the joints from there
    middle = _highest(graph, _cells(graph, centre, 1))  # (N, 1, 1)
    every = graph.add_node("Expand", middle, graph.constant([1, 2 * JOINTS, 1]))
    regression = _cells(graph, tail.regression, 2 * JOINTS)
    moved = graph.add_node("GatherElements", regression, every, axis=2)
    moved = graph.add_node("Reshape", moved, graph.constant([0, JOINTS, 2]))
    expected = graph.add_node("Add", _place(graph, middle, width), moved)  # (N, 17, 2)
    # the cell of each joint: hot, and near where it is expected
    heat = graph.add_node("Sigmoid", _cells(graph, tail.heat, JOINTS))
    near = graph.add_node("Div", heat, _distance(graph, expected, tail))
    best = _highest(graph, near)  # (N, 17, 1)
    confidence = graph.add_node("GatherElements", heat, best, axis=2)
    # the offset within that cell, y and x
    within = graph.add_node("Reshape", tail.offset, graph.constant([0, JOINTS, 2, -1]))
    both = graph.add_node("Unsqueeze", best, graph.constant([2]))
    both = graph.add_node("Expand", both, graph.constant([1, JOINTS, 2, 1]))
    within = graph.add_node("GatherElements", within, both, axis=3)
    within = graph.add_node("Reshape", within, graph.constant([0, JOINTS, 2]))
    places = graph.add_node("Add", _place(graph, best, width), within)
    places = graph.add_node("Mul", places, graph.constant(tail.scale))
    joints = graph.add_node("Concat", places, confidence, axis=2)
    return graph.add_node("Unsqueeze", joints, graph.constant([1]))


def _cells(graph: Rewriting, maps: str, channels: int) -> str:
    """Maps `(N, C, H, W)` as rows of cells `(N, C, H W)`."""
    return graph.add_node("Reshape", maps, graph.constant([0, channels, -1]))


def _highest(graph: Rewriting, cells: str) -> str:
    return graph.add_node("ArgMax", cells, axis=2, keepdims=1)


def _place(graph: Rewriting, cell: str, width: int) -> str:
    """Row and column `(N, C, 2)` of cells `(N, C, 1)`."""
    side = graph.constant(np.array(width, np.int64))
    row = graph.add_node("Div", cell, side)
    column = graph.add_node("Sub", cell, graph.add_node("Mul", row, side))
    return graph.add_node("Cast", graph.add_node("Concat", row, column, axis=2), to=1)


def _distance(graph: Rewriting, expected: str, tail: Tail) -> str:
    """Softened distance of every cell from where a joint is expected, `(N, 17, H W)`."""
    parts = graph.constant(np.array([1, 1], np.int64))
    row = graph.add_node("Split", expected, parts, axis=2, results=2)
    squares = []
    for name, places in ((row, tail.rows), (f"{row}_1", tail.columns)):
        away = graph.add_node("Sub", graph.constant(places.reshape(-1)), name)
        squares.append(graph.add_node("Mul", away, away))
    distance = graph.add_node("Sqrt", graph.add_node("Add", *squares))
    return graph.add_node("Add", distance, graph.constant(tail.softening))


AnyArray = np.ndarray[Any, np.dtype[Any]]
Shape = Sequence[int | str]


class UnknownGraphError(Exception):
    """The graph is not laid out as expected."""


class Rewriting:
    """A graph under revision; constant nodes and casts of constants are already constants."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.opset, self.ir_version = model.opset_import, model.ir_version
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        self.input = next(v for v in model.graph.input if v.name not in self.constants)
        self.output = model.graph.output[0].name
        self._made = 0
        for node in model.graph.node:
            if not self._fold(node):
                copy = onnx.NodeProto()
                copy.CopyFrom(node)
                self.nodes.append(copy)

    def maker(self, name: str, operator: str) -> onnx.NodeProto:
        """The node that computes a value; raises if it is another operator."""
        found = next((node for node in self.nodes if name in node.output), None)
        if found is None or found.op_type != operator:
            raise UnknownGraphError(f"{name}: expected {operator}")
        return found

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that read a value."""
        return [node for node in self.nodes if name in node.input]

    def reader(self, name: str) -> onnx.NodeProto:
        """The only node that reads a value."""
        (node,) = expect(self.readers(name), 1)
        return node

    def value(self, name: str) -> AnyArray:
        """A constant; raises if the value is computed."""
        if name not in self.constants:
            raise UnknownGraphError(f"{name}: expected a constant")
        return self.constants[name]

    def constant(self, array: AnyArray | Sequence[int]) -> str:
        """Add a constant, and return its name."""
        self._made += 1
        name = f"clean_{self._made}"
        self.constants[name] = np.asarray(array, order="C")
        return name

    def add_node(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """Append a node, and return the name of its first result; others end in `_1`, `_2`."""
        self._made += 1
        name = f"clean_{self._made}"
        names = [name, *(f"{name}_{i}" for i in range(1, results))]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return name

    def replace(self, old: str, new: str) -> None:
        """Let all readers of a value read another."""
        for node in self.readers(old):
            node.input[:] = [new if name == old else name for name in node.input]

    def model(self, element: int, shape: Shape, outputs: dict[str, Shape]) -> onnx.ModelProto:
        """The graph with these shapes, without the nodes and constants that nobody reads."""
        nodes = list(self.needed(outputs))
        read = {name for node in nodes for name in node.input}
        constants = [
            numpy_helper.from_array(array, name)
            for name, array in self.constants.items()
            if name in read
        ]
        results = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ]
        given = helper.make_tensor_value_info(self.input.name, element, shape)
        graph = helper.make_graph(nodes, "clean", [given], results, constants)
        made = helper.make_model(graph, opset_imports=self.opset, ir_version=self.ir_version)
        onnx.checker.check_model(made)
        return made

    def needed(self, outputs: Iterable[str]) -> Iterator[onnx.NodeProto]:
        """Nodes on the way to the outputs, each after those it reads."""
        # depth first: a node comes once all it reads is done
        makers = {name: node for node in self.nodes for name in node.output}
        done: set[str] = set()
        waiting = [makers[name] for name in outputs]
        while waiting:
            before = [
                makers[name]
                for name in waiting[-1].input
                if name in makers and makers[name].output[0] not in done
            ]
            if before:
                waiting += before
                continue
            node = waiting.pop()
            if node.output[0] not in done:
                done.add(node.output[0])
                yield node

    def _fold(self, node: onnx.NodeProto) -> bool:
        """Turn a constant node, or the cast of a constant, into a constant."""
        if node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
            self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            return True
        if node.op_type == "Cast" and node.input[0] in self.constants:
            kind = helper.tensor_dtype_to_np_dtype(attributes(node)["to"])
            self.constants[node.output[0]] = self.constants[node.input[0]].astype(kind)
            return True
        return False


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def expect(items: Sequence[Any], number: int) -> Sequence[Any]:
    """The same items; raises if there are more or fewer than `number`."""
    if len(items) != number:
        raise UnknownGraphError(f"expected {number}, got {len(items)}")
    return items
