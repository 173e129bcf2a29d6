"""The projection π learned from footage: PCA, or what the paper compares it with (Sec. 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.encoder import Encoder
from stepvad.errors import ConfigError, DataError, MissingExtraError
from stepvad.footage import Footage
from stepvad.modelfile import Space
from stepvad.pcspace import Moments, PCSpace
from stepvad.progress import Report, silent
from stepvad.skeletons import Skeleton


def resolve(config: Config, skeleton: Skeleton) -> Config:
    """The settings with the K that raw coordinates have, all 2VT of them."""
    if config.projection != "raw":
        return config
    return replace(config, K=2 * skeleton.V * config.T)


def fit_space(parts: Sequence[Footage], config: Config, report: Report = silent) -> Space:
    """π of all windows of these footages (Eq. 6), as the settings ask for it."""
    D = 2 * parts[0].skeleton.V * config.T
    match config.projection:
        case "raw":
            return PCSpace.identity(D)
        case "pca":
            return PCSpace.fit(
                Moments.of(_rows(parts, "components", report), D), config.K, whiten=config.whiten
            )
        case "autoencoder" | "vae":
            return _fit_encoder(parts, D, config, report)


def _fit_encoder(parts: Sequence[Footage], D: int, config: Config, report: Report) -> Encoder:
    """An encoder whose latents are whitened over the windows it was trained on."""
    try:
        from stepvad import autoencoder
    except ImportError as error:
        raise MissingExtraError("fit", "train") from error
    if config.batch_size < 2:
        raise ConfigError(
            f"batch_size: expected at least 2 for an autoencoder, got {config.batch_size}",
            hint="its normalisation takes mean and variance over a batch",
        )
    n_windows = sum(map(len, parts))
    if n_windows <= config.K:
        raise DataError(
            f"projection: expected more than K = {config.K} windows, got {n_windows}",
            hint="choose a smaller K or fit on more footage",
        )
    encoder = autoencoder.train(
        lambda rows: _numbered(parts, rows, D), n_windows, D, config, report
    )
    if not config.whiten:
        return encoder
    latents = (encoder.project(x) for x in _rows(parts, "latents", report))
    space = PCSpace.fit(Moments.of(latents, config.K), config.K)
    return encoder.then(space.W_K / space.scale, space.mu)


def _rows(parts: Sequence[Footage], stage: str, report: Report) -> Iterator[NDArray[np.float32]]:
    """Flattened windows of all parts, `(n, D)` at a time."""
    for windows in chain.from_iterable(part.batches(stage, report) for part in parts):
        yield windows.x.reshape(len(windows), -1)


def _numbered(parts: Sequence[Footage], rows: NDArray[np.int64], D: int) -> NDArray[np.float32]:
    """Flattened windows by their number when all parts stand in a row, `(n, D)`."""
    chosen, first = [], 0
    for part in parts:
        mine = rows[(rows >= first) & (rows < first + len(part))] - first
        chosen.append(part.index.windows(mine).x.reshape(len(mine), D))
        first += len(part)
    return np.concatenate(chosen)
