"""A whole model as one graph for other programs: pixels and confidence in, scores out (Sec. 3)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Aggregation, Config
from stepvad.errors import StepvadError
from stepvad.files import replacing
from stepvad.model.engines import Graph, Shape, add_blocks, onnxruntime_graph
from stepvad.model.modelfile import Origin
from stepvad.model.scoring import View, anomaly_score, standardise_energies
from stepvad.skeletons import Skeleton
from stepvad.windows.body import ROUNDING, standardise

PROBES = 256
"""Windows that a new file is tested on."""
LARGEST_DEVIATION = 1e-3
"""A file whose scores deviate by more than this fraction is not written."""
Inputs = list[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Parity:
    """Deviation of the scores of an exported file from the library's own."""

    windows: int
    deviation: float
    """Largest difference, relative to the score or to 1, whichever is larger."""


def export(view: View, skeleton: Skeleton, origin: Origin, path: Path) -> Parity:
    """Write an ONNX file after testing its scores."""
    if path.suffix != ".onnx":
        raise StepvadError(
            f"{path}: expected a name that ends in .onnx, got {path.suffix!r}",
            hint="OpenVINO reads ONNX; ovc model.onnx writes its own format",
        )
    raw = scoring_model(view, skeleton, origin)
    inputs = probes(view.config, skeleton.V)
    parity = _parity(onnxruntime_graph(raw, 1)(inputs)[0], _score(view, inputs))
    with replacing(path) as temporary:
        temporary.write_bytes(raw)
    return parity


def scoring_model(view: View, skeleton: Skeleton, origin: Origin) -> bytes:
    """The graph: `x (N, 2, V, T)` in pixels and mean confidence `c (N,)` to `A (N,)` (Eq. 8).

    A model that ignores confidence has no input `c`.
    """
    config, model, folded = view.config, view.model, view.network.folded
    V, T = skeleton.V, config.T
    graph = Graph()
    # π(x) of standardised windows, and the energies at all scales
    space = model.space
    x = graph.node("Sub", _standardise(graph, config, V), graph.constant(space.mu))
    z = graph.node("MatMul", x, graph.constant(space.W_K / space.scale))
    entry = [
        graph.node("MatMul", z, graph.constant(W.T))
        for W in (folded.W_1z, folded.W_z)
        if W is not None
    ]
    f = add_blocks(graph, folded, entry)
    spread = np.sqrt(model.energy.E_var)
    offset = (folded.constant - model.energy.E_mean).astype(np.float32)
    E = graph.node("Add", f, graph.constant(offset))
    E = graph.node("Div", E, graph.constant(spread.astype(np.float32)))
    A = _aggregate(graph, config.aggregation, E)
    inputs: dict[str, Shape] = {"x": ["N", 2, V, T]}
    if config.confidence:
        inputs["c"] = ["N"]
        A = graph.node("Mul", A, "c")
    facts = {"T": T, "joints": skeleton.joints, "library": origin.library}
    return graph.model(inputs, {graph.rename(A, "A"): ["N"]}, facts={"stepvad": json.dumps(facts)})


def probes(config: Config, V: int) -> Inputs:
    """Test windows: figures that drift and sway, one flattened to a line, one a point."""
    rng, T = np.random.default_rng(0), config.T
    figure = rng.normal(size=(PROBES, 2, V, 1)) * [[[30.0]], [[60.0]]]
    drift = rng.normal(size=(PROBES, 2, 1, 1)) * np.arange(T) * 4
    sway = rng.normal(size=(PROBES, 2, V, T)).cumsum(axis=3) * 3
    x = rng.uniform(200, 1500, (PROBES, 2, 1, 1)) + figure + drift + sway
    x[0, 1] = 300.0
    x[1] = 400.0
    c = rng.uniform(0, 1, PROBES)
    arrays = [x, c] if config.confidence else [x]
    return [values.astype(np.float32) for values in arrays]


def _standardise(graph: Graph, config: Config, V: int) -> str:
    """Like `body.standardise`, in float32; relative to the first joint to keep sums small."""
    rows = graph.node("Reshape", "x", graph.constant([0, 2, V * config.T]))
    last = graph.constant([2])
    largest = graph.node("ReduceMax", graph.node("Abs", rows), last, keepdims=1)
    rounding = graph.node("Mul", largest, graph.constant(ROUNDING))
    first = graph.node("Slice", rows, graph.constant([0]), graph.constant([1]), last)
    rows = graph.node("Sub", rows, first)
    rows = graph.node("Sub", rows, graph.node("ReduceMean", rows, last, keepdims=1))
    variance = graph.node("ReduceMean", graph.node("Mul", rows, rows), last, keepdims=1)
    spread = graph.node("Sqrt", variance)  # (N, 2, 1)
    still = graph.node("LessOrEqual", spread, rounding)
    zero, one = graph.constant(0.0), graph.constant(1.0)
    rows, spread = (graph.node("Where", still, zero, values) for values in (rows, spread))
    of_x, of_y = (graph.node("Gather", spread, graph.constant([i]), axis=1) for i in (0, 1))
    floor = graph.node("Mul", of_x, graph.constant(config.reference.spread_floor))
    scale = graph.node("Max", of_y, floor)
    scale = graph.node("Where", graph.node("Equal", scale, zero), one, scale)
    return graph.node("Flatten", graph.node("Div", rows, scale), axis=1)


def _aggregate(graph: Graph, aggregation: Aggregation, E: str) -> str:
    """Like `scoring.aggregate`."""
    match aggregation:
        case "max":
            return graph.node("ReduceMax", E, graph.constant([1]), keepdims=0)
        case "sum":
            return graph.node("ReduceSum", E, graph.constant([1]), keepdims=0)
        case "top2" | "top3" as largest:
            top = graph.node("TopK", E, graph.constant([int(largest[-1])]), axis=1, results=2)
            return graph.node("ReduceMean", top, graph.constant([1]), keepdims=0)
        case int(scale):
            return graph.node("Gather", E, graph.constant(np.array(scale)), axis=1)


def _score(view: View, inputs: Inputs) -> NDArray[np.float32]:
    """The library's own scores of raw windows, in numpy."""
    x, *c = inputs
    standardised, _ = standardise(x, view.config)
    f = view.network.folded.energies(view.model.space.project(standardised))
    E = standardise_energies(f, view.model.energy.E_mean, view.model.energy.E_var)
    return anomaly_score(E, c[0] if c else 1.0, view.config.aggregation)


def _parity(scores: NDArray[np.float32], expected: NDArray[np.float32]) -> Parity:
    share = np.abs(scores - expected) / np.maximum(np.abs(expected), 1)
    deviation = float(share.max())
    if not deviation <= LARGEST_DEVIATION:  # NaN compares false
        raise StepvadError(
            f"export: expected a deviation below {LARGEST_DEVIATION}, got {deviation:.2g}",
            hint="please report this with your model's settings",
        )
    return Parity(len(scores), deviation)
