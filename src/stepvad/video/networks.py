"""Networks on ONNX Runtime or OpenVINO: inputs, outputs and batching."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepvad.errors import MissingExtraError, ModelFileError
from stepvad.model.runtime.engines import RunGraph, onnxruntime_graph, openvino_graph

NetworkKind = Literal["yolox", "rtmdet", "movenet", "simcc"]
"""Input and output format of a network: two kinds of person detector, two of pose network."""
PoseRuntime = Literal["onnxruntime", "openvino"]
AnyArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a graph; 0 in the shape is a dynamic dimension."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImageNetwork:
    """A graph with one input, a batch of images, ready to run."""

    path: Path
    graph: RunGraph
    input: Port
    outputs: tuple[Port, ...]

    def __call__(self, stack: AnyArray) -> list[list[AnyArray]]:
        """Run the network and return the outputs per image, without the batch axis.

        All images go in one call if the graph's batch size is dynamic.
        """
        if not len(stack):
            return []
        if self.input.shape[0] == 0:
            outputs = self.graph([stack])
            return [[output[row] for output in outputs] for row in range(len(stack))]
        singles = (self.graph([stack[row : row + 1]]) for row in range(len(stack)))
        return [[output[0] for output in outputs] for outputs in singles]

    def kind(self) -> NetworkKind:
        """The kind of network, inferred from its inputs and outputs."""
        names = [port.name for port in self.outputs]
        if names == ["simcc_x", "simcc_y"]:
            return "simcc"
        if set(names) == {"dets", "labels"}:
            return "rtmdet"
        if self.input.shape[-1] == 3 and self.outputs[0].shape[1:] == (1, 17, 3):
            return "movenet"
        if len(names) == 1 and self.outputs[0].shape[2:] == (85,):
            return "yolox"
        raise ModelFileError(
            f"{self.path}: expected a detector (YOLOX, RTMDet) or a pose network (MoveNet, "
            f"SimCC), got the outputs {', '.join(names)}",
            hint="give one of these as an ONNX file, its outputs named as they were published",
        )

    def expect(self, *kinds: NetworkKind, role: str) -> None:
        """Raise if the network is not one of these kinds."""
        if self.kind() not in kinds:
            raise ModelFileError(
                f"{self.path}: expected a {role} ({' or '.join(kinds)}), got {self.kind()}",
                hint="the detector finds boxes, the pose network places joints: swap them",
            )

    def size(self, otherwise: tuple[int, int]) -> tuple[int, int]:
        """Width and height of the input images; `otherwise` if they are dynamic in the graph."""
        shape = self.input.shape
        height, width = shape[1:3] if shape[-1] == 3 else shape[2:4]
        return (width, height) if width and height else otherwise


def open_network(
    path: Path, *, runtime: PoseRuntime = "onnxruntime", threads: int = 1
) -> ImageNetwork:
    """Load a network from an ONNX file, on the given runtime and number of threads."""
    import onnx

    try:
        content = path.read_bytes()
        model = onnx.load_model_from_string(content)
        given = {tensor.name for tensor in model.graph.initializer}
        inputs = [_port(value) for value in model.graph.input if value.name not in given]
        outputs = tuple(_port(value) for value in model.graph.output)
        graph = _graph(content, runtime, threads)
    except MissingExtraError:
        raise
    except Exception as error:  # protobuf and the runtimes raise types of their own
        reason = str(error).partition("\n")[0]
        raise ModelFileError(
            f"{path}: expected a network in ONNX, got: {reason}",
            hint="check the path, or fetch the file again",
        ) from error
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        raise ModelFileError(
            f"{path}: expected one input of stacked pictures, got {inputs}",
            hint="give a detector or a pose network",
        )
    return ImageNetwork(path, graph, inputs[0], outputs)


def _graph(content: bytes, runtime: PoseRuntime, threads: int) -> RunGraph:
    match runtime:
        case "onnxruntime":
            return onnxruntime_graph(content, threads)
        case "openvino":
            try:
                return openvino_graph(content, threads, bfloat16=False)
            except ModuleNotFoundError as error:
                raise MissingExtraError("OpenVINO", "openvino") from error


def _port(value: Any) -> Port:
    lengths = value.type.tensor_type.shape.dim
    return Port(value.name, tuple(int(length.dim_value) for length in lengths))
