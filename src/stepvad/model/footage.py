"""Clips as windows in bounded memory, and the projection π learned from them (Sec. 3.2)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config
from stepvad.errors import DataError, Progress, Report, silent
from stepvad.model.modelfile import Origin
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.model.scoring import BATCH
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Repairs
from stepvad.windows.runs import Run, Sampling, WindowIndex, at_rate, clip_runs
from stepvad.windows.views import Views, ViewSettings, Windows, measure_pace, view_shape

PACE_WINDOWS = 100_000
"""Windows from which the pace is measured, evenly spaced."""


@dataclass(frozen=True, slots=True, eq=False)
class Footage:
    """Clips to fit on, read once: their windows, and the facts that a model file records."""

    index: WindowIndex
    """Its tracks are numbered through all clips."""
    skeleton: Skeleton
    digest: str
    n_tracks: tuple[int, ...]
    """Tracks of each clip that have windows."""
    counts: Repairs

    @classmethod
    def from_clips(
        cls, clips: Iterable[Clip], views: Views, skeleton: Skeleton | None = None
    ) -> Footage:
        """Read all clips as `skeleton`, or as modelled for the first clip with people."""
        config = views[0].config
        shortest = min(view.config.shortest for view in views)
        runs: list[Run] = []
        counts, sha = Repairs(), hashlib.sha256()
        n_tracks: list[int] = []
        rates, number = _Rates(config), count()
        # runs of all clips, long enough for a window, in memory once
        for clip in clips:
            n_tracks.append(0)
            sha.update(clip.digest())
            if not clip.tracks:
                continue  # without people its skeleton is only a guess
            skeleton = skeleton or skeletons.modelled(clip.skeleton)
            clip, numbers = rates.common(clip), dict[int, int]()
            for run, mended in clip_runs(clip, views, skeleton, rates.sampling(clip, views)):
                counts += mended
                if len(run) >= shortest:
                    if run.track_id not in numbers:
                        numbers[run.track_id] = next(number)
                    runs.append(replace(run, track_id=numbers[run.track_id]))
            n_tracks[-1] = len(numbers)
        if skeleton is None or not runs:
            raise DataError(
                f"expected at least one track of {shortest} consecutive frames to fit on, "
                f"got none in {len(n_tracks)} clips",
                hint="record more footage, or choose a smaller T",
            )
        views = [replace(view, config=rates.settings(view.config)) for view in views]
        index = with_pace(WindowIndex.of_runs(runs, views, skeleton.V))
        if config.confidence and not index.confidence.any():
            raise DataError(
                "expected poses with confidence to fit on, got 0 for every joint",
                hint="give joints without a known confidence the confidence 1",
            )
        return cls(index, skeleton, sha.hexdigest(), tuple(n_tracks), counts)

    @property
    def view(self) -> ViewSettings:
        """The settings of the first view, with the frame rate of the clips and their pace."""
        return self.index.views[0]

    @property
    def config(self) -> Config:
        """The settings, with the frame rate of the clips."""
        return self.view.config

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.index)

    def origin(self, epochs: int) -> Origin:
        """The provenance that a model file records."""
        return Origin(
            library=version("stepvad"),
            data_sha256=self.digest,
            clips=len(self.n_tracks),
            windows=len(self),
            epochs=epochs,
            counts=self.counts,
        )

    def batches(self, stage: str, report: Report = silent) -> Iterator[Windows]:
        """Yield all windows in order and report progress."""
        done = 0
        for windows in self.index.batches(BATCH):
            yield windows
            done += len(windows)
            report(Progress(stage, done, len(self)))


def with_pace(index: WindowIndex) -> WindowIndex:
    """These windows, with the pace of the people in them for a motion that has none."""
    if not any(view.config.view == "motion" and view.pace is None for view in index.views):
        return index
    config = next(view.config for view in index.views if view.config.view == "motion")
    # a sample of the windows that are long enough, evenly spaced, in pixels
    rows = np.flatnonzero(index.sampling.n_poses(index.available) >= config.shortest)
    some = rows[np.linspace(0, len(rows), min(len(rows), PACE_WINDOWS), False).astype(np.int64)]
    keypoints, _ = index.poses(some)
    n_poses = index.sampling.n_poses(index.available[some])
    pace = measure_pace(keypoints[:, -config.T :], np.minimum(n_poses, config.T))
    views = (
        replace(view, pace=pace) if view.config.view == "motion" else view for view in index.views
    )
    return replace(index, views=[*views])


class _Rates:
    """The frame rates of the clips to fit on."""

    def __init__(self, config: Config) -> None:
        self._config, self._fps = config, config.fps
        self._seen: set[float | None] = set()

    def common(self, clip: Clip) -> Clip:
        """The clip at the rate of the others, if windows are cut by the clock."""
        self._seen.add(clip.fps)
        if not self._config.clock:
            return clip
        if None in self._seen and len(self._seen) > 1:
            raise DataError(
                f"clip {clip.name}: expected clips that all state their frame rate, or none, "
                "got both",
                hint="give the frame rate of those that do not state one",
            )
        self._fps = self._fps or clip.fps
        return at_rate(clip, replace(self._config, fps=self._fps))

    def sampling(self, clip: Clip, views: Views) -> Sampling:
        """Rule by which windows are cut from a clip at the common rate: as in scoring."""
        fps = self._fps or clip.fps
        return Sampling.for_views(
            [replace(v, config=replace(v.config, fps=fps)) for v in views], fps
        )

    def settings(self, config: Config) -> Config:
        """The settings of a view, with the rate of the windows where it is one."""
        if config.clock or config.fps is not None:
            return replace(config, fps=self._fps)
        return replace(config, fps=next(iter(self._seen)) if len(self._seen) == 1 else None)


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
    def from_footage(
        cls, footage: Footage, space: PCSpace, config: Config, report: Report = silent
    ) -> Projected:
        """All windows of the footage, projected now if they fit into `KEPT_BYTES`."""
        if 4 * len(footage) * (config.K + 1) > KEPT_BYTES:
            return cls(footage, space, config, None)
        pi_x = np.empty((len(footage), config.K), dtype=np.float32)
        c = np.empty(len(footage), dtype=np.float32)
        # π(x) and c(x) once, instead of in every epoch
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
    if config.reference.projection == "raw" or (config.view != "pose" and config.K > D):
        return replace(config, K=D)
    return config


def fit_space(parts: Sequence[Footage], config: Config, report: Report = silent) -> PCSpace:
    """Fit π to all windows of all parts (Eq. 6)."""
    D = math.prod(view_shape(config, parts[0].skeleton.V))
    if config.reference.projection == "raw":
        return PCSpace.identity(D)
    moments = Moments.measure(_rows(parts, "components", report), D)
    return PCSpace.fit(moments, config.K, whitening=config.reference.whitening)


def _rows(parts: Sequence[Footage], stage: str, report: Report) -> Iterator[NDArray[np.float32]]:
    """Flattened windows of all parts, `(n, D)` at a time."""
    for windows in chain.from_iterable(part.batches(stage, report) for part in parts):
        yield windows.x.reshape(len(windows), -1)
