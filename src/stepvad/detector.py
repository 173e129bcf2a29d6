"""The detector: fit on normal motion, score any motion, save and load (Sec. 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad import modelfile, skeletons
from stepvad.config import Config
from stepvad.errors import DataError, MissingExtraError
from stepvad.folded import Folded, Weights, fold
from stepvad.modelfile import Model, Origin
from stepvad.pcspace import Moments, PCSpace
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent
from stepvad.scoring import Scores, WindowScores, anomaly_score, standardise_energies
from stepvad.skeletons import Skeleton
from stepvad.windows import Counts, Run, WindowIndex, Windows, clip_runs, cut_in_pieces

BATCH = 1024
"""Windows cut and scored at once, so that memory does not grow with the clip."""


@dataclass(frozen=True, slots=True, eq=False)
class Detector:
    """A fitted model of normal motion; `fit` and `load` make one, and threads may share it."""

    model: Model
    network: Folded = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Fold the network for scoring."""
        object.__setattr__(self, "network", fold(self.model.weights, self.model.config))

    @property
    def config(self) -> Config:
        """The settings it was fitted with."""
        return self.model.config

    @property
    def skeleton(self) -> Skeleton:
        """The joints it models."""
        return self.model.skeleton

    @classmethod
    def fit(
        cls,
        clips: Iterable[Clip],
        config: Config = Config(),
        *,
        keep_best: Callable[[Detector], float] | None = None,
        report: Report = silent,
        checkpoint: Path | str | None = None,
        resume: bool = False,
    ) -> Detector:
        """Learn normal motion from clips that show nothing else.

        `keep_best` rates the detector after every epoch and the best one is returned. `report`
        hears how far it is. `checkpoint` names a file that keeps the training's state as it goes;
        with `resume` it goes on from there. Needs the train extra.
        """
        try:
            from stepvad import training
        except ImportError as error:
            raise MissingExtraError("fit", "train") from error
        fit = _Fit.start(_Footage.read(clips, config), config, report)
        weights, epochs = training.train(
            training.TrainingSet(len(fit.footage.index), fit.batch, fit.footage.digest),
            config,
            report=report,
            validate=keep_best and (lambda w, epochs: keep_best(cls(fit.finish(w, epochs)))),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            resume=resume,
        )
        return cls(fit.finish(weights, epochs))

    @classmethod
    def load(cls, path: Path | str) -> Detector:
        """Read a detector from a model file."""
        return cls(modelfile.read(Path(path)))

    def save(self, path: Path | str) -> None:
        """Write the detector to a model file."""
        modelfile.write(self.model, Path(path))

    def score(self, clip: Clip, *, report: Report = silent) -> Scores:
        """Score every window of a clip; beside clip and scores, memory does not grow with it."""
        parts: list[WindowScores] = []
        counts, flat = Counts(), 0
        for index, mended in cut_in_pieces(clip, self.config, self.skeleton):
            counts += mended
            for windows in index.batches(BATCH):
                parts.append(self.score_windows(windows))
                flat += int(windows.flat.sum())
            report(Progress("scoring", counts.poses, clip.n_poses, clip.name))
        joined = WindowScores.join(parts, self.config.L)
        return Scores(clip.name, clip.n_frames, self.config.T, joined, counts, flat)

    def score_windows(self, windows: Windows) -> WindowScores:
        """A(x) of windows cut with this detector's settings (Eq. 8)."""
        expected = (2, self.skeleton.V, self.config.T)
        if windows.x.shape[1:] != expected:
            raise DataError(
                f"windows: expected x of shape (N, {', '.join(map(str, expected))}), "
                f"got {windows.x.shape}",
                hint="cut them with the detector's own settings and skeleton",
            )
        E = standardise_energies(self.energies(windows), self.model.E_mean, self.model.E_var)
        A = anomaly_score(E, windows.weight(self.config), self.config.aggregation)
        return WindowScores(windows.track_id, windows.frame, windows.c, E, A)

    def energies(self, windows: Windows) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`."""
        return self.network.energies(self.model.space.project(windows.x))


@dataclass(frozen=True, slots=True, eq=False)
class _Footage:
    """The training clips, read once: their windows and what is worth telling of them."""

    index: WindowIndex
    skeleton: Skeleton
    digest: str
    n_clips: int
    counts: Counts

    @classmethod
    def read(cls, clips: Iterable[Clip], config: Config) -> _Footage:
        """All clips, the skeleton of the first deciding for all."""
        runs: list[Run] = []
        counts, sha, n_clips = Counts(), hashlib.sha256(), 0
        skeleton: Skeleton | None = None
        for clip in clips:
            n_clips += 1
            sha.update(clip.digest())
            if not clip.tracks:
                continue  # nobody in it, so its skeleton is only a guess
            skeleton = skeleton or skeletons.modelled(clip.skeleton)
            for run, mended in clip_runs(clip, config, skeleton):
                counts += mended
                if len(run) >= config.T:
                    runs.append(run)
        if skeleton is None or not runs:
            raise DataError(
                f"expected at least one track of {config.T} consecutive frames to fit on, "
                f"got none in {n_clips} clips",
                hint="record more footage, or choose a smaller T",
            )
        index = WindowIndex.of(runs, config, skeleton.V)
        if config.confidence and not index.confidence.any():
            raise DataError(
                "expected poses with confidence to fit on, got 0 for every joint",
                hint="give joints without a known confidence the confidence 1",
            )
        return cls(index, skeleton, sha.hexdigest(), n_clips, counts)

    def batches(self, stage: str, report: Report) -> Iterator[Windows]:
        """All windows in order, reported as they go."""
        done = 0
        for windows in self.index.batches(BATCH):
            yield windows
            done += len(windows)
            report(Progress(stage, done, len(self.index)))


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """One fit under way: PC-space first, then the energy model in it, then its statistics."""

    footage: _Footage
    space: PCSpace
    config: Config
    report: Report

    @classmethod
    def start(cls, footage: _Footage, config: Config, report: Report) -> _Fit:
        """π of the training windows (Eq. 6), in one pass."""
        rows = (w.x.reshape(len(w), -1) for w in footage.batches("components", report))
        moments = Moments.of(rows, 2 * footage.skeleton.V * config.T)
        space = PCSpace.fit(moments, config.K, whiten=config.whiten)
        return cls(footage, space, config, report)

    def batch(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """π(x) and c(x) of some training windows."""
        windows = self.footage.index.windows(rows)
        return self.space.project(windows.x), windows.weight(self.config)

    def finish(self, weights: Weights, epochs: int) -> Model:
        """The model with Ē_i and Var(E_i) of these weights over all training windows (Eq. 8)."""
        network = fold(weights, self.config)
        energies = (
            network.energies(self.space.project(windows.x))
            for windows in self.footage.batches("energies", self.report)
        )
        moments = Moments.of(energies, self.config.L)
        E_var = moments.covariance.diagonal().copy()
        if not (E_var > modelfile.SMALLEST).all():  # NaN compares false
            raise DataError(
                f"expected energies that vary over the training windows, got variances {E_var}",
                hint="lower the learning rate, or fit on footage with more motion",
            )
        return Model(
            config=self.config,
            skeleton=self.footage.skeleton,
            space=self.space,
            weights=weights,
            E_mean=moments.mean,
            E_var=E_var,
            origin=Origin(
                library=version("stepvad"),
                data_sha256=self.footage.digest,
                clips=self.footage.n_clips,
                windows=len(self.footage.index),
                epochs=epochs,
                counts=self.footage.counts,
            ),
        )
