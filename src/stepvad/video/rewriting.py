"""An ONNX graph to rewrite: nodes in order, constants as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

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
                self.nodes.append(_copy(node))

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

    def add(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
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


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy
