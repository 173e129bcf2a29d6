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

from stepvad import executors
from stepvad.config import Engine, Runtime
from stepvad.errors import ConfigError, MissingExtraError, StepvadError
from stepvad.model.folded import Blocks, Energies, Folded

__all__ = [
    "ENGINES",
    "Engine",
    "EngineNetwork",
    "Runtime",
    "available",
    "choose",
    "threads_of",
    "usable",
]

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
    def of(
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
        return EngineNetwork.of, (self.folded, self.engine, self.threads)


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
    from stepvad.model.runtime.engines import openvino_has_bfloat16

    return openvino_has_bfloat16()


def _blocks(folded: Folded, engine: Engine, threads: int) -> Blocks:
    if engine == "numpy":
        return folded.blocks
    from stepvad.model.runtime.engines import onnxruntime_run, openvino_run
    from stepvad.model.runtime.graph import blocks_model

    if engine == "onnxruntime":
        return onnxruntime_run(blocks_model(folded), threads)
    return openvino_run(blocks_model(folded), threads, bfloat16=engine == "openvino-bfloat16")
