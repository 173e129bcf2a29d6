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


def add_blocks(graph: Graph, folded: Folded, entry: Sequence[str]) -> str:
    """All blocks and the head, like `Folded.blocks`: `(N, width)` each to `(N, L)`.

    The head is a sum rather than a product: engines that multiply in bfloat16 then keep it, and
    with it the sums of the skips, in float32.
    """
    a, *skip = (graph.node("Unsqueeze", name, graph.constant([1])) for name in entry)
    s = graph.node("Gelu", graph.node("Add", a, graph.constant(folded.b[0])))
    for h in skip:
        s = graph.node("Add", s, h)
    for W, b in zip(folded.W, folded.b[1:], strict=True):
        linear = graph.node("MatMul", s, graph.constant(W.T))
        y = graph.node("Gelu", graph.node("Add", linear, graph.constant(b)))
        s = graph.node("Add", y, s) if skip else y
    weighted = graph.node("Mul", s, graph.constant(folded.head))
    total = graph.node("ReduceSum", weighted, graph.constant([2]), keepdims=1)
    return graph.node("Squeeze", total, graph.constant([2]))


def blocks_model(folded: Folded) -> bytes:
    """`Folded.blocks` as a serialised model."""
    width = len(folded.head)
    graph = Graph()
    inputs: dict[str, Shape] = {"a": ["N", width]}
    if folded.W_z is not None:
        inputs["h"] = ["N", width]
    result = add_blocks(graph, folded, list(inputs))
    return graph.model(inputs, {result: ["N", folded.L]})


def _value(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
