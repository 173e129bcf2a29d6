"""One model in one .safetensors file: tensors, settings, skeleton and where it came from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from stepvad.codec import Count, from_plain
from stepvad.config import Config, Runtime, check_views
from stepvad.errors import ModelFileError, StepvadError, os_reason
from stepvad.files import replacing
from stepvad.model.engines import weight_shapes
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import EnergyModel, Model, Surprise, SurpriseByAge, View
from stepvad.model.usual import FOLDS, Centroids
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Repairs
from stepvad.windows.views import MEANINGS, Pace, view_shape

FORMAT = 3
"""Version of the file format."""
KEY = "stepvad"
"""The only metadata entry: several would be written in no fixed order."""
NETWORK = "network."
"""Prefix of the energy model's tensors."""
Metadata = dict[str, object]
"""The JSON beside the tensors, before its fields are checked."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Provenance of a model."""

    library: str
    """Version of stepvad that fitted it."""
    data_sha256: str
    """Digest of the training clips."""
    clips: Count
    windows: Count
    epochs: Count
    """Epochs trained; fewer than the settings ask for if training stopped early."""
    counts: Repairs
    """Repairs to the training poses."""


FileContents = tuple[tuple[View, ...], Skeleton, Origin, str]
"""All views, their joints, where they came from, and the digest of the bytes."""


def write(views: Sequence[View], skeleton: Skeleton, origin: Origin, path: Path) -> None:
    """Write a model atomically; the same model gives the same bytes."""
    meta = {
        "format": FORMAT,
        "views": [asdict(view.config) for view in views],
        "skeleton": asdict(skeleton),
        "origin": asdict(origin),
    }
    tensors: dict[str, NDArray[Any]] = {}
    for number, view in enumerate(views):
        tensors |= {prefix(number) + name: value for name, value in _tensors(view).items()}
    write_tensors(tensors, meta, path)


def prefix(number: int) -> str:
    """Prefix of the tensors of a view."""
    return f"view{number}."


def _tensors(view: View) -> dict[str, NDArray[Any]]:
    """The arrays of one view by name; those that it does not have are left out."""
    model, pace = view.model, view.model.pace
    tensors: dict[str, NDArray[Any]] = dict(space_tensors(model.space))
    if isinstance(model.learned, Centroids):
        tensors |= {"centroids": model.learned.points, "folds": model.learned.fold}
    else:
        tensors |= {"E_mean": model.learned.E_mean, "E_var": model.learned.E_var}
        tensors |= {NETWORK + name: value for name, value in model.learned.weights.items()}
    if model.noise:
        tensors["noise"] = np.array(model.noise)
    if pace is not None:
        tensors |= {"pace.feet": pace.feet, "pace.size": pace.size, "pace.speed": pace.speed}
    if model.usual is not None:
        tensors["usual"] = model.usual
    if view.surprise is not None:
        # the distribution of scores, by age
        tensors["ages"] = np.array(view.surprise.first, np.float64)
        for number, band in enumerate(view.surprise.bands):
            tensors[f"{number}.levels"] = band.levels
            tensors[f"{number}.nats"] = band.nats
            tensors[f"{number}.scale"] = np.array([band.scale])
    return tensors


def space_tensors(space: PCSpace) -> dict[str, NDArray[np.float32]]:
    """The projection's arrays by name."""
    return {"mu": space.mu, "W_K": space.W_K, "Lambda_K": space.Lambda_K}


def write_tensors(
    tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, object], path: Path
) -> None:
    """Write named arrays and their JSON metadata atomically."""
    text = json.dumps(meta, sort_keys=True)
    contiguous = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    with replacing(path, ModelFileError) as temporary:
        temporary.write_bytes(save(contiguous, metadata={KEY: text}))


def read(path: Path, runtime: Runtime = "auto", threads: int | None = None) -> FileContents:
    """Read and validate a model, and load its networks into their engine."""
    tensors, meta, sha256 = read_with_digest(path)
    if meta.get("method") is not None:
        raise ModelFileError(
            f"{path}: expected a model trained by score matching, got one of method "
            f"{meta['method']!r}",
            hint="read it with stepvad.evaluation.baselines.load",
        )
    with whole(path, meta):
        views, skeleton, origin = read_views(tensors, meta, runtime, threads)
        return views, skeleton, origin, sha256


