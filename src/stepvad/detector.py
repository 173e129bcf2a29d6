"""The detector: fit on normal motion, score any motion, save and load (Sec. 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Compute, Config, Runtime
from stepvad.errors import ConfigError, DataError, MissingExtraError, Report, silent
from stepvad.model import modelfile
from stepvad.model.engines import EngineNetwork, choose
from stepvad.model.folded import Weights, fold
from stepvad.model.footage import (
    BATCH,
    Footage,
    Projected,
    fit_space,
    hold_out,
    resolve,
    score_clip,
)
from stepvad.model.modelfile import QUANTILES, SMALLEST, Model, Origin, ViewModel
from stepvad.model.pcspace import Moments
from stepvad.model.scoring import Scores, WindowScores, anomaly_score, standardise_energies
from stepvad.model.surprise import SurpriseByAge
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.body import measure_noise
from stepvad.windows.runs import cut_in_pieces
from stepvad.windows.values import Windows
from stepvad.windows.views import amounts

if TYPE_CHECKING:
    from stepvad.model.export import Parity

RATED_WINDOWS = 8192
"""Number of training windows behind the statistics of a detector that is rated."""


@runtime_checkable
class Digested(Protocol):
    """A rating that can tell which clips it uses."""

    @property
    def digest(self) -> str:
        """Of the clips and their labels."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Detector:
    """A fitted model of normal motion, created by `fit` or `load`; threads may share it."""

    model: Model
    runtime: Runtime = "auto"
    """Engine that computes the energies, or `auto` or `fastest` to pick one."""
    threads: int | None = None
    """Threads per call; None uses OMP_NUM_THREADS or, if it is unset, all cores."""
    network: EngineNetwork = field(init=False, repr=False)
    parts: tuple[Detector, ...] = field(init=False, repr=False)
    """A detector for each of several views; empty if there is one."""

    def __post_init__(self) -> None:
        """Fold the network for scoring and load it into its engine."""
        views = self.model.views
        parts = tuple(replace(self, model=view.model) for view in views)
        object.__setattr__(self, "parts", parts)
        if parts:
            object.__setattr__(self, "network", parts[0].network)
            return
        folded = fold(self.model.weights, self.model.config)
        network = EngineNetwork.of(folded, self.runtime, self.threads)
        object.__setattr__(self, "network", network)

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
        model never sees them. `keep_best` rates the detector after every epoch, with Ē_i and
        Var(E_i) of `RATED_WINDOWS` training windows, and the best one is returned, with those of
        all. `report` receives progress. `checkpoint` names a file to which the training state is
        saved at intervals; `resume` continues from it, unless the `digest` of `keep_best`, where it
        has one, is another. `compute` selects the device, precision and compilation of the
        training, and the runtime. Requires the train extra.
        """
        try:
            from stepvad.model import training
            from stepvad.model.training import torch_device
        except ImportError as error:
            raise MissingExtraError("fit", "train") from error
        torch_device(compute.device)  # an error now, not after the projection
        choose(compute.runtime, width=config.width)  # nor after the training
        if config.weigh_joints and not config.noise:
            clips = [*clips]
            config = replace(config, noise=measure_noise(t for clip in clips for t in clip.tracks))
        if config.views:
            if keep_best or checkpoint or projection_clips:
                raise ConfigError(
                    "fit: expected one view for validation, checkpoints and projection clips, "
                    f"got {len(config.views)}",
                    hint="leave them out, or fit a single view",
                )
            return _fit_views([*clips], config, report, compute)
        fit = _Fit.start(clips, projection_clips, config, compute, report)
        weights, epochs = training.train(
            training.TrainingSet(len(fit.windows.footage), fit.windows.batch, fit.digest),
            fit.config,
            report=report,
            validate=keep_best and (lambda w, epochs: keep_best(fit.rated(w, epochs))),
            rated_by=keep_best.digest if isinstance(keep_best, Digested) else "",
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

        `hf://OWNER/NAME/FILE.safetensors` is a file on the Hugging Face Hub (extra `hub`); add
        `@REVISION` to the name to stay with one. `runtime` selects the engine: `auto` gives the
        same scores on every machine, `fastest` uses bfloat16 where the processor multiplies it.
        `threads` limits the threads per call.
        """
        return cls(modelfile.read(Path(path)), runtime, threads)

    def save(self, path: Path | str) -> None:
        """Write the detector to a model file."""
        modelfile.write(self.model, Path(path))

    def export(self, path: Path | str) -> Parity:
        """Write the detector as one graph for programs without stepvad, and say how exact it is.

        `.onnx` for ONNX Runtime and all that reads ONNX, `.xml` for OpenVINO (extra `openvino`).
        Windows in pixels and their mean confidence go in, scores come out. The file is tried on
        synthetic windows first, and not written if its scores deviate.
        """
        from stepvad.model.export import export

        self.expect_pose("export")
        return export(self.model, Path(path))

    def expect_pose(self, what: str) -> None:
        """Reject a model of another view, or of several."""
        if self.parts or self.config.view != "pose":
            raise ConfigError(
                f"{what}: expected a model of one view, the pose, got "
                f"{', '.join(part.config.view for part in self.parts) or self.config.view}",
                hint="fit a model without --views",
            )

    def score(self, clip: Clip, *, report: Report = silent) -> Scores:
        """Score every window of a clip; memory beyond clip and scores does not grow with it."""
        return score_clip(clip, self.config, self.skeleton, self.score_windows, report=report)

    def score_windows(self, windows: Windows) -> WindowScores:
        """A(x) of windows cut with this detector's settings (Eq. 8)."""
        windows.check(self.config, self.skeleton)
        if self.parts:
            return self._joined(windows)
        E = standardise_energies(self.energies(windows), self.model.E_mean, self.model.E_var)
        A = anomaly_score(E, windows.weight(self.config), self.config.aggregation)
        return WindowScores(windows.track_id, windows.frame, windows.c, E, A, windows.seen)

    def _joined(self, windows: Windows) -> WindowScores:
        """The mean of -log p over the views, weighted by their shares; E holds each."""
        nats, weight = self._weighed(windows, self._view_scores(windows))
        A = (nats * weight).sum(axis=1)
        return WindowScores(windows.track_id, windows.frame, windows.c, nats, A, windows.seen)

    def contributions(
        self, windows: Windows, scores: Sequence[NDArray[np.floating]] | None = None
    ) -> NDArray[np.float64]:
        """What each of several views adds to the scores of windows, `(N, views)`: rows sum to A.

        With `scores`, one array per view, its windows have these in place of their own.
        """
        nats, weight = self._weighed(windows, scores or self._view_scores(windows))
        return np.asarray(nats.astype(np.float64) * weight)

    def _view_scores(self, windows: Windows) -> list[NDArray[np.float32]]:
        """The scores of each view's windows, by the view alone (Eq. 8)."""
        nothing = np.empty(0, np.float32)
        return [
            part.score_windows(view.windows).A if len(view.rows) else nothing
            for view, part in zip(windows.views, self.parts, strict=True)
        ]

    def _weighed(
        self, windows: Windows, scores: Sequence[NDArray[np.floating]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """-log p of the scores of each view's windows, `(N, views)`; the views' weights, of sum 1.

        A view that a young window has too few poses for says what it says of normal ones: 1.
        """
        nats = np.ones((len(windows), len(self.parts)), np.float32)
        for number, (view, A) in enumerate(zip(windows.views, scores, strict=True)):
            config, surprise = self.parts[number].config, self.model.views[number].surprise
            own = surprise(A.astype(np.float32), view.windows.ages(config))
            nats[view.rows, number] = own if config.cap is None else np.minimum(own, config.cap)
        share = np.array([part.config.share for part in self.parts], np.float32)
        return nats, share / share.sum()

    def energies(self, windows: Windows) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`."""
        return self.network.energies(self.model.space.project(windows.x))


def _fit_views(clips: list[Clip], config: Config, report: Report, compute: Compute) -> Detector:
    """Fit each view on a part of the clips, and rank its scores on the rest."""
    learned, held_out = hold_out(clips)
    views: list[ViewModel] = []
    for view in config.views:
        settings = replace(view, clock=config.clock, fps=config.fps, noise=config.noise)
        fitted = Detector.fit(learned, settings, report=report, compute=compute)
        config = replace(config, fps=fitted.config.fps)
        surprise = rank_scores(fitted, held_out)
        views.append(ViewModel(fitted.model, surprise, _usual(fitted, clips)))
    first = views[0].model
    joined = replace(first.config, views=tuple(view.model.config for view in views))
    model = replace(first, config=joined, views=tuple(views))
    return Detector(model, compute.runtime)


def rank_scores(fitted: Detector, held_out: Iterable[Clip]) -> SurpriseByAge:
    """How rare each score of a view is among the windows of footage that it has not seen."""
    A, ages = [np.empty(0, np.float32)], [np.empty(0, np.int64)]
    for clip in held_out:
        for index, _ in cut_in_pieces(clip, fitted.config, fitted.skeleton):
            for windows in index.batches(BATCH):
                A.append(fitted.score_windows(windows).A)
                ages.append(windows.ages(fitted.config))
    return SurpriseByAge.of(np.concatenate(A), np.concatenate(ages), fitted.config)


def _usual(fitted: Detector, clips: Sequence[Clip]) -> NDArray[np.float64] | None:
    """Quantiles of how fast people are and of what else their motion means; None of other views."""
    if fitted.config.view != "motion":
        return None
    footage = Footage.read(clips, fitted.config, fitted.skeleton)
    found = [amounts(windows.x, "motion") for windows in footage.batches("motion")]
    quantiles = np.quantile(np.concatenate(found).astype(np.float64), QUANTILES, axis=0)
    return np.ascontiguousarray(quantiles.T)


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """A fit in progress: the projection first, then the energy model, then its statistics."""

    windows: Projected
    config: Config
    digest: str
    """Digest of all training clips, including those used for the projection only."""
    compute: Compute
    report: Report

    @classmethod
    def start(
        cls,
        clips: Iterable[Clip],
        projection_clips: Iterable[Clip] | None,
        config: Config,
        compute: Compute,
        report: Report,
    ) -> _Fit:
        """Read the clips and learn π from them (Eq. 6)."""
        parts = [Footage.read(clips, config)]
        if projection_clips is not None:
            parts.append(Footage.read(projection_clips, parts[0].config, parts[0].skeleton))
        config = resolve(parts[0].config, parts[0].skeleton)
        space = fit_space(parts, config, report)
        digest = " ".join(part.digest for part in parts)
        windows = Projected.of(parts[0], space, config, report)
        return cls(windows, config, digest, compute, report)

    def finish(self, weights: Weights, epochs: int) -> Detector:
        """The detector with these weights."""
        windows = self.windows.batches("energies", self.report)
        return self._detector(weights, epochs, windows)

    def rated(self, weights: Weights, epochs: int) -> Detector:
        """The detector to rate after an epoch, with statistics of a sample."""
        return self._detector(weights, epochs, self._sample(RATED_WINDOWS))

    def _detector(
        self, weights: Weights, epochs: int, projected: Iterable[NDArray[np.float32]]
    ) -> Detector:
        """The detector with Ē_i and Var(E_i) of these weights over training windows (Eq. 8)."""
        folded = fold(weights, self.config)
        network = EngineNetwork.of(folded, self.compute.runtime)
        moments = Moments.of(map(network.energies, projected), self.config.L)
        E_var = moments.covariance.diagonal().copy()
        if not (E_var > SMALLEST).all():  # NaN compares false
            raise DataError(
                f"expected energies that vary over the training windows, got variances {E_var}",
                hint="lower the learning rate, or fit on footage with more motion",
            )
        model = Model(
            config=self.config,
            skeleton=self.windows.footage.skeleton,
            space=self.windows.space,
            weights=weights,
            E_mean=moments.mean,
            E_var=E_var,
            origin=self.windows.footage.origin(epochs),
        )
        return Detector(model, self.compute.runtime)

    def _sample(self, windows: int) -> Iterator[NDArray[np.float32]]:
        """Yield π(x) of at most this many training windows, evenly spaced."""
        n = len(self.windows.footage)
        rows = np.linspace(0, n, min(n, windows), endpoint=False).astype(np.int64)
        for first in range(0, len(rows), BATCH):
            yield self.windows.batch(rows[first : first + BATCH])[0]
