"""Networks on ONNX Runtime or OpenVINO: inputs, outputs and batching."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepvad.config import PoseRuntime
from stepvad.errors import ModelFileError, StepvadError
from stepvad.model.runtime.engines import RunGraph
from stepvad.video.engine import PoseEngine, choose_engine

NetworkKind = Literal["yolox", "rtmdet", "movenet", "simcc"]
"""Input and output format of a network: two kinds of person detector, two of pose network."""
AnyArray = np.ndarray[Any, np.dtype[Any]]
YOLOX_COLUMNS = 6
"""Columns of a simplified YOLOX: x, y, w, h, objectness and the class *person*."""
CROPS = (8, 4, 2, 1)
"""Pictures in a call: more gain nothing, and an engine may compile a graph for every number."""
SINGLY = (1,)
"""One picture a call: a processor takes no less time for each of several large ones."""


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
    clean: bool = False
    """It takes uint8 RGB pictures `(N, H, W, 3)`; a detector takes any size in steps of 32."""
    batches: tuple[int, ...] = ()
    """Numbers of images in a call, largest first; empty: all at once if the graph allows it."""

    def __call__(self, stack: AnyArray) -> list[list[AnyArray]]:
        """Run the network and return the outputs per image, without the batch axis."""
        results = []
        for images in self._calls(stack):
            outputs = self.graph([images])
            results += [[output[row] for output in outputs] for row in range(len(images))]
        return results

    def _calls(self, stack: AnyArray) -> Iterator[AnyArray]:
        start, free = 0, self.input.shape[0] == 0
        for number in self.batches or ((max(len(stack), 1),) if free else (1,)):
            while len(stack) - start >= number:
                yield stack[start : start + number]
                start += number

    def kind(self) -> NetworkKind:
        """The kind of network, inferred from its inputs and outputs."""
        names = [port.name for port in self.outputs]
        if names == ["simcc_x", "simcc_y"]:
            return "simcc"
        if set(names) == {"dets", "labels"}:
            return "rtmdet"
        if self.input.shape[-1] == 3 and self.outputs[0].shape[1:] == (1, 17, 3):
            return "movenet"
        if len(names) == 1 and self.outputs[0].shape[2:] in ((85,), (YOLOX_COLUMNS,)):
            return "yolox"
        raise ModelFileError(
            f"{self.path}: expected a detector (YOLOX, RTMDet) or a pose network (MoveNet, "
            f"SimCC), got the outputs {', '.join(names)}",
            hint="give one of these as an ONNX file, with its outputs named as published",
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
    path: Path,
    *,
    runtime: PoseRuntime | PoseEngine = "auto",
    threads: int = 1,
    clean: bool = True,
) -> ImageNetwork:
    """Load a network from an ONNX file, on the given runtime and number of threads.

    A known network is simplified first, unless `clean` is False.
    """
    import onnx

    from stepvad.video.cleaning import cleaned

    engine = runtime if isinstance(runtime, PoseEngine) else choose_engine(runtime)
    try:
        model = onnx.load_model_from_string(path.read_bytes())
        network = _described(path, model)
        simpler = cleaned(model, network.kind()) if clean else None
        if simpler is not None:
            model, network = simpler, _of_clean(network, simpler, engine)
        any_shape = bool(network.batches)
        graph = engine.graph(model.SerializeToString(), threads, any_shape=any_shape)
    except StepvadError:
        raise
    except Exception as error:  # protobuf and the runtimes raise types of their own
        reason = str(error).partition("\n")[0]
        raise ModelFileError(
            f"{path}: expected a network in ONNX, got: {reason}",
            hint="check the path, or fetch the file again",
        ) from error
    return replace(network, graph=graph)


def _described(path: Path, model: Any) -> ImageNetwork:
    """The inputs and outputs of a network that is not loaded yet."""
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [_port(value) for value in model.graph.input if value.name not in given]
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        raise ModelFileError(
            f"{path}: expected one input of stacked pictures, got {inputs}",
            hint="give a detector or a pose network",
        )
    outputs = tuple(_port(value) for value in model.graph.output)
    network = ImageNetwork(path, _not_loaded, inputs[0], outputs)
    if network.kind() == "simcc" and inputs[0].shape[0] == 0 and all(inputs[0].shape[1:]):
        return replace(network, batches=CROPS)
    return network


def _of_clean(network: ImageNetwork, model: Any, engine: PoseEngine) -> ImageNetwork:
    """The simplified network; its nominal size is that of the file."""
    width, height = network.size((0, 0))
    large = network.kind() == "yolox" or engine.library == "onnxruntime"
    return replace(
        network,
        input=Port(network.input.name, (0, height, width, 3)),
        outputs=tuple(_port(value) for value in model.graph.output),
        clean=True,
        batches=SINGLY if large and engine.device == "cpu" else CROPS,
    )


def _not_loaded(inputs: Sequence[Any]) -> list[Any]:
    raise RuntimeError(f"expected a loaded network for {len(inputs)} inputs")


def _port(value: Any) -> Port:
    lengths = value.type.tensor_type.shape.dim
    return Port(value.name, tuple(int(length.dim_value) for length in lengths))
