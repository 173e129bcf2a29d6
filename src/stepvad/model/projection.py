"""The projection π learned from footage: PCA, or raw coordinates (Sec. 3.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import Progress, Report, silent
from stepvad.model.footage import BATCH, Footage
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.skeletons import Skeleton
from stepvad.windows.views import view_shape

KEPT_BYTES = 1 << 30
"""Projected training windows are kept if they need no more memory than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Projected:
    """Training windows as π(x) `(N, K)` and c(x) `(N,)`; recomputed on demand if not kept."""

    footage: Footage
    space: PCSpace
    config: Config
    kept: tuple[NDArray[np.float32], NDArray[np.float32]] | None

    @classmethod
    def of(
        cls, footage: Footage, space: PCSpace, config: Config, report: Report = silent
    ) -> Projected:
        """All windows of the footage, projected now if they fit into `KEPT_BYTES`."""
        if 4 * len(footage) * (config.K + 1) > KEPT_BYTES:
            return cls(footage, space, config, None)
        pi_x = np.empty((len(footage), config.K), dtype=np.float32)
        c = np.empty(len(footage), dtype=np.float32)
        first = 0
        for windows in footage.batches("projecting", report):
            rows = slice(first, first := first + len(windows))
            pi_x[rows], c[rows] = space.project(windows.x), windows.weight(config)
        return cls(footage, space, config, (pi_x, c))

    def batch(
        self, rows: NDArray[np.int64] | slice
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """π(x) and c(x) of some windows."""
        if self.kept is not None:
            return self.kept[0][rows], self.kept[1][rows]
        windows = self.footage.index.windows(rows)
        return self.space.project(windows.x), windows.weight(self.config)

    def batches(self, stage: str, report: Report = silent) -> Iterator[NDArray[np.float32]]:
        """Yield π(x) of all windows in order and report progress."""
        N = len(self.footage)
        for first in range(0, N, BATCH):
            pi_x, _ = self.batch(slice(first, first + BATCH))
            yield pi_x
            report(Progress(stage, first + len(pi_x), N))


def resolve(config: Config, skeleton: Skeleton) -> Config:
    """The settings, with K at most the numbers of a window: all of them for raw coordinates.

    A pose has more than K numbers, or K is a mistake; motion and place have few.
    """
    D = math.prod(view_shape(config, skeleton.V))
    if config.projection == "raw" or (config.view != "pose" and config.K > D):
        return replace(config, K=D)
    return config


def fit_space(parts: Sequence[Footage], config: Config, report: Report = silent) -> PCSpace:
    """Fit π to all windows of all parts (Eq. 6)."""
    D = math.prod(view_shape(config, parts[0].skeleton.V))
    if config.projection == "raw":
        return PCSpace.identity(D)
    moments = Moments.of(_rows(parts, "components", report), D)
    return PCSpace.fit(moments, config.K, whitening=config.whitened)


def _rows(parts: Sequence[Footage], stage: str, report: Report) -> Iterator[NDArray[np.float32]]:
    """Flattened windows of all parts, `(n, D)` at a time."""
    for windows in chain.from_iterable(part.batches(stage, report) for part in parts):
        yield windows.x.reshape(len(windows), -1)
