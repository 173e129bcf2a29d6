"""What a stored result depends on apart from its settings and data: the code and the engine."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import stepvad
from stepvad.config import Compute, Config, Precision
from stepvad.errors import ConfigError
from stepvad.evaluation.baselines import Method, is_distance
from stepvad.model.runtime import choose

DECIDING = (
    "config.py",
    "detector.py",
    "model",
    "poses.py",
    "skeletons.py",
    "windows",
    "evaluation/baselines",
    "evaluation/custom.py",
    "evaluation/experiment.py",
    "evaluation/protocol.py",
    "evaluation/runs.py",
    "evaluation/trivial.py",
    "evaluation/validation.py",
)
"""The parts of the package that decide a score."""


@cache
def code() -> str:
    """A digest of the version and of the code that decides a score."""
    return f"{version('stepvad')} {code_digest(Path(stepvad.__file__).parent)}"


def code_digest(package: Path) -> str:
    """A digest of the deciding files of a package, in whatever directory it is."""
    sha = hashlib.sha256()
    for part in DECIDING:
        for file in sorted([package / part, *(package / part).rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                sha.update(repr(str(file.relative_to(package))).encode())
                sha.update(hashlib.sha256(file.read_bytes()).digest())
    return sha.hexdigest()


def resolved(compute: Compute, config: Config) -> Compute:
    """`compute` with the engine and the precision that `auto` and `fastest` mean on this machine.

    Scores of two engines differ in their last digits, in bfloat16 by more.
    """
    engine = choose(compute.runtime, width=config.width)
    return replace(compute, runtime=engine, precision=_precision(compute, config))


def _precision(compute: Compute, config: Config) -> Precision:
    if compute.precision != "auto":
        return compute.precision
    if find_spec("torch") is None:  # nothing can be trained here, and nothing was
        return "float32"
    from stepvad.model.gradient import training_precision

    try:
        return training_precision(config, compute)
    except ConfigError:  # other machines of a cluster have that device
        return "auto"


def suffix(method: Method, compute: Compute, config: Config) -> str:
    """Part of the name of a result: the device, engine and precision it was computed with."""
    if is_distance(method):
        return ""
    own = resolved(compute, config)
    device = own.device.partition(":")[0]
    return "".join(f"-{part}" for part in (device, own.runtime, own.precision))
