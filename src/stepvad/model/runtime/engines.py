"""ONNX Runtime and OpenVINO: the same graph, on a known number of threads.

Neither flushes denormals to zero: both would do so for the whole calling thread, including its
other computations. The exact GELU in float32 gives 0 or a normal number, so there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Literal

from stepvad.model.folded import Blocks, Float32Array, Folded
from stepvad.model.runtime.graph import blocks_model
from stepvad.model.runtime.telemetry import import_onnxruntime, import_openvino

EnginePrecision = Literal["float32", "bfloat16", "int8"]
RunBlocks = Callable[[Sequence[Float32Array]], Float32Array]
"""Inputs of a graph, in order, to its one output."""
RunGraph = Callable[[Sequence[Any]], list[Any]]
"""Inputs of a graph, in order, to all its outputs: arrays of any dtype."""


def onnxruntime_blocks(folded: Folded, threads: int, precision: EnginePrecision) -> Blocks:
    """The blocks on ONNX Runtime, their large products in float32 or int8."""
    return onnxruntime_run(blocks_model(folded, int8=precision == "int8"), threads)


def openvino_blocks(folded: Folded, threads: int, precision: EnginePrecision) -> Blocks:
    """The blocks on OpenVINO, their large products in this precision."""
    model = blocks_model(folded, int8=precision == "int8")
    return openvino_run(model, threads, bfloat16=precision == "bfloat16")


def onnxruntime_run(model: bytes, threads: int) -> RunBlocks:
    """The first output of a graph on ONNX Runtime."""
    graph = onnxruntime_graph(model, threads)
    return lambda inputs: graph(inputs)[0]


def openvino_run(model: bytes, threads: int, *, bfloat16: bool) -> RunBlocks:
    """The first output of a graph on OpenVINO."""
    graph = openvino_graph(model, threads, bfloat16=bfloat16)
    return lambda inputs: graph(inputs)[0]


def onnxruntime_graph(model: bytes, threads: int) -> RunGraph:
    """A graph on ONNX Runtime; threads may share the session.

    Its option to flush denormals stays off: it would change the arithmetic of the calling thread,
    and in a forward pass 1 + erf rounds to zero before a product gets that small.
    """
    onnxruntime = import_onnxruntime()

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def openvino_graph(model: bytes, threads: int, *, bfloat16: bool) -> RunGraph:
    """A graph on OpenVINO; a request serves one thread at a time, so idle ones are pooled."""
    openvino = import_openvino()

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "bf16" if bfloat16 else "f32",
        "CPU_DENORMALS_OPTIMIZATION": False,
    }
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
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


def openvino_has_bfloat16() -> bool:
    """Whether OpenVINO multiplies bfloat16 on this processor."""
    openvino = import_openvino()

    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
