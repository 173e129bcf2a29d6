"""The folded network as an ONNX graph, node by node (Fig. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from stepvad.model.folded import Folded

OPSET = 20
"""The first with GELU as one operator."""
IR_VERSION = 9
"""The file layout that came with this operator set."""
TINY = np.float32(1e-12)
"""Lower bound on ranges and scales, to avoid division by zero."""

Shape = Sequence[int | str]


class Graph:
    """A graph under construction: every call appends a node and returns the name of its result."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, values: NDArray[Any] | Sequence[int] | float) -> str:
        """Add an array; floats become float32, lists of integers int64, arrays keep their type."""
        name = f"constant_{len(self._constants)}"
        array = np.asarray(values, dtype=np.float32) if isinstance(values, float) else values
        array = np.asarray(array, order="C")
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """Append an operator and return the name of its first result."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, results))]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return name

    def rename(self, result: str, name: str) -> str:
        """Expose a result under a public name."""
        self._nodes.append(helper.make_node("Identity", [result], [name]))
        return name

    def model(
        self,
        inputs: dict[str, Shape],
        outputs: dict[str, Shape],
        facts: dict[str, str] | None = None,
    ) -> bytes:
        """Check and serialise the finished graph; `facts` become its metadata."""
        graph = helper.make_graph(
            self._nodes,
            "stepvad",
            [_value(name, shape) for name, shape in inputs.items()],
            [_value(name, shape) for name, shape in outputs.items()],
            self._constants,
        )
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="stepvad",
        )
        helper.set_model_props(made, facts or {})
        onnx.checker.check_model(made)
        raw: bytes = made.SerializeToString()
        return raw


def add_blocks(graph: Graph, folded: Folded, entry: Sequence[str], *, int8: bool = False) -> str:
    """All blocks and the head, like `Folded.blocks`: `(N, width)` each to `(N, L)`.

    The head is a sum rather than a product: engines that multiply in bfloat16 then keep it, and
    with it the sums of the skips, in float32.
    """
    a, *skip = (graph.node("Unsqueeze", name, graph.constant([1])) for name in entry)
    s = graph.node("Gelu", graph.node("Add", a, graph.constant(folded.b[0])))
    for h in skip:
        s = graph.node("Add", s, h)
    for i, b in enumerate(folded.b[1:]):
        linear = add_product(graph, folded, i, s, int8=int8)
        y = graph.node("Gelu", graph.node("Add", linear, graph.constant(b)))
        s = graph.node("Add", y, s) if skip else y
    weighted = graph.node("Mul", s, graph.constant(folded.head))
    total = graph.node("ReduceSum", weighted, graph.constant([2]), keepdims=1)
    return graph.node("Squeeze", total, graph.constant([2]))


def add_product(graph: Graph, folded: Folded, i: int, rows: str, *, int8: bool) -> str:
    """The i-th large product; in int8, with one scale per row and one per output.

    The usual range of each unit is first moved into its weights, which leaves the product unchanged
    and gives all units the same range. Rows are divided by their largest value and multiplied by it
    afterwards: abnormal windows exceed the range of normal ones, and clipping would hide that.
    """
    W = folded.W[i]
    if not int8 or folded.ranges is None:
        return graph.node("MatMul", rows, graph.constant(W.T))
    reach = np.maximum(folded.ranges[i], TINY)  # (width,)
    rows = graph.node("Mul", rows, graph.constant(1 / reach))
    largest = graph.node("ReduceMax", graph.node("Abs", rows), graph.constant([2]), keepdims=1)
    largest = graph.node("Max", largest, graph.constant(float(TINY)))
    product = add_int8_product(graph, W * reach, graph.node("Div", rows, largest))
    return graph.node("Mul", product, largest)


def add_int8_product(graph: Graph, W: NDArray[np.float32], rows: str) -> str:
    """Rows between -1 and 1 times Wᵀ, both rounded to int8 between -127 and 127."""
    zero = graph.constant(np.array(0, np.int8))
    scale = graph.constant(np.array(1 / 127, np.float32))
    rows = graph.node("QuantizeLinear", rows, scale, zero)
    rows = graph.node("DequantizeLinear", rows, scale, zero)
    scales = np.maximum(np.abs(W).max(axis=1), TINY) / np.float32(127)  # (width,)
    whole = np.rint(W / scales[:, None]).astype(np.int8)
    zeros = graph.constant(np.zeros(len(scales), np.int8))
    weights = graph.node(
        "DequantizeLinear", graph.constant(whole.T), graph.constant(scales), zeros, axis=1
    )
    return graph.node("MatMul", rows, weights)


def blocks_model(folded: Folded, *, int8: bool = False) -> bytes:
    """`Folded.blocks` as a serialised model."""
    width = len(folded.head)
    graph = Graph()
    inputs: dict[str, Shape] = {"a": ["N", width]}
    if folded.W_z is not None:
        inputs["h"] = ["N", width]
    result = add_blocks(graph, folded, list(inputs), int8=int8)
    return graph.model(inputs, {result: ["N", folded.L]})


def products_model(folded: Folded, *, int8: bool = False) -> bytes:
    """Only the large products of the network: an upper bound on the speed of an engine."""
    width = len(folded.head)
    graph = Graph()
    rows = "rows"
    for W in folded.W:
        if int8:
            rows = add_int8_product(graph, W, rows)
        else:
            rows = graph.node("MatMul", rows, graph.constant(W.T))
    shape: Shape = ["N", folded.L, width]
    return graph.model({"rows": shape}, {rows: shape})


def _value(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
