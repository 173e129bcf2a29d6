"""ONNX Runtime and OpenVINO: the same graph, on a known number of threads.

Neither flushes denormals to zero: both would do so for the whole calling thread, including its
other computations. The exact GELU in float32 gives 0 or a normal number, so there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from stepvad.errors import ConfigError
from stepvad.model.folded import Float32Array
from stepvad.model.runtime.signal_stack import kept_signal_stack
from stepvad.model.runtime.telemetry import import_onnxruntime, import_openvino

RunBlocks = Callable[[Sequence[Float32Array]], Float32Array]
"""Inputs of a graph, in order, to its one output."""
RunGraph = Callable[[Sequence[Any]], list[Any]]
"""Inputs of a graph, in order, to all its outputs: arrays of any dtype."""


def onnxruntime_run(model: bytes, threads: int) -> RunBlocks:
    """The first output of a graph on ONNX Runtime."""
    graph = onnxruntime_graph(model, threads)
    return lambda inputs: graph(inputs)[0]


def openvino_run(model: bytes, threads: int, *, bfloat16: bool) -> RunBlocks:
    """The first output of a graph on OpenVINO."""
    graph = openvino_graph(model, threads, bfloat16=bfloat16)
    return lambda inputs: graph(inputs)[0]


def onnxruntime_graph(
    model: bytes, threads: int, provider: str = "CPUExecutionProvider", **options: str
) -> RunGraph:
    """A graph on ONNX Runtime; threads may share the session.

    Its option to flush denormals stays off: it would change the arithmetic of the calling thread,
    and in a forward pass 1 + erf rounds to zero before a product gets that small.
    """
    onnxruntime = import_onnxruntime()

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, settings, providers=[(provider, options)])
    if provider not in session.get_providers():  # it falls back to the processor
        raise ConfigError(
            f"device: expected ONNX Runtime to load {provider}, got the processor only",
            hint="install the libraries of the device, or use the device cpu",
        )
    names = [value.name for value in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def openvino_graph(
    model: bytes,
    threads: int,
    *,
    bfloat16: bool,
    device: str = "CPU",
    shape: Sequence[int] | None = None,
) -> RunGraph:
    """A graph on OpenVINO, for inputs of one shape if given.

    A request serves one thread at a time, so idle ones are pooled.
    """
    openvino = import_openvino()

    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "bf16" if bfloat16 else "f32"}
    if device == "CPU":
        settings |= {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "CPU_DENORMALS_OPTIMIZATION": False,
        }
    with kept_signal_stack():
        core = openvino.Core()
        graph = core.read_model(model)
        if shape is not None:
            graph.reshape(list(shape))
        compiled = core.compile_model(graph, device, settings)
    idle: SimpleQueue[Any] = SimpleQueue()

    def run(inputs: Sequence[Any]) -> list[Any]:
        try:
            request = idle.get_nowait()
        except Empty:
            request = compiled.create_infer_request()
        try:
            given = request.infer(list(inputs), share_inputs=True)
            return [given[at].copy() for at in range(len(given))]
        finally:
            idle.put(request)

    return run


def openvino_by_shape(
    model: bytes, threads: int, *, bfloat16: bool, device: str = "CPU"
) -> RunGraph:
    """A graph with one input, compiled for each of its shapes when it first occurs.

    A graph compiled for any shape takes a fifth to a third longer.
    """
    graphs: dict[tuple[int, ...], RunGraph] = {}
    lock = Lock()

    def run(inputs: Sequence[Any]) -> list[Any]:
        shape = inputs[0].shape
        with lock:
            if shape not in graphs:
                graphs[shape] = openvino_graph(
                    model, threads, bfloat16=bfloat16, device=device, shape=shape
                )
        return graphs[shape](inputs)

    return run


def openvino_has_bfloat16() -> bool:
    """Whether OpenVINO multiplies bfloat16 on this processor."""
    openvino = import_openvino()

    with kept_signal_stack():
        return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
