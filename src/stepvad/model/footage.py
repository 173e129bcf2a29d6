"""Clips as windows in bounded memory, and the projection π learned from them (Sec. 3.2)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain

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
from stepvad.windows.views import ViewSettings, Windows, measure_pace, view_shape

HELD_OUT = 4
"""One part in so many of the footage is held out from a fit with several views."""
PACE_WINDOWS = 100_000
"""Windows from which the pace is measured, evenly spaced."""


@dataclass(frozen=True, slots=True, eq=False)
class Footage:
    """Clips to fit on, read once: their windows, and the facts that a model file records."""

    index: WindowIndex
    skeleton: Skeleton
    digest: str
    n_clips: int
    counts: Repairs

    @classmethod
    def from_clips(
        cls, clips: Iterable[Clip], view: ViewSettings, skeleton: Skeleton | None = None
    ) -> Footage:
        """Read all clips as `skeleton`, or as modelled for the first clip with people."""
        config = view.config
        runs: list[Run] = []
        counts, sha, n_clips = Repairs(), hashlib.sha256(), 0
        rates = _Rates(config)
        # runs of all clips, long enough for a window, in memory once
        for clip in clips:
            n_clips += 1
            sha.update(clip.digest())
            if not clip.tracks:
                continue  # without people its skeleton is only a guess
            skeleton = skeleton or skeletons.modelled(clip.skeleton)
            clip = rates.common(clip)
            for run, mended in clip_runs(clip, [view], skeleton, rates.sampling(clip)):
                counts += mended
                if len(run) >= config.shortest:
                    runs.append(run)
        if skeleton is None or not runs:
            raise DataError(
                f"expected at least one track of {config.shortest} consecutive frames to fit on, "
                f"got none in {n_clips} clips",
                hint="record more footage, or choose a smaller T",
            )
        view = replace(view, config=rates.settings())
        index = with_pace(WindowIndex.of_runs(runs, [view], skeleton.V))
        if config.confidence and not index.confidence.any():
            raise DataError(
                "expected poses with confidence to fit on, got 0 for every joint",
                hint="give joints without a known confidence the confidence 1",
            )
        return cls(index, skeleton, sha.hexdigest(), n_clips, counts)

    @property
    def view(self) -> ViewSettings:
        """The settings, with the frame rate of the clips and their pace."""
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
            clips=self.n_clips,
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


def hold_out(clips: Sequence[Clip]) -> tuple[list[Clip], list[Clip]]:
    """Clips to fit on, and a quarter of the footage that stays unseen.

    Every fourth clip, or the last quarter of each one's poses if they are few.
    """
    # whole clips where there are enough of them
    if len(clips) >= 2 * HELD_OUT:
        held = [*clips[HELD_OUT - 1 :: HELD_OUT]]
        return [clip for n, clip in enumerate(clips) if n % HELD_OUT != HELD_OUT - 1], held
    # else the last quarter of the poses of each one
    pairs = [_split(clip) for clip in clips]
    return [early for early, _ in pairs], [late for _, late in pairs]


def _split(clip: Clip) -> tuple[Clip, Clip]:
    """A clip up to the last quarter of its poses, and the rest; frames keep their numbers."""
    frames = np.sort(np.concatenate([np.empty(0, np.int64), *(t.frames for t in clip.tracks)]))
    cut = int(frames[len(frames) * (HELD_OUT - 1) // HELD_OUT]) if len(frames) else 0
    early, late = (
        tuple(track.between(first, end) for track in clip.tracks)
        for first, end in ((0, cut), (cut, clip.n_frames))
    )
    return (
        replace(clip, tracks=tuple(track for track in early if len(track))),
        replace(clip, tracks=tuple(track for track in late if len(track))),
    )


def with_pace(index: WindowIndex) -> WindowIndex:
    """These windows, with the pace of the people in them if they show a motion without one."""
    (view,) = index.views
    if view.config.view != "motion" or view.pace is not None:
        return index
    # a sample of the windows, evenly spaced, in pixels
    rows = np.linspace(0, len(index), min(len(index), PACE_WINDOWS), endpoint=False)
    some = rows.astype(np.int64)
    keypoints, _ = index.poses(some)
    pace = measure_pace(keypoints, index.sampling.n_poses(index.available[some]))
    return replace(index, views=[replace(view, pace=pace)])


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

    def sampling(self, clip: Clip) -> Sampling:
        """Rule by which windows are cut from a clip at the common rate: as in scoring."""
        fps = self._fps or clip.fps
        return Sampling.for_rate(replace(self._config, fps=fps), fps)

    def settings(self) -> Config:
        """The settings, with the rate of the windows where it is one."""
        if self._config.clock or self._config.fps is not None:
            return replace(self._config, fps=self._fps)
        return replace(self._config, fps=self._seen.pop() if len(self._seen) == 1 else None)


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
