"""The folded network on the installed engines (Supp. C, runtime)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from stepvad import cores
from stepvad.config import Engine, Runtime
from stepvad.errors import ConfigError, MissingExtraError, StepvadError
from stepvad.model.folded import Blocks, Energies, Folded
from stepvad.model.runtime.engines import EnginePrecision

__all__ = [
    "ENGINES",
    "Engine",
    "EngineNetwork",
    "Runtime",
    "available",
    "choose",
    "is_cpu",
    "precision_of",
    "threads_of",
    "unquantised",
    "usable",
]

log = logging.getLogger(__name__)

ENGINES: tuple[Engine, ...] = get_args(Engine)
FASTEST: tuple[Engine, ...] = ("openvino-bfloat16", "torch-bfloat16", "openvino", "onnxruntime")
"""Best first, measured on a Xeon with AMX; the benchmark page has the figures."""
REDUCED_FROM = 128
"""Smallest width at which bfloat16 products are worth their conversions."""
EXTRAS = {"onnxruntime": "all", "openvino": "openvino", "torch": "train"}
"""The extra that installs each library."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineNetwork:
    """f_θ(·, σ_i) on one engine; threads may share it."""

    folded: Folded
    engine: Engine
    threads: int
    """Threads per call; numpy and torch use their own process-wide number instead."""
    device: str
    """Torch device; engines other than torch's compute on the processor."""
    compute: Energies

    @classmethod
    def of(
        cls,
        folded: Folded,
        runtime: Runtime = "auto",
        threads: int | None = None,
        device: str = "cpu",
    ) -> EngineNetwork:
        """Load the network into the engine that `runtime` names or selects for a device."""
        engine, number = choose(runtime, width=len(folded.head), device=device), threads_of(threads)
        where = "" if is_cpu(device) else f" on {device}"
        log.info("scoring with %s%s, threads: %d", engine, where, number)
        return cls(folded, engine, number, device, _energies(folded, engine, number, device))

    def energies(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`, from π(x) `(N, K)`."""
        return self.compute(pi_x)

    def __reduce__(self) -> tuple[Callable[..., EngineNetwork], tuple[Folded, Engine, int, str]]:
        """Pickle the weights, not the engine: each process creates its own."""
        return EngineNetwork.of, (self.folded, self.engine, self.threads, self.device)


def choose(runtime: Runtime, *, width: int, device: str = "cpu") -> Engine:
    """The engine to score with; torch on a device other than the processor.

    `auto` gives the same scores on every machine: ONNX Runtime in float32, which the base
    installation includes. `fastest` uses bfloat16 where the processor or device multiplies it.
    """
    if not is_cpu(device):
        return _on_device(runtime, width, device)
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


def unquantised(runtime: Runtime) -> Runtime:
    """The same engine in float32 instead of int8, for a network without measured ranges."""
    match runtime:
        case "onnxruntime-int8":
            return "onnxruntime"
        case "openvino-int8":
            return "openvino"
        case _:
            return runtime


def is_cpu(device: str) -> bool:
    """Whether a torch device is the processor."""
    return device.partition(":")[0] == "cpu"


def _on_device(runtime: Runtime, width: int, device: str) -> Engine:
    """The engine for a device: torch is the only one that computes there."""
    if runtime in ("torch", "torch-bfloat16"):
        return runtime
    if runtime not in ("auto", "fastest"):
        raise ConfigError(
            f"runtime: expected torch for the device {device}, got {runtime!r}",
            hint="use 'auto', or the device cpu",
        )
    wide = runtime == "fastest" and width >= REDUCED_FROM
    return "torch-bfloat16" if wide and _has_bfloat16("torch", device) else "torch"


def usable(engine: Engine) -> bool:
    """Whether this machine can score with an engine."""
    library = _library(engine)
    if find_spec(library) is None:
        return False
    return "bfloat16" not in engine or _has_bfloat16(library)


def available(*, ranges: bool = True) -> list[Engine]:
    """Engines that this machine can score with; int8 ones only if the model has `ranges`."""
    return [engine for engine in ENGINES if usable(engine) and (ranges or "int8" not in engine)]


def threads_of(threads: int | None) -> int:
    """`threads` if given, else OMP_NUM_THREADS, as in numpy and torch, else all cores."""
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"threads: expected at least 1, got {threads}")
        return threads
    return cores.threads_asked() or cores.usable()


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
def _has_bfloat16(library: str, device: str = "cpu") -> bool:
    """Whether a device multiplies bfloat16; cached because importing the library is slow."""
    if library == "openvino":
        from stepvad.model.runtime.engines import openvino_has_bfloat16

        return openvino_has_bfloat16()
    from stepvad.model.device import has_bfloat16, torch_device

    return has_bfloat16(torch_device(device))


def precision_of(engine: Engine) -> EnginePrecision:
    """Precision of the large products of an engine."""
    if "bfloat16" in engine:
        return "bfloat16"
    return "int8" if "int8" in engine else "float32"


def _energies(folded: Folded, engine: Engine, threads: int, device: str) -> Energies:
    if is_cpu(device):
        return partial(folded.energies, blocks=_blocks(folded, engine, threads))
    from stepvad.model.runtime.torch_engine import torch_energies

    return torch_energies(folded, device, bfloat16=engine == "torch-bfloat16")


def _blocks(folded: Folded, engine: Engine, threads: int) -> Blocks:
    if "int8" in engine and folded.ranges is None:
        raise ConfigError(
            f"runtime: expected a model with the ranges of its activations for {engine!r}, "
            "got an older one",
            hint="fit it again, or use another runtime",
        )
    match engine:
        case "numpy":
            return folded.blocks
        case "onnxruntime" | "onnxruntime-int8":
            from stepvad.model.runtime.engines import onnxruntime_blocks

            return onnxruntime_blocks(folded, threads, precision_of(engine))
        case "openvino" | "openvino-bfloat16" | "openvino-int8":
            from stepvad.model.runtime.engines import openvino_blocks

            return openvino_blocks(folded, threads, precision_of(engine))
        case "torch" | "torch-bfloat16":
            from stepvad.model.runtime.torch_engine import torch_blocks

            return torch_blocks(folded, bfloat16=engine == "torch-bfloat16")
