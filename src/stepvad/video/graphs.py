"""Graphs of networks as they are run: adapted once, and stored in the cache.

A stored graph is loaded without onnx, whose memory a camera's process would keep. The weights stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepvad.errors import ModelFileError, StepvadError
from stepvad.files import PUBLIC, replacing
from stepvad.model.engines import onnxruntime_graph
from stepvad.video.models import cache_directory, known_file, model_file

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the adaptations: graphs stored by others are not read."""
CELLS = (8, 16, 32)
"""Pixels between the cells of a YOLOX, grid by grid."""
HALF_RANGE = 127.5
"""MoveNet's pixels are -1 to 1."""
AnyArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a graph; 0 in the shape is a dynamic dimension."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NetworkGraph:
    """A graph in ONNX with one input of pictures, and what is known of it."""

    content: bytes
    input: Port
    """Of a network for pictures of any size, its nominal one."""
    outputs: tuple[Port, ...]
    any_size: bool = False
    """A detector that takes pictures of any size in steps of 32."""


def prepare_networks(*models: str) -> None:
    """Have networks fetched and their graphs stored, so that this process only loads them.

    Another process does so, one at a time on a machine, and takes what that imports with it. Its
    errors come again, with their reason, when this process opens the networks.
    """
    files = [known_file(model) for model in models]
    if not all(file.is_file() and _kept(file).is_file() for file in files):
        command = [sys.executable, "-m", "stepvad.video.graphs", *models]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)


def main(models: Sequence[str]) -> None:
    """Fetch networks and store their graphs."""
    with ExitStack() as stack, suppress(StepvadError, OSError):
        directory = cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        fcntl.flock(stack.enter_context((directory / "lock").open("w")), fcntl.LOCK_EX)
        for model in models:
            stored_graph(model_file(model))


def stored_graph(file: Path) -> NetworkGraph:
    """The graph of a network's file, from the cache if it was stored there."""
    kept = _kept(file)
    try:
        return _read(kept.read_bytes())
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.debug("%s: no graph to read: %r", kept, error)
    graph = read_graph(file)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept, ModelFileError, mode=PUBLIC) as temporary:
            temporary.write_bytes(_written(graph))
    except (OSError, ModelFileError) as error:
        log.info("every process adapts %s anew: %s", file, error)
    return graph


def _kept(file: Path) -> Path:
    """Where the graph of a network's file is stored."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return cache_directory() / "graphs" / f"{digest[:32]}-{VERSION}"


def read_graph(file: Path, *, adapt: bool = True) -> NetworkGraph:
    """The graph of a network's file, adapted if it is a known one."""
    import onnx

    model = onnx.load_model_from_string(file.read_bytes())
    # older files list their weights among the inputs
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [_port(value) for value in model.graph.input if value.name not in given]
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        raise ModelFileError(
            f"{file}: expected one input of stacked pictures, got {inputs}",
            hint="give a detector or a pose network",
        )
    outputs = tuple(_port(value) for value in model.graph.output)
    graph = NetworkGraph(model.SerializeToString(), inputs[0], outputs)
    if not adapt:
        return graph
    try:
        if outputs[0].shape[2:] == (85,) and inputs[0].shape[1] == 3:
            return _of_any_size(model, graph)
        if outputs[0].shape[1:] == (1, 17, 3) and inputs[0].shape[3] == 3:
            return _channels_first(model, graph)
    except Exception as error:  # onnx and the runtime raise types of their own
        log.debug("%s stays as it is: %s", file, error)
    return graph


def movenet_pixels(stack: AnyArray) -> AnyArray:
    """Pictures `(N, H, W, 3)` as an adapted MoveNet takes them: `(N, 3, H, W)` in -1..1."""
    values = np.ascontiguousarray(stack.transpose(0, 3, 1, 2), np.float32)
    values /= np.float32(HALF_RANGE)
    values -= 1
    return values


def _of_any_size(model: Any, graph: NetworkGraph) -> NetworkGraph:
    """A YOLOX for pictures of any size, so that a wide picture needs no square."""
    for value, axes in ((model.graph.input[0], (2, 3)), (model.graph.output[0], (1,))):
        for axis in axes:
            value.type.tensor_type.shape.dim[axis].dim_param = f"{value.name}_{axis}"
    del model.graph.value_info[:]
    content = model.SerializeToString()
    # a graph that has its size in a constant fails here, or gives other cells
    height, width = graph.input.shape[2:]
    height = max(height // 64 * 32, 32)
    picture = np.zeros((1, 3, height, width), np.float32)
    (output,) = onnxruntime_graph(content, 1)([picture])
    cells = sum((height // stride) * (width // stride) for stride in CELLS)
    if output.shape != (1, cells, 85):
        raise ValueError(f"expected {cells} cells, got {output.shape}")
    return NetworkGraph(content, graph.input, graph.outputs, any_size=True)


def _channels_first(model: Any, graph: NetworkGraph) -> NetworkGraph:
    """A MoveNet from its first transposition on; what stands before takes a fifth of its time."""
    from onnx import TensorProto, helper

    # the normalisation, node by node, up to the first transposition
    name, rest = graph.input.name, list(model.graph.node)
    while (node := next(node for node in rest if name in node.input)).op_type != "Transpose":
        name = node.output[0]
        rest.remove(node)
    rest.remove(node)
    _, height, width, _ = graph.input.shape
    start = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [1, 3, height, width])
    read = {name for node in rest for name in node.input}
    weights = [tensor for tensor in model.graph.initializer if tensor.name in read]
    cut = helper.make_graph(rest, "cut", [start], model.graph.output, weights)
    opset, version = model.opset_import, model.ir_version
    content = helper.make_model(cut, opset_imports=opset, ir_version=version).SerializeToString()
    # the same joints of noise, or it normalises in another way
    picture = np.random.default_rng(0).integers(0, 255, (1, height, width, 3), np.uint8)
    (whole,) = onnxruntime_graph(graph.content, 1)([picture.astype(np.int32)])
    (joints,) = onnxruntime_graph(content, 1)([movenet_pixels(picture)])
    if not np.allclose(joints, whole, atol=1e-4):
        raise ValueError("expected the same joints")
    return NetworkGraph(content, _port(start), graph.outputs)


def _port(value: Any) -> Port:
    lengths = value.type.tensor_type.shape.dim
    return Port(value.name, tuple(int(length.dim_value) for length in lengths))


def _written(graph: NetworkGraph) -> bytes:
    """A line of JSON, then the graph."""
    facts = {
        "input": [graph.input.name, graph.input.shape],
        "outputs": [[port.name, port.shape] for port in graph.outputs],
        "any_size": graph.any_size,
        "sha256": hashlib.sha256(graph.content).hexdigest(),
    }
    return json.dumps(facts).encode() + b"\n" + graph.content


def _read(stored: bytes) -> NetworkGraph:
    """The graph of a stored file; raises ValueError if it is damaged."""
    line, _, content = stored.partition(b"\n")
    facts = json.loads(line)
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise ValueError("expected another checksum")
    ports = [Port(name, tuple(shape)) for name, shape in (facts["input"], *facts["outputs"])]
    return NetworkGraph(content, ports[0], tuple(ports[1:]), facts["any_size"])


if __name__ == "__main__":
    main(sys.argv[1:])
