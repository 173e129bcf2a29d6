"""One model in one .safetensors file: tensors, settings, skeleton and where it came from.

A path may be hf://OWNER/NAME/FILE, or hf://OWNER/NAME@REVISION/FILE: a model on the Hugging Face
Hub, which is downloaded once.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from stepvad.codec import Count, from_plain
from stepvad.config import Config
from stepvad.errors import MissingExtraError, ModelFileError, StepvadError, os_reason
from stepvad.files import replacing
from stepvad.model.folded import Weights, weight_shapes
from stepvad.model.pcspace import PCSpace
from stepvad.model.surprise import Surprise, SurpriseByAge
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Repairs
from stepvad.windows.views import MEANINGS, Pace, view_shape

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
        raw = local_path(path).read_bytes()
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
    return hashlib.sha256(local_path(path).read_bytes()).hexdigest()


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


QUANTILES = (0.0, 0.01, 0.99, 1.0)
"""Of normal footage, kept of a motion."""


def ranking_tensors(
    prefix: str, surprise: SurpriseByAge, usual: NDArray[np.float64] | None
) -> dict[str, NDArray[Any]]:
    """The distribution of a view's scores, and what is usual, as named arrays."""
    tensors = {prefix + "ages": np.array(surprise.first, np.float64)}
    for number, band in enumerate(surprise.bands):
        tensors[f"{prefix}{number}.levels"] = band.levels
        tensors[f"{prefix}{number}.nats"] = band.nats
        tensors[f"{prefix}{number}.scale"] = np.array([band.scale])
    return tensors if usual is None else {**tensors, prefix + "usual": usual}


def read_ranking(tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config) -> SurpriseByAge:
    """The distribution of a view's scores, checked."""
    ages = tensors[prefix + "ages"]
    check_tensor(prefix + "ages", ages, (len(ages),), np.float64)
    if not (len(ages) and (np.diff(ages) > 0).all() and ages[0] >= 1 and ages[-1] <= config.T):
        raise ValueError(f"tensor {prefix}ages must rise from 1 to T at most")
    bands = [_surprise(tensors, f"{prefix}{band}.") for band in range(len(ages))]
    return SurpriseByAge(tuple(map(int, ages)), tuple(bands))


def read_usual(
    tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config
) -> NDArray[np.float64] | None:
    """What is usual in a motion, checked; None for other views."""
    if config.view != "motion":
        return None
    usual = tensors[prefix + "usual"]
    shape = len(MEANINGS[config.view]), len(QUANTILES)
    check_tensor(prefix + "usual", usual, shape, np.float64)
    if not (np.diff(usual, axis=1) >= 0).all():
        raise ValueError(f"tensor {prefix}usual must rise")
    return usual


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
    dtype = dtype or (np.float64 if name in ("E_mean", "E_var") else np.float32)
    if tensor.shape != shape or tensor.dtype != dtype:
        raise ValueError(
            f"tensor {name} must be {np.dtype(dtype).name} of shape {shape}, "
            f"got {tensor.dtype} of {tensor.shape}"
        )
    if not (np.abs(tensor) < LARGEST).all():  # NaN compares false
        raise ValueError(f"tensor {name} must be finite and below {LARGEST:.0e}")


HUB_SCHEME = re.compile(r"hf:/{1,2}")
"""A path joins two slashes into one."""
HUB_REST = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?/(?P<file>[\w./-]+\.safetensors)"
)
HUB_TIMEOUT_S = 10.0


class HubAddress(NamedTuple):
    """Where on the Hub a model is; a revision is a branch, a tag or a commit."""

    repository: str
    file: str
    revision: str | None


def hub_address(path: Path) -> HubAddress | None:
    """The address in a path, None if it is a path of this machine."""
    scheme = HUB_SCHEME.match(str(path))
    if scheme is None:
        return None
    found = HUB_REST.fullmatch(str(path)[scheme.end() :])
    if found is None:
        raise ModelFileError(
            f"model: expected hf://OWNER/NAME/FILE.safetensors, got {path}",
            hint="with a revision: hf://OWNER/NAME@REVISION/FILE.safetensors",
        )
    return HubAddress(found["repository"], found["file"], found["revision"])


def local_path(path: Path) -> Path:
    """The file itself: a path of this machine as it is, a model of the Hub from its cache."""
    wanted = hub_address(path)
    return path if wanted is None else _downloaded(wanted)


def _downloaded(wanted: HubAddress) -> Path:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise MissingExtraError("reading a model from the Hub", "hub") from None
    try:
        return Path(
            hf_hub_download(
                wanted.repository,
                wanted.file,
                revision=wanted.revision,
                etag_timeout=HUB_TIMEOUT_S,
            )
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelFileError(
            f"{wanted.repository}: expected {wanted.file} on the Hub, got: {reason}",
            hint="check the address and the connection; set HF_TOKEN for private models",
        ) from error
