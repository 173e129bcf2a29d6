"""The detector: fit on normal motion, score any motion, save and load (Sec. 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Compute, Config
from stepvad.errors import DataError, MissingExtraError
from stepvad.model import modelfile, projection
from stepvad.model.folded import Weights, fold
from stepvad.model.footage import Footage, score_clip
from stepvad.model.modelfile import Model, Origin
from stepvad.model.pcspace import Moments
from stepvad.model.projection import Projected
from stepvad.model.runtime import Network, Runtime
from stepvad.model.scoring import Scores, WindowScores, anomaly_score, standardise_energies
from stepvad.poses import Clip
from stepvad.progress import Report, silent
from stepvad.skeletons import Skeleton
from stepvad.windows import Windows

RANGE_WINDOWS = 512
"""Training windows that the ranges of activations are taken from."""


@dataclass(frozen=True, slots=True, eq=False)
class Detector:
    """A fitted model of normal motion; `fit` and `load` make one, and threads may share it."""

    model: Model
    runtime: Runtime = "auto"
    """What computes the energies: an engine, `auto` or `fastest`."""
    threads: int | None = None
    """Threads of one call; None: as many as OMP_NUM_THREADS says, or all cores."""
    network: Network = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Fold the network for scoring and hand it to its engine."""
        folded = fold(self.model.weights, self.model.config, self.model.ranges)
        object.__setattr__(self, "network", Network.of(folded, self.runtime, self.threads))

    @property
    def config(self) -> Config:
        """The settings it was fitted with."""
        return self.model.config

    @property
    def skeleton(self) -> Skeleton:
        """The joints it models."""
        return self.model.skeleton

    @property
    def origin(self) -> Origin:
        """Where it came from."""
        return self.model.origin

    @classmethod
    def fit(
        cls,
        clips: Iterable[Clip],
        config: Config = Config(),
        *,
        projection_clips: Iterable[Clip] | None = None,
        keep_best: Callable[[Detector], float] | None = None,
        report: Report = silent,
        checkpoint: Path | str | None = None,
        resume: bool = False,
        compute: Compute = Compute(),
    ) -> Detector:
        """Learn normal motion from clips that show nothing else.

        The projection also learns from `projection_clips`, which may show anomalies; the energy
        model never sees them. `keep_best` rates the detector after every epoch and the best one is
        returned. `report` hears how far it is. `checkpoint` names a file that keeps the training's
        state as it goes; with `resume` it goes on from there. `compute` chooses device, precision,
        compilation and runtime. Needs the train extra.
        """
        try:
            from stepvad.model import training
        except ImportError as error:
            raise MissingExtraError("fit", "train") from error
        fit = _Fit.start(clips, projection_clips, config, compute.runtime, report)
        weights, epochs = training.train(
            training.TrainingSet(len(fit.windows.footage), fit.windows.batch, fit.digest),
            fit.config,
            report=report,
            validate=keep_best and (lambda w, epochs: keep_best(fit.finish(w, epochs))),
            checkpoint=(
                None
                if checkpoint is None
                else training.TrainingCheckpoint(Path(checkpoint), resume)
            ),
            compute=compute,
        )
        return fit.finish(weights, epochs)

    @classmethod
    def load(
        cls, path: Path | str, *, runtime: Runtime = "auto", threads: int | None = None
    ) -> Detector:
        """Read a detector from a model file.

        `runtime` chooses what computes the energies: `auto` gives the same scores on every machine,
        `fastest` takes bfloat16 where the processor multiplies it. `threads` limits one call.
        """
        return cls(modelfile.read(Path(path)), runtime, threads)

    def save(self, path: Path | str) -> None:
        """Write the detector to a model file."""
        modelfile.write(self.model, Path(path))

    def score(self, clip: Clip, *, report: Report = silent) -> Scores:
        """Score every window of a clip; beside clip and scores, memory does not grow with it."""
        return score_clip(clip, self.config, self.skeleton, self.score_windows, report=report)

    def score_windows(self, windows: Windows) -> WindowScores:
        """A(x) of windows cut with this detector's settings (Eq. 8)."""
        windows.check(self.config, self.skeleton)
        E = standardise_energies(self.energies(windows), self.model.E_mean, self.model.E_var)
        A = anomaly_score(E, windows.weight(self.config), self.config.aggregation)
        return WindowScores(windows.track_id, windows.frame, windows.c, E, A)

    def energies(self, windows: Windows) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`."""
        return self.network.energies(self.model.space.project(windows.x))


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """One fit under way: the projection first, then the energy model, then its statistics."""

    windows: Projected
    config: Config
    digest: str
    """Of all clips it learns from, those for the projection alone included."""
    runtime: Runtime
    report: Report

    @classmethod
    def start(
        cls,
        clips: Iterable[Clip],
        projection_clips: Iterable[Clip] | None,
        config: Config,
        runtime: Runtime,
        report: Report,
    ) -> _Fit:
        """Read the clips and learn π from them (Eq. 6)."""
        parts = [Footage.read(clips, config)]
        if projection_clips is not None:
            parts.append(Footage.read(projection_clips, config, parts[0].skeleton))
        config = projection.resolve(config, parts[0].skeleton)
        space = projection.fit_space(parts, config, report)
        digest = " ".join(part.digest for part in parts)
        windows = Projected.of(parts[0], space, config, report)
        return cls(windows, config, digest, runtime, report)

    def finish(self, weights: Weights, epochs: int) -> Detector:
        """The detector with these weights."""
        return Detector(self._model(weights, epochs), self.runtime)

    def _model(self, weights: Weights, epochs: int) -> Model:
        """The model with Ē_i and Var(E_i) of these weights over all training windows (Eq. 8)."""
        folded = fold(weights, self.config)
        network = Network.of(folded, self.runtime)
        projected = self.windows.batches("energies", self.report)
        moments = Moments.of(map(network.energies, projected), self.config.L)
        E_var = moments.covariance.diagonal().copy()
        if not (E_var > modelfile.SMALLEST).all():  # NaN compares false
            raise DataError(
                f"expected energies that vary over the training windows, got variances {E_var}",
                hint="lower the learning rate, or fit on footage with more motion",
            )
        return Model(
            config=self.config,
            skeleton=self.windows.footage.skeleton,
            space=self.windows.space,
            weights=weights,
            E_mean=moments.mean,
            E_var=E_var,
            origin=self.windows.footage.origin(epochs),
            ranges=folded.measure_ranges(self._sample()),
        )

    def _sample(self) -> NDArray[np.float32]:
        """π(x) of some training windows, evenly chosen."""
        n = len(self.windows.footage)
        rows = np.linspace(0, n, min(n, RANGE_WINDOWS), endpoint=False).astype(np.int64)
        return self.windows.batch(rows)[0]
