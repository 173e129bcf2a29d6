"""The last part of MoveNet: from heat maps to joints, for any number of people.

The graph as published picks one person's joints. In words: the weighted centre map says where the
person is, a regression says where each joint is expected, the heat map decides near that place,
and an offset refines it within the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import dropwhile

import numpy as np

from stepvad.video.rewriting import AnyArray, Rewriting, UnknownGraphError

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
    heat, centre, regression, offset = (_channels_first(graph, name) for name in maps)
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
    centre = graph.add("Mul", graph.add("Sigmoid", tail.centre), graph.constant(tail.weights))
    middle = _highest(graph, _cells(graph, centre, 1))  # (N, 1, 1)
    every = graph.add("Expand", middle, graph.constant([1, 2 * JOINTS, 1]))
    regression = _cells(graph, tail.regression, 2 * JOINTS)
    moved = graph.add("GatherElements", regression, every, axis=2)
    moved = graph.add("Reshape", moved, graph.constant([0, JOINTS, 2]))
    expected = graph.add("Add", _place(graph, middle, width), moved)  # (N, 17, 2)
    heat = graph.add("Sigmoid", _cells(graph, tail.heat, JOINTS))
    near = graph.add("Div", heat, _distance(graph, expected, tail))
    best = _highest(graph, near)  # (N, 17, 1)
    confidence = graph.add("GatherElements", heat, best, axis=2)
    within = graph.add("Reshape", tail.offset, graph.constant([0, JOINTS, 2, -1]))
    both = graph.add("Unsqueeze", best, graph.constant([2]))
    both = graph.add("Expand", both, graph.constant([1, JOINTS, 2, 1]))
    within = graph.add("GatherElements", within, both, axis=3)
    within = graph.add("Reshape", within, graph.constant([0, JOINTS, 2]))
    places = graph.add("Add", _place(graph, best, width), within)
    places = graph.add("Mul", places, graph.constant(tail.scale))
    joints = graph.add("Concat", places, confidence, axis=2)
    return graph.add("Unsqueeze", joints, graph.constant([1]))


def _channels_first(graph: Rewriting, name: str) -> str:
    turned = graph.maker(name, "Transpose").input[0]
    return graph.maker(turned, "Conv").output[0]


def _cells(graph: Rewriting, maps: str, channels: int) -> str:
    """Maps `(N, C, H, W)` as rows of cells `(N, C, H W)`."""
    return graph.add("Reshape", maps, graph.constant([0, channels, -1]))


def _highest(graph: Rewriting, cells: str) -> str:
    return graph.add("ArgMax", cells, axis=2, keepdims=1)


def _place(graph: Rewriting, cell: str, width: int) -> str:
    """Row and column `(N, C, 2)` of cells `(N, C, 1)`."""
    side = graph.constant(np.array(width, np.int64))
    row = graph.add("Div", cell, side)
    column = graph.add("Sub", cell, graph.add("Mul", row, side))
    return graph.add("Cast", graph.add("Concat", row, column, axis=2), to=1)


def _distance(graph: Rewriting, expected: str, tail: Tail) -> str:
    """Softened distance of every cell from where a joint is expected, `(N, 17, H W)`."""
    parts = graph.constant(np.array([1, 1], np.int64))
    row = graph.add("Split", expected, parts, axis=2, results=2)
    squares = []
    for name, places in ((row, tail.rows), (f"{row}_1", tail.columns)):
        away = graph.add("Sub", graph.constant(places.reshape(-1)), name)
        squares.append(graph.add("Mul", away, away))
    distance = graph.add("Sqrt", graph.add("Add", *squares))
    return graph.add("Add", distance, graph.constant(tail.softening))