@contextmanager
def whole(path: Path, meta: Mapping[str, object]) -> Iterator[None]:
    """Say of a file whose parts do not make a model what is wrong with it."""
    number = meta.get("format")
    if type(number) is not int or number != FORMAT:
        raise ModelFileError(
            f"{path}: expected format {FORMAT}, got {number!r}",
            hint="fit it again, or install the version of stepvad that wrote it",
        )
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StepvadError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelFileError(
            f"{path}: expected a complete stepvad model, but {reason}",
            hint="fit it again or copy the file again",
        ) from error


def read_with_digest(path: Path) -> tuple[dict[str, NDArray[Any]], Metadata, str]:
    """Named arrays, the JSON text beside them, and the SHA-256 of the very bytes that were read.

    Nothing in the file is ever executed.
    """
    try:
        raw = path.read_bytes()
        tensors = load(raw)
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        meta = json.loads(header["__metadata__"][KEY])
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be read: {os_reason(error)}",
            hint="the model comes before the poses: did you swap them?"
            if path.is_dir()
            else "check the path",
        ) from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(
            f"{path}: expected a .safetensors file written by stepvad, got another one, or part "
            "of one",
            hint="fit a model with: stepvad fit POSES -o model.safetensors",
        ) from error
    if not isinstance(meta, dict):
        raise ModelFileError(f"{path}: expected a stepvad model, got different metadata")
    return tensors, meta, hashlib.sha256(raw).hexdigest()


def sha256(path: Path) -> str:
    """Digest of a file; a loaded model has its own, taken from the bytes it was read from."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_views(
    tensors: Mapping[str, NDArray[Any]],
    meta: Mapping[str, object],
    runtime: Runtime = "auto",
    threads: int | None = None,
) -> tuple[tuple[View, ...], Skeleton, Origin]:
    """The views that these tensors and words describe, checked."""
    configs, skeleton, origin = read_settings(meta)
    check_views(configs)
    views = []
    for number, config in enumerate(configs):
        model = _model(tensors, prefix(number), config, skeleton)
        is_usual = config.scored_by == "usual"
        surprise = _ranking(tensors, prefix(number), config) if is_usual else None
        views.append(View(config, model, surprise, runtime, threads))
    return tuple(views), skeleton, origin


def _model(
    tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config, skeleton: Skeleton
) -> Model:
    """The model of one view, checked."""
    learned = _centroids if config.scored_by == "usual" else _energy
    return Model(
        space=read_space(tensors, config, skeleton, prefix),
        learned=learned(tensors, prefix, config),
        noise=_noise(tensors, prefix),
        pace=_pace(tensors, prefix, config),
        usual=_usual(tensors, prefix, config),
    )


def _energy(tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config) -> EnergyModel:
    if config.blocks > len(tensors):
        raise ValueError(f"setting blocks is {config.blocks}")
    weights = weight_shapes(config)
    checked(tensors, {prefix + NETWORK + name: shape for name, shape in weights.items()})
    E_mean, E_var = checked(tensors, {prefix + name: (config.L,) for name in ("E_mean", "E_var")})
    check_positive(prefix + "E_var", E_var)
    named = {name: tensors[prefix + NETWORK + name] for name in weights}
    return EnergyModel(named, E_mean, E_var)


def _centroids(tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config) -> Centroids:
    points, fold = tensors[prefix + "centroids"], tensors[prefix + "folds"]
    check_tensor(prefix + "centroids", points, (len(fold), config.K))
    check_tensor(prefix + "folds", fold, (len(fold),), np.int64)
    if not {*range(FOLDS)} == {*fold.tolist()}:
        raise ValueError(f"tensor {prefix}folds must be 0 to {FOLDS - 1}")
    return Centroids(points, fold)


def read_settings(
    meta: Mapping[str, object],
) -> tuple[tuple[Config, ...], Skeleton, Origin]:
    """Settings of all views, joints and origin of a model, checked."""
    settings: Any = meta["views"]  # `Config` checks them
    configs = tuple(map(Config.from_facts, settings))
    return (
        configs,
        from_plain(Skeleton, meta["skeleton"], "skeleton"),
        from_plain(Origin, meta["origin"], "origin"),
    )


def read_space(
    tensors: Mapping[str, NDArray[Any]], config: Config, skeleton: Skeleton, prefix: str = ""
) -> PCSpace:
    """Build and validate the projection that these settings specify."""
    D, K = math.prod(view_shape(config, skeleton.V)), config.K
    shapes = {"mu": (D,), "W_K": (D, K), "Lambda_K": (K,)}
    mu, W_K, Lambda_K = checked(tensors, {prefix + name: one for name, one in shapes.items()})
    check_positive(prefix + "Lambda_K", Lambda_K)
    return PCSpace(mu, W_K, Lambda_K, config.reference.whitening)


QUANTILES = (0.0, 0.01, 0.99, 1.0)
"""Of normal footage, kept of a motion."""


def _noise(tensors: Mapping[str, NDArray[Any]], prefix: str) -> tuple[float, ...]:
    """Spread of joints by confidence; none if it was not measured."""
    noise = tensors.get(prefix + "noise", np.empty(0))
    check_tensor(prefix + "noise", noise, (len(noise),), np.float64)
    if not (noise >= 0).all():
        raise ValueError(f"tensor {prefix}noise must not be negative")
    return tuple(noise.tolist())


def _pace(tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config) -> Pace | None:
    """Usual speeds at each place, of a motion alone."""
    if config.view != "motion":
        return None
    feet, size, speed = (tensors[f"{prefix}pace.{name}"] for name in ("feet", "size", "speed"))
    for name, levels in (("feet", feet), ("size", size)):
        check_tensor(f"{prefix}pace.{name}", levels, (len(feet),), np.float64)
        if not (np.diff(levels) >= 0).all():
            raise ValueError(f"tensor {prefix}pace.{name} must rise")
    check_tensor(prefix + "pace.speed", speed, (len(feet), len(feet), 2), np.float64)
    check_positive(prefix + "pace.speed", speed)
    return Pace(feet, size, speed)


def _usual(
    tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config
) -> NDArray[np.float64] | None:
    """Quantiles of the meanings, of a motion alone."""
    if config.view != "motion":
        return None
    usual = tensors[prefix + "usual"]
    shape = len(MEANINGS[config.view]), len(QUANTILES)
    check_tensor(prefix + "usual", usual, shape, np.float64)
    if not (np.diff(usual, axis=1) >= 0).all():
        raise ValueError(f"tensor {prefix}usual must rise")
    return usual


def _ranking(tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config) -> SurpriseByAge:
    """The distribution of a view's scores, checked."""
    ages = tensors[prefix + "ages"]
    check_tensor(prefix + "ages", ages, (len(ages),), np.float64)
    if not (len(ages) and (np.diff(ages) > 0).all() and ages[0] >= 1 and ages[-1] <= config.T):
        raise ValueError(f"tensor {prefix}ages must rise from 1 to T at most")
    bands = [_surprise(tensors, f"{prefix}{band}.") for band in range(len(ages))]
    return SurpriseByAge(tuple(map(int, ages)), tuple(bands))


