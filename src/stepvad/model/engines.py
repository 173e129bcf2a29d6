"""The energy model for scoring: σ is known, so its branches are constants (Fig. 3).

The folded network runs in numpy, or as a graph on ONNX Runtime or OpenVINO (Supp. C).
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad import executors
from stepvad.config import Config, Engine, Runtime
from stepvad.errors import ConfigError, MissingExtraError, StepvadError

LAYER_NORM_EPSILON = 1e-5
"""Added to the variance by LayerNorm."""
ROWS = 128
"""Windows per batch: more would not fit the caches, fewer would make the products too small."""

Weights = Mapping[str, NDArray[np.float32]]
Float32Array = NDArray[np.float32]
Float = TypeVar("Float", np.float32, np.float64)
Blocks = Callable[[Sequence[Float32Array]], Float32Array]
"""The signature of `Folded.blocks`, which a faster engine may replace."""
Energies = Callable[[Float32Array], Float32Array]
"""π(x) `(N, K)` to f_θ(π(x), σ_i) `(N, L)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """f_θ(·, σ_i) for all L scales at once.

    A hidden state is h = s + C, where the constant C per scale sums the contributions of σ. Only s
    is computed; C is folded into the biases. There is no activation between the input layer and
    block 1, so both are one product with π(x).
    """

    W_1z: Float32Array
    """Block 1's linear map after the input layer, `(width, K)`."""
    W_z: Float32Array | None
    """Columns of the input layer for π(x), `(width, K)`; None for a plain MLP, without skips."""
    W: Float32Array
    """Linear maps of the blocks after the first, `(blocks - 1, width, width)`."""
    b: Float32Array
    """Biases of the linear map of every block, `(blocks, L, width)`."""
    head: Float32Array
    """Head weights `(width,)`."""
    constant: NDArray[np.float64]
    """Constants added after the head, `(L,)`."""

    @property
    def L(self) -> int:
        """Number of noise scales."""
        return len(self.constant)

    def energies(self, pi_x: Float32Array, blocks: Blocks | None = None) -> Float32Array:
        """f_θ(π(x), σ_i), `(N, L)`, from π(x) `(N, K)`; `blocks` replaces `self.blocks`."""
        run = blocks or self.blocks
        parts = [run(self.entry(pi_x[i : i + ROWS])) for i in range(0, len(pi_x), ROWS)]
        together = np.concatenate([np.empty((0, self.L), np.float32), *parts])
        return (together + self.constant).astype(np.float32)

    def entry(self, pi_x: Float32Array) -> list[Float32Array]:
        """Block 1's linear map and, unless the MLP is plain, the input layer, each `(N, width)`."""
        return [pi_x @ W.T for W in (self.W_1z, self.W_z) if W is not None]

    def blocks(self, entry: Sequence[Float32Array]) -> Float32Array:
        """All blocks and the head, `(N, L)`."""
        a, *skip = (values[:, None] for values in entry)  # (N, 1, width)
        s = gelu(a + self.b[0])  # (N, L, width)
        for h in skip:
            s = h + s
        for W, b in zip(self.W, self.b[1:], strict=True):
            y = gelu((_rows(s) @ W.T).reshape(s.shape) + b)
            s = s + y if skip else y
        return (_rows(s) @ self.head).reshape(s.shape[:2])

    def slopes(
        self, pi_x: Float32Array, scale: NDArray[np.int64]
    ) -> tuple[Float32Array, Float32Array]:
        """f_θ(z, σ) `(N,)` and ∇_z f_θ(z, σ) `(N, K)` at points `(N, K)`, each at its own scale.

        With a_i the input of GELU in block i and g = ∂f/∂s, each block turns g into
        g + W_iᵀ (g ⊙ GELU'(a_i)), or into the second term alone in a plain MLP.
        """
        parts = [
            self._slopes(pi_x[i : i + ROWS], scale[i : i + ROWS]) for i in range(0, len(pi_x), ROWS)
        ]
        f = np.concatenate([np.empty(0, np.float32), *(part[0] for part in parts)])
        grad_f = np.concatenate([np.empty((0, pi_x.shape[1]), np.float32), *(p[1] for p in parts)])
        return f, grad_f

    def _slopes(
        self, pi_x: Float32Array, scale: NDArray[np.int64]
    ) -> tuple[Float32Array, Float32Array]:
        # forward, each point at its own scale: s (N, width), slopes of every GELU
        a, *skip = self.entry(pi_x)
        s, inner = gelu_and_slope(a + self.b[0, scale])
        slopes = [inner]
        for h in skip:
            s = h + s
        for W, b in zip(self.W, self.b[1:], strict=True):
            y, inner = gelu_and_slope(s @ W.T + b[scale])
            s = s + y if skip else y
            slopes.append(inner)
        # backward: ∂f/∂s from the head to block 1, then through the input layer
        g = np.broadcast_to(self.head, s.shape)
        for W, inner in zip(self.W[::-1], slopes[:0:-1], strict=True):
            through = (g * inner) @ W
            g = g + through if skip else through
        grad_f = (g * slopes[0]) @ self.W_1z
        if self.W_z is not None:
            grad_f = grad_f + g @ self.W_z
        return (s @ self.head + self.constant[scale]).astype(np.float32), grad_f


def fold(weights: Weights, config: Config) -> Folded:
    """The trained network with σ folded into constants, computed in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    sigma = config.sigmas[:, None]  # (L, 1)
    # columns of the input layer for π(x) and for σ
    W_z, w_sigma = np.split(w["input.weight"], [config.K], axis=1)
    W = [w[f"blocks.{i}.linear.weight"] for i in range(config.blocks)]
    C = sigma @ w_sigma.T + w["input.bias"]  # (L, width)
    # what σ adds to the hidden state goes into the biases, block by block
    b = []
    for i in range(config.blocks):
        b.append(C @ W[i].T + w[f"blocks.{i}.linear.bias"])
        plain = config.network == "vanilla"
        C = np.zeros_like(C) if plain else C + _modulation(w, i, sigma)
    return Folded(
        W_1z=_float32(W[0] @ W_z),
        W_z=None if config.network == "vanilla" else _float32(W_z),
        W=_float32(np.array(W[1:]).reshape(config.blocks - 1, config.width, config.width)),
        b=_float32(np.array(b)),
        head=_float32(w["head.weight"][0]),
        constant=C @ w["head.weight"][0] + w["head.bias"][0],
    )


def gelu(a: NDArray[Float]) -> NDArray[Float]:
    """The exact a Φ(a), in the precision of `a`."""
    from scipy.special import erf  # which a camera's process never needs

    half = a.dtype.type(0.5)
    return a * (erf(a * np.sqrt(half)) + 1) * half


def gelu_and_slope(a: NDArray[Float]) -> tuple[NDArray[Float], NDArray[Float]]:
    """GELU(a) = a Φ(a) and its slope Φ(a) + a φ(a), in the precision of `a`."""
    from scipy.special import erf

    half = a.dtype.type(0.5)
    Phi = (erf(a * np.sqrt(half)) + 1) * half
    phi = np.exp(-half * a * a) * np.sqrt(half / a.dtype.type(np.pi))
    return a * Phi, Phi + a * phi


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the network."""
    width, sigma_width = config.width, config.sigma_width
    shapes: dict[str, tuple[int, ...]] = {
        "input.weight": (width, config.K + 1),
        "input.bias": (width,),
        "head.weight": (1, width),
        "head.bias": (1,),
    }
    for i in range(config.blocks):
        shapes |= {
            f"blocks.{i}.linear.weight": (width, width),
            f"blocks.{i}.linear.bias": (width,),
        }
        if config.network == "vanilla":
            continue
        shapes |= {
            f"blocks.{i}.sigma_in.weight": (sigma_width, 1),
            f"blocks.{i}.sigma_in.bias": (sigma_width,),
            f"blocks.{i}.sigma_out.weight": (width, sigma_width),
            f"blocks.{i}.sigma_out.bias": (width,),
            f"blocks.{i}.norm.weight": (width,),
            f"blocks.{i}.norm.bias": (width,),
            f"blocks.{i}.alpha.weight": (width, 1),
        }
    return shapes


def _modulation(
    w: Mapping[str, NDArray[np.float64]], i: int, sigma: NDArray[np.float64]
) -> NDArray[np.float64]:
    """LayerNorm(W₂ GELU(W₁ σ)) · α(σ) of block i, `(L, width)`."""
    block = f"blocks.{i}."
    # W₂ GELU(W₁ σ), (L, width), then LayerNorm and α(σ)
    inner = gelu(sigma @ w[block + "sigma_in.weight"].T + w[block + "sigma_in.bias"])
    outer = inner @ w[block + "sigma_out.weight"].T + w[block + "sigma_out.bias"]
    centred = outer - outer.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + LAYER_NORM_EPSILON)
    normed = centred / spread * w[block + "norm.weight"] + w[block + "norm.bias"]
    return normed * (sigma @ w[block + "alpha.weight"].T)


def _rows(values: Float32Array) -> Float32Array:
    """`(N, L, width)` as `(N L, width)`: one large product is faster than N small ones."""
    return values.reshape(-1, values.shape[-1])


def _float32(values: NDArray[np.float64]) -> Float32Array:
    return np.ascontiguousarray(values, dtype=np.float32)


OPSET = 20
"""The first with GELU as one operator."""
IR_VERSION = 9
"""The file layout that came with this operator set."""

Shape = Sequence[int | str]


class Graph:
    """A graph under construction: every call appends a node and returns the name of its result."""

    def __init__(self) -> None:
        import onnx  # imported here: scoring in numpy works without it

        self._onnx: Any = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, values: NDArray[Any] | Sequence[int] | float) -> str:
        """Add an array; floats become float32, lists of integers int64, arrays keep their type."""
        name = f"constant_{len(self._constants)}"
        array = np.asarray(values, dtype=np.float32) if isinstance(values, float) else values
        array = np.asarray(array, order="C")
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """Append an operator and return the name of its first result."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, results))]
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, names, **attributes))
        return name

    def rename(self, result: str, name: str) -> str:
        """Expose a result under a public name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [result], [name]))
        return name

    def model(
        self,
        inputs: dict[str, Shape],
        outputs: dict[str, Shape],
        facts: dict[str, str] | None = None,
    ) -> bytes:
        """Check and serialise the finished graph; `facts` become its metadata."""
        helper, kind = self._onnx.helper, self._onnx.TensorProto.FLOAT
        given, results = (
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in values.items()]
            for values in (inputs, outputs)
        )
        graph = helper.make_graph(self._nodes, "stepvad", given, results, self._constants)
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="stepvad",
        )
        helper.set_model_props(made, facts or {})
        self._onnx.checker.check_model(made)
        raw: bytes = made.SerializeToString()
        return raw


def add_blocks(graph: Graph, folded: Folded, entry: Sequence[str]) -> str:
    """All blocks and the head, like `Folded.blocks`: `(N, width)` each to `(N, L)`.

    The head is a sum rather than a product: engines that multiply in bfloat16 then keep it, and
    with it the sums of the skips, in float32.
    """
    # a scale axis, (N, 1, width), so that biases (L, width) give all scales at once
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


log = logging.getLogger(__name__)

BFLOAT16 = ("bf16", "avx_ne_convert")
"""What the features of a processor that multiplies bfloat16 contain, as Linux names them."""
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
    """True if this machine can score with an engine."""
    if find_spec(_library(engine)) is None:
        return False
    return "bfloat16" not in engine or _has_bfloat16()


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
    """True if OpenVINO multiplies bfloat16; cached because importing it is slow.

    On Linux it is not even imported where no processor could.
    """
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return openvino_has_bfloat16()
    return any(name in known for name in BFLOAT16) and openvino_has_bfloat16()


def _blocks(folded: Folded, engine: Engine, threads: int) -> Blocks:
    if engine == "numpy":
        return folded.blocks
    model, bfloat16 = blocks_model(folded), engine == "openvino-bfloat16"
    graph = (
        onnxruntime_graph(model, threads)
        if engine == "onnxruntime"
        else openvino_graph(model, threads, bfloat16=bfloat16)
    )
    return lambda inputs: graph(inputs)[0]


RunGraph = Callable[[Sequence[Any]], list[Any]]
"""Inputs of a graph, in order, to all its outputs: arrays of any dtype."""


def onnxruntime_graph(
    model: bytes, threads: int, provider: str = "CPUExecutionProvider", **options: str
) -> RunGraph:
    """A graph on ONNX Runtime; threads may share the session.

    Its option to flush denormals stays off: it would change the arithmetic of the calling thread,
    and in a forward pass 1 + erf rounds to zero before a product gets that small.
    """
    onnxruntime = import_onnxruntime()

    # one pool of threads: windows of a call are computed one after the other
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
    streams: int = 1,
) -> RunGraph:
    """A graph on OpenVINO, for inputs of one shape if given; `streams` calls share the threads.

    A request serves one thread at a time, so idle ones are pooled.
    """
    openvino = import_openvino()

    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "bf16" if bfloat16 else "f32"}
    if device == "CPU":
        settings |= {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": streams,
            "CPU_DENORMALS_OPTIMIZATION": False,
        }
    with kept_signal_stack():
        core = openvino.Core()
        graph = core.read_model(model)
        # OpenVINO drops an input as it reads a graph if no output depends on it
        reads_inputs = bool(graph.inputs)
        if shape is not None and reads_inputs:
            graph.reshape(list(shape))
        compiled = core.compile_model(graph, device, settings)
    idle: SimpleQueue[Any] = SimpleQueue()

    def run(inputs: Sequence[Any]) -> list[Any]:
        # an idle request, or one more if all are busy in other threads
        try:
            request = idle.get_nowait()
        except Empty:
            request = compiled.create_infer_request()
        try:
            given = request.infer(list(inputs) if reads_inputs else [], share_inputs=True)
            return [given[at].copy() for at in range(len(given))]
        finally:
            idle.put(request)

    return run


def openvino_by_shape(
    model: bytes, threads: int, *, bfloat16: bool, device: str = "CPU", streams: int = 1
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
                    model,
                    threads,
                    bfloat16=bfloat16,
                    device=device,
                    shape=shape,
                    streams=streams,
                )
        return graphs[shape](inputs)

    return run


def openvino_has_bfloat16() -> bool:
    """True if OpenVINO multiplies bfloat16 on this processor."""
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
