"""The options --runtime and --threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.config import Runtime
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.detector import Detector
    from stepvad.evaluation.baselines import Fitted

RuntimeName = Annotated[
    Runtime,
    typer.Option(
        help="Inference engine. `auto`: the same scores on every machine; "
        "`fastest`: bfloat16 if the CPU supports it."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Number of threads; defaults to OMP_NUM_THREADS, or all cores."),
]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Engine for the energies, and its number of threads."""

    runtime: RuntimeName = "auto"
    threads: Threads = None


DEFAULT_ENGINE = EngineOptions()


def on_engine(fitted: Fitted, engine: EngineOptions) -> Fitted:
    """Move a fitted method to the chosen engine; distances have no network and run on numpy."""
    from stepvad.detector import Detector

    if isinstance(fitted, Detector):
        if engine != DEFAULT_ENGINE:
            fitted = replace(fitted, runtime=engine.runtime, threads=engine.threads)
    elif engine.runtime != "auto":
        raise StepvadError(
            f"--runtime: expected a model with a network for {engine.runtime!r}, got distances",
            hint="leave --runtime out",
        )
    return fitted


def engine_words(detector: Detector) -> str:
    """The engine of a detector and its threads, as text."""
    return f"{detector.network.engine}, threads: {detector.network.threads}"


def load_detector(path: Path) -> Detector:
    """Load a model with a network; distances have none and are rejected."""
    from stepvad.detector import Detector
    from stepvad.evaluation import baselines

    fitted = baselines.load(path)
    if not isinstance(fitted, Detector):
        raise StepvadError(
            f"{path}: expected a model with a network, got distances",
            hint="fit one with: stepvad fit POSES -o model.safetensors",
        )
    return fitted