def _surprise(tensors: Mapping[str, NDArray[Any]], prefix: str) -> Surprise:
    levels, nats, scale = (tensors[prefix + name] for name in ("levels", "nats", "scale"))
    for name, tensor in (("levels", levels), ("nats", nats), ("scale", scale)):
        shape = (1,) if name == "scale" else (len(levels),)
        check_tensor(prefix + name, tensor, shape, np.float64)
    if not (len(levels) and (np.diff(levels) > 0).all() and (np.diff(nats) >= 0).all()):
        raise ValueError(f"tensor {prefix}levels must rise")
    check_positive(prefix + "scale", scale)
    return Surprise(levels, nats, float(scale[0]))


LARGEST = 1e9
"""Every value of a valid model is smaller than this in magnitude."""
SMALLEST = 1e-12
"""Every variance of a valid model is larger than this."""


def checked(
    tensors: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> list[NDArray[Any]]:
    """The tensors of these names in order, each with its shape checked."""
    for name, shape in shapes.items():
        check_tensor(name, tensors[name], shape)
    return [tensors[name] for name in shapes]


def check_positive(name: str, tensor: NDArray[Any]) -> None:
    """Reject variances that are not positive."""
    if not (tensor > SMALLEST).all():
        raise ValueError(f"tensor {name} must be positive")


def check_tensor(
    name: str, tensor: NDArray[Any], shape: tuple[int, ...], dtype: type | None = None
) -> None:
    """Reject an array of the wrong shape or type, or with values out of range."""
    dtype = dtype or (np.float64 if name.endswith(("E_mean", "E_var")) else np.float32)
    if tensor.shape != shape or tensor.dtype != dtype:
        raise ValueError(
            f"tensor {name} must be {np.dtype(dtype).name} of shape {shape}, "
            f"got {tensor.dtype} of {tensor.shape}"
        )
    if not (np.abs(tensor) < LARGEST).all():  # NaN compares false
        raise ValueError(f"tensor {name} must be finite and below {LARGEST:.0e}")
