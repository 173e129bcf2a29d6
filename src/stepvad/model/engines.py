"""The folded network on numpy, ONNX Runtime or OpenVINO, whichever is installed (Supp. C)."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad import executors
from stepvad.config import Engine, Runtime
from stepvad.errors import ConfigError, MissingExtraError, StepvadError
from stepvad.model.folded import Blocks, Energies, Float32Array, Folded

log = logging.getLogger(__name__)

ENGINES: tuple[Engine, ...] = get_args(Engine)
FASTEST: tuple[Engine, ...] = ("openvino-bfloat16", "openvino", "onnxruntime")
"""Best first, measured on a Xeon with AMX; the benchmark page has the figures."""
REDUCED_FROM = 128
"""Smallest width at which bfloat16 products are worth their conversions."""
EXTRAS = {"onnxruntime": "all", "openvino": "openvino"}
"""The extra that installs each library."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineNetwork:
    """f_θ(·, σ_i) on one engine; threads may share it."""

    folded: Folded
    engine: Engine
    threads: int
    """Threads per call; numpy uses its own process-wide number instead."""
    compute: Energies

    @classmethod
    def load(
        cls, folded: Folded, runtime: Runtime = "auto", threads: int | None = None
    ) -> EngineNetwork:
        """Load the network into the engine that `runtime` names or selects."""
        engine, number = choose(runtime, width=len(folded.head)), threads_of(threads)
        log.info("scoring with %s, threads: %d", engine, number)
        compute = partial(folded.energies, blocks=_blocks(folded, engine, number))
        return cls(folded, engine, number, compute)

    def energies(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`, from π(x) `(N, K)`."""
        return self.compute(pi_x)

    def __reduce__(self) -> tuple[Callable[..., EngineNetwork], tuple[Folded, Engine, int]]:
        """Pickle the weights, not the engine: each process creates its own."""
        return EngineNetwork.load, (self.folded, self.engine, self.threads)


def choose(runtime: Runtime, *, width: int) -> Engine:
    """The engine to score with.

    `auto` gives the same scores on every machine: ONNX Runtime in float32, which the base
    installation includes. `fastest` uses bfloat16 where the processor multiplies it.
    """
    if runtime == "auto":
        return "onnxruntime" if usable("onnxruntime") else "numpy"
    if runtime == "fastest":
        wide = width >= REDUCED_FROM
        suited = [engine for engine in FASTEST if wide or "bfloat16" not in engine]
        return next(filter(usable, suited), "numpy")
    if runtime not in ENGINES:
        known = " or ".join(map(repr, ("auto", "fastest", *ENGINES)))
        raise ConfigError(f"runtime: expected {known}, got {runtime!r}")
    if not usable(runtime):
        raise _refusal(runtime)
    return runtime


def usable(engine: Engine) -> bool:
    """Whether this machine can score with an engine."""
    if find_spec(_library(engine)) is None:
        return False
    return "bfloat16" not in engine or _has_bfloat16()


def available() -> list[Engine]:
    """Engines that this machine can score with."""
    return [engine for engine in ENGINES if usable(engine)]


def threads_of(threads: int | None) -> int:
    """`threads` if given, else OMP_NUM_THREADS, as in numpy and torch, else all cores."""
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"threads: expected at least 1, got {threads}")
        return threads
    return executors.threads_asked() or executors.usable_cores()


def _library(engine: Engine) -> str:
    return engine.partition("-")[0]


def _refusal(engine: Engine) -> StepvadError:
    library = _library(engine)
    if find_spec(library) is None:
        return MissingExtraError(f"runtime {engine}", EXTRAS[library])
    return ConfigError(
        f"runtime: expected a processor that supports bfloat16 for {engine!r}, got another",
        hint=f"take {library!r} or 'auto'",
    )


@cache
def _has_bfloat16() -> bool:
    """Whether OpenVINO multiplies bfloat16; cached because importing it is slow."""
    return openvino_has_bfloat16()


def _blocks(folded: Folded, engine: Engine, threads: int) -> Blocks:
    if engine == "numpy":
        return folded.blocks
    from stepvad.model.graph import blocks_model

    if engine == "onnxruntime":
        return onnxruntime_run(blocks_model(folded), threads)
    return openvino_run(blocks_model(folded), threads, bfloat16=engine == "openvino-bfloat16")


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


def import_onnxruntime() -> Any:
    """Import ONNX Runtime without telemetry, in this process and its children.

    An existing value of ORT_DISABLE_TELEMETRY is kept.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: TID251

    return onnxruntime


def import_openvino() -> Any:
    """Import OpenVINO without telemetry, by hiding the package that sends it."""
    name = "openvino_telemetry"
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment] # as if not installed
    try:
        import openvino  # noqa: TID251
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
    return openvino


class _Stack(ctypes.Structure):
    """`stack_t` of Linux."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_size_t),
    )


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Put the signal stack of this thread back on exit.

    OpenVINO sets one while it loads its CPU plugin and frees it with the last model, possibly in
    another thread. The next signal to this thread, such as a Ctrl-C, would then crash the process.
    """
    if sys.platform != "linux":
        yield
        return
    before, library = _Stack(), ctypes.CDLL(None)
    library.sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        library.sigaltstack(ctypes.byref(before), None)
