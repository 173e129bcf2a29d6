"""One model in one .safetensors file: tensors, settings, skeleton and where it came from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from stepvad.codec import Count, from_plain
from stepvad.config import Config
from stepvad.errors import ModelFileError, StepvadError, os_reason
from stepvad.files import replacing
from stepvad.model import hub
from stepvad.model.folded import Weights, weight_shapes
from stepvad.model.pcspace import PCSpace
from stepvad.model.rankings import ranking_tensors, read_ranking, read_usual
from stepvad.model.surprise import SurpriseByAge
from stepvad.model.tensors import check_positive, checked
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Repairs
from stepvad.windows.views import Pace, view_shape

FORMAT = 1
"""Version of the file format."""
KEY = "stepvad"
"""The only metadata entry: several would be written in no fixed order."""
NETWORK = "network."
"""Prefix of the energy model's tensors."""
Metadata = dict[str, object]
"""The JSON beside the tensors, before its fields are checked."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model came from."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Everything a fitted detector knows."""

    config: Config
    skeleton: Skeleton
    space: PCSpace
    weights: Weights
    E_mean: NDArray[np.float64]
    """Ē_i over the training windows, `(L,)`."""
    E_var: NDArray[np.float64]
    """Var(E_i) over the training windows, `(L,)`."""
    origin: Origin
    sha256: str = ""
    """Digest of the bytes it was read from; empty if it was not read from a file."""
    views: tuple[ViewModel, ...] = ()
    """All views of a detector with several; the first one is this model without them."""


@dataclass(frozen=True, slots=True, eq=False)
class ViewModel:
    """One of several views: its energy model, and how rare its scores are."""

    model: Model
    surprise: SurpriseByAge
    usual: NDArray[np.float64] | None = None
    """Quantiles of how much there is of each meaning in normal footage, `(meanings, QUANTILES)`.

    Of motion alone.
    """


def write(model: Model, path: Path) -> None:
    """Write a model atomically; the same model gives the same bytes."""
    meta = {
        "format": FORMAT,
        "config": model.config.facts(),
        "skeleton": asdict(model.skeleton),
        "origin": asdict(model.origin),
    }
    tensors = _tensors(model)
    for number, view in enumerate(model.views):
        prefix = _view(number)
        if number:  # the first one is the model itself
            tensors |= {prefix + name: value for name, value in _tensors(view.model).items()}
        tensors |= ranking_tensors(prefix, view.surprise, view.usual)
    write_tensors(tensors, meta, path)


def _view(number: int) -> str:
    """Prefix of the tensors of a view."""
    return f"view{number}."


def _tensors(model: Model) -> dict[str, NDArray[Any]]:
    """The arrays of one energy model by name."""
    return {
        **space_tensors(model.space),
        "E_mean": model.E_mean,
        "E_var": model.E_var,
        **{NETWORK + name: value for name, value in model.weights.items()},
    }


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


def read(path: Path) -> Model:
    """Read and validate a model."""
    tensors, meta, sha256 = read_with_digest(path)
    if meta.get("method") is not None:
        raise ModelFileError(
            f"{path}: expected a model trained by score matching, got one of method "
            f"{meta['method']!r}",
            hint="read it with stepvad.evaluation.baselines.load",
        )
    with whole(path, meta):
        return replace(model(tensors, meta), sha256=sha256)


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


def read_tensors(path: Path) -> tuple[dict[str, NDArray[Any]], Metadata]:
    """Named arrays and the JSON text beside them; nothing in the file is ever executed."""
    tensors, meta, _ = read_with_digest(path)
    return tensors, meta


def read_with_digest(path: Path) -> tuple[dict[str, NDArray[Any]], Metadata, str]:
    """The same, with the SHA-256 of the very bytes that were read."""
    try:
        raw = hub.local(path).read_bytes()
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
    return hashlib.sha256(hub.local(path).read_bytes()).hexdigest()


def model(tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, object]) -> Model:
    """The model that these tensors and words describe, checked."""
    config, skeleton, origin = read_settings(meta)
    made = _one_view(tensors, config, skeleton, origin)
    views = [
        ViewModel(
            _view_model(tensors, number, view, made),
            read_ranking(tensors, _view(number), view),
            read_usual(tensors, _view(number), view),
        )
        for number, view in enumerate(config.views)
    ]
    return replace(made, views=tuple(views))


def _view_model(
    tensors: Mapping[str, NDArray[Any]], number: int, config: Config, first: Model
) -> Model:
    """The energy model of a view; the first one's is that of the whole."""
    if number == 0:
        if config != replace(first.config, views=()):
            raise ValueError("its first view has other settings than the model")
        return replace(first, config=config)
    prefix = _view(number)
    own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    return _one_view(own, config, first.skeleton, first.origin)


def _one_view(
    tensors: Mapping[str, NDArray[Any]], config: Config, skeleton: Skeleton, origin: Origin
) -> Model:
    """One energy model, checked."""
    if config.blocks > len(tensors):
        raise ValueError(f"setting blocks is {config.blocks}")
    if config.pace:
        Pace.of(config.pace)
    weights = weight_shapes(config)
    shapes = {NETWORK + name: shape for name, shape in weights.items()} | {
        "E_mean": (config.L,),
        "E_var": (config.L,),
    }
    checked(tensors, shapes)
    check_positive("E_var", tensors["E_var"])
    return Model(
        config=config,
        skeleton=skeleton,
        space=read_space(tensors, config, skeleton),
        weights={name: tensors[NETWORK + name] for name in weights},
        E_mean=tensors["E_mean"],
        E_var=tensors["E_var"],
        origin=origin,
    )


def read_settings(meta: Mapping[str, object]) -> tuple[Config, Skeleton, Origin]:
    """Settings, joints and origin of a model, checked."""
    settings: Any = meta["config"]  # `Config` checks them
    return (
        Config.of_facts(settings),
        from_plain(Skeleton, meta["skeleton"], "skeleton"),
        from_plain(Origin, meta["origin"], "origin"),
    )


def read_space(tensors: Mapping[str, NDArray[Any]], config: Config, skeleton: Skeleton) -> PCSpace:
    """Build and validate the projection that these settings specify."""
    D, K = math.prod(view_shape(config, skeleton.V)), config.K
    check_positive("Lambda_K", tensors["Lambda_K"])
    mu, W_K, Lambda_K = checked(tensors, {"mu": (D,), "W_K": (D, K), "Lambda_K": (K,)})
    return PCSpace(mu, W_K, Lambda_K, config.whitened)
