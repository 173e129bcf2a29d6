"""The detector: fit on normal motion, score any motion, save and load (Sec. 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Checkpoint, Compute, Config, Engine, Runtime, check_views
from stepvad.errors import ConfigError, DataError, MissingExtraError, Progress, Report, silent
from stepvad.model import modelfile
from stepvad.model.engines import EngineNetwork, Weights, choose, fold
from stepvad.model.footage import Footage, Projected, fit_space, resolve
from stepvad.model.modelfile import QUANTILES, SMALLEST, Origin
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.model.scoring import (
    BATCH,
    EnergyModel,
    Model,
    Scores,
    SurpriseByAge,
    View,
    WindowScores,
    score_clip,
)
from stepvad.model.usual import PROJECTED, SAMPLE, Centroids, cross_distances, folds_of_tracks
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.body import measure_noise
from stepvad.windows.views import ViewSettings, Windows, amounts, n_columns

if TYPE_CHECKING:
    from stepvad.model.export import Parity

NEW_PLACE = -math.log(0.01)
"""Largest -log p of a place: one that nobody was at is as new as any other."""
RATED_WINDOWS = 8192
"""Number of training windows behind the statistics of a detector that is rated."""


@dataclass(frozen=True, slots=True, eq=False)
class Detector:
    """A fitted model of normal motion, created by `fit` or `load`; threads may share it.

    Examples:
        >>> detector = Detector.fit(clips, Config(K=8, width=16, max_steps=10))
        >>> detector.save("walk.safetensors")
        >>> Detector.load("walk.safetensors").score(clip).frames.shape == (clip.n_frames,)
        True
    """

    views: tuple[View, ...]
    """The paper's one view, or several of usual motion; the first is the longest."""
    skeleton: Skeleton
    """The joints it models."""
    origin: Origin
    """Where it came from."""
    sha256: str = ""
    """Digest of the bytes it was read from; empty if it was not read from a file."""

    def __repr__(self) -> str:
        """The detector in one line."""
        views = ", ".join(view.config.view_name for view in self.views)
        rate = "any rate" if self.config.fps is None else f"{self.config.fps:g} frames a second"
        fitted = f"fitted on {self.origin.windows:,} windows of {self.origin.clips:,} clips"
        return f"Detector({views}, {self.skeleton.name} at {rate}, {fitted})"

    @property
    def config(self) -> Config:
        """The settings of its first view."""
        return self.views[0].config

    @property
    def model(self) -> Model:
        """The model of its first view."""
        return self.views[0].model

    @property
    def network(self) -> EngineNetwork:
        """The network of the paper's energy."""
        return self.views[0].network

    @property
    def engine(self) -> Engine:
        """Name of the engine that computes its scores."""
        return "numpy" if self.config.scored_by == "usual" else self.network.engine

    @property
    def view_settings(self) -> tuple[ViewSettings, ...]:
        """All that cutting windows for it needs."""
        return tuple(view.settings for view in self.views)

    @property
    def columns(self) -> int:
        """Numbers behind a window's score: one per noise scale, or one per view."""
        return n_columns(self.view_settings)

    @classmethod
    def fit(
        cls,
        clips: Iterable[Clip],
        config: Config | Sequence[Config] = Config(),
        *,
        projection_clips: Iterable[Clip] | None = None,
        keep_best: Callable[[Detector], float] | None = None,
        folds: Sequence[int] | None = None,
        report: Report = silent,
        checkpoint: Checkpoint | None = None,
        compute: Compute = Compute(),
    ) -> Detector:
        """Learn normal motion from clips that show nothing else.

        Several settings, those of `Config.usual`, are views that are scored by their nearest usual
        motion: such a fit takes seconds. `folds` says in which of four parts each clip is, else
        they take turns; see `without`. `report` receives progress.

        All else is of the paper's energy, whose fit requires the train extra. The projection also
        learns from `projection_clips`, which may show anomalies; the energy model never sees them.
        `keep_best` rates the detector after every epoch, with Ē_i and Var(E_i) of `RATED_WINDOWS`
        training windows, and the best one is returned, with those of all. `checkpoint` names a file
        to which the training state is saved at intervals, and may resume from it, unless the
        `digest` of `keep_best`, where it has one, is another. `compute` selects the device,
        precision and compilation of the training, and the runtime.
        """
        configs = (config,) if isinstance(config, Config) else tuple(config)
        check_views(configs)
        is_usual = configs[0].scored_by == "usual"
        if is_usual and (keep_best or checkpoint or projection_clips):
            raise ConfigError(
                "fit: usual motion has no validation, checkpoints and projection clips",
                hint="leave them out, or fit the paper's energy",
            )
        if not is_usual:
            try:
                from stepvad.model import training
            except ImportError as error:
                raise MissingExtraError("fit", "train") from error
            # errors now, not after the projection or the training
            training.torch_device(compute.device)
        choose(compute.runtime, width=configs[0].width)
        # the noise of joints is measured on all clips, once for all views
        noise: tuple[float, ...] = ()
        if configs[0].joints == "weighed":
            clips = [*clips]
            noise = measure_noise(track for clip in clips for track in clip.tracks)
        if is_usual:
            return _fit_usual(clips, configs, noise, folds, report, compute)
        fit = _Fit.start(clips, projection_clips, ViewSettings(configs[0], noise), compute, report)
        return fit.train(
            validate=keep_best and (lambda w, epochs: keep_best(fit.rated(w, epochs))),
            rated_by=getattr(keep_best, "digest", ""),
            checkpoint=checkpoint,
        )

    @classmethod
    def load(
        cls, path: Path | str, *, runtime: Runtime = "auto", threads: int | None = None
    ) -> Detector:
        """Read a detector from a model file.

        `runtime` selects the engine: `auto` gives the same scores on every machine, `fastest` uses
        bfloat16 where the processor multiplies it. `threads` limits the threads per call.
        """
        return cls(*modelfile.read(Path(path), runtime, threads))

    def with_engine(self, runtime: Runtime, threads: int | None = None) -> Detector:
        """The same detector on another engine, or with as many threads per call."""
        views = (replace(view, runtime=runtime, threads=threads) for view in self.views)
        return replace(self, views=tuple(views))

    def save(self, path: Path | str) -> None:
        """Write the detector to a model file."""
        modelfile.write(self.views, self.skeleton, self.origin, Path(path))

    def export(self, path: Path | str) -> Parity:
        """Write the detector as one graph for programs without stepvad, and say how exact it is.

        Windows in pixels and their mean confidence go in, scores come out, in ONNX Runtime and all
        that reads `.onnx`. The file is tried on synthetic windows first, and not written if its
        scores deviate.
        """
        from stepvad.model.export import export

        return export(self.views[0], self.skeleton, self.origin, Path(path))

    def score(self, clip: Clip, *, report: Report = silent) -> Scores:
        """Score every window of a clip; memory beyond clip and scores does not grow with it."""
        return score_clip(
            clip, self.view_settings, self.skeleton, self.score_windows, report=report
        )

    def score_windows(self, windows: Windows) -> WindowScores:
        """A(x) of windows cut with this detector's settings (Eq. 8).

        With several views, -log p of the pose or of the motion, whichever is larger, or its mean
        with that of the place; E then holds that of each view.
        """
        windows.expect(self.view_settings, self.skeleton)
        if self.config.scored_by == "energy":
            E, A = self.views[0].score(windows)
        else:
            E = self._nats(windows, self._view_scores(windows))
            A = (E * self._weights(E)).sum(axis=1)
        return WindowScores(windows.track_id, windows.frame, windows.c, E, A, windows.seen)

    def without(self, fold: int) -> Detector:
        """A detector of usual motion without what it learned from one part of the clips.

        It scores this part as footage that it has not seen.
        """
        views = []
        for view in self.views:
            learned = view.model.learned
            if isinstance(learned, Centroids):
                view = replace(view, model=replace(view.model, learned=learned.without(fold)))
            views.append(view)
        return replace(self, views=tuple(views))

    def contributions(
        self, windows: Windows, scores: Sequence[NDArray[np.floating]] | None = None
    ) -> NDArray[np.float64]:
        """Parts of the scores of windows that each view adds, `(N, views)`: rows sum to A.

        With `scores`, one array per view, its windows have these in place of their own, and the
        weights that they have by their own.
        """
        own = self._nats(windows, self._view_scores(windows))
        nats = own if scores is None else self._nats(windows, scores)
        return np.asarray(nats.astype(np.float64) * self._weights(own))

    def _view_scores(self, windows: Windows) -> list[NDArray[np.float32]]:
        """The scores of each view's windows, by the view alone."""
        nothing = np.empty(0, np.float32)
        return [
            view.score(own.windows)[1] if len(own.rows) else nothing
            for own, view in zip(windows.views, self.views, strict=True)
        ]

    def _nats(
        self, windows: Windows, scores: Sequence[NDArray[np.floating]]
    ) -> NDArray[np.float32]:
        """-log p of the scores of each view's windows, `(N, views)`.

        A view that a young window has too few poses for says what it says of normal ones: 1.
        """
        nats = np.ones((len(windows), len(self.views)), np.float32)
        for number, view in enumerate(self.views):
            own = windows.views[number]
            A, ages = scores[number].astype(np.float32), own.windows.ages(view.config)
            rarity = view.rarity(A, ages)
            is_place = view.config.view == "place"
            nats[own.rows, number] = np.minimum(rarity, NEW_PLACE) if is_place else rarity
        return nats

    def _weights(self, nats: NDArray[np.float32]) -> NDArray[np.float32]:
        """Weights of the views in the score of each window, `(N, views)`: rows sum to 1."""
        kinds = np.array([view.config.view for view in self.views])
        pose, motion, place = (kinds == kind for kind in ("pose", "motion", "place"))
        # the larger of pose and motion, and the place says as much as the body
        is_motion = nats[:, motion].max(axis=1, initial=0) > nats[:, pose].mean(axis=1)
        body = np.where(is_motion[:, None], motion, pose / pose.sum())
        return np.asarray((body + place) / (1 + place.any()), np.float32)


def _fit_usual(
    clips: Iterable[Clip],
    configs: Sequence[Config],
    noise: tuple[float, ...],
    folds: Sequence[int] | None,
    report: Report,
    compute: Compute,
) -> Detector:
    """Learn the usual motion of each view, and how far from it windows are of unseen footage."""
    footage = Footage.from_clips(clips, [ViewSettings(config, noise) for config in configs])
    index, rng = footage.index, np.random.default_rng(configs[0].seed)
    # the windows to learn from, and the fold of each, (n,)
    n = min(len(index), SAMPLE)
    rows = (np.arange(n) + rng.random()) * len(index) // n if n else np.arange(0)
    rows = rows.astype(np.int64)
    fold = folds_of_tracks(footage.n_tracks, folds)[index.track_id[rows]]
    track = index.track_id[rows]
    some = index.windows(rows[::PROJECTED] if n > SAMPLE / PROJECTED else rows)
    # windows as each view sees them, the rows that are long enough, and their ages
    spaces = []
    for view, own in zip(index.views, some.views, strict=True):
        config = resolve(view.config, footage.skeleton)
        spaces.append((config, _space(own.windows.x, config)))
    points: list[list[NDArray[np.float32]]] = [[] for _ in spaces]
    whose: list[list[NDArray[np.int64]]] = [[] for _ in spaces]
    ages: list[list[NDArray[np.int64]]] = [[] for _ in spaces]
    amount: list[NDArray[np.float32]] = []
    for first in range(0, n, BATCH):
        windows = index.windows(rows[first : first + BATCH])
        for number, (own, (config, space)) in enumerate(zip(windows.views, spaces, strict=True)):
            points[number].append(space.project(own.windows.x))
            whose[number].append(first + own.rows)
            ages[number].append(own.windows.ages(config))
            if config.view == "motion":
                amount.append(amounts(own.windows.x, "motion"))
        report(Progress("usual motion", first + len(windows), n))
    views = []
    for number, (config, space) in enumerate(spaces):
        z, row = np.concatenate(points[number]), np.concatenate(whose[number])
        centroids = Centroids.fit(z, track[row], fold[row], rng)
        # how far windows are from the usual motion of footage that they are not in, by age
        d = cross_distances(centroids, z, fold[row])
        surprise = SurpriseByAge.measure(d, np.concatenate(ages[number]), config)
        usual = None
        if config.view == "motion":
            quantiles = np.quantile(np.concatenate(amount).astype(np.float64), QUANTILES, axis=0)
            usual = np.ascontiguousarray(quantiles.T)
        model = Model(space, centroids, noise, index.views[number].pace, usual)
        views.append(View(config, model, surprise, compute.runtime))
        report(Progress("centroids", number + 1, len(spaces)))
    return Detector(tuple(views), footage.skeleton, footage.origin(0))


def _space(x: NDArray[np.float32], config: Config) -> PCSpace:
    """The space in which distances are measured: of poses Eq. 6, of numbers their deviations."""
    flat = x.reshape(len(x), -1)
    parts = (flat[first : first + BATCH] for first in range(0, len(flat), BATCH))
    moments = Moments.measure(parts, flat.shape[1])
    if config.view != "pose":
        return PCSpace.unit_spread(moments)
    return PCSpace.fit(moments, config.K, whitening=config.reference.whitening)


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
        settings: ViewSettings,
        compute: Compute,
        report: Report,
    ) -> _Fit:
        """Read the clips and learn π from them (Eq. 6)."""
        # windows to fit on; those for the projection alone come second
        parts = [Footage.from_clips(clips, [settings])]
        if projection_clips is not None:
            parts.append(Footage.from_clips(projection_clips, [parts[0].view], parts[0].skeleton))
        config = resolve(parts[0].config, parts[0].skeleton)
        space = fit_space(parts, config, report)
        digest = " ".join(part.digest for part in parts)
        windows = Projected.from_footage(parts[0], space, config, report)
        return cls(windows, config, digest, compute, report)

    def train(
        self,
        *,
        validate: Callable[[Weights, int], float] | None = None,
        rated_by: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> Detector:
        """Learn the energy model (Eq. 7), and its Ē_i and Var(E_i) over all training windows."""
        from stepvad.model import training

        footage = self.windows.footage
        weights, epochs = training.train(
            training.TrainingSet(len(footage), self.windows.batch, self.digest),
            self.config,
            report=self.report,
            validate=validate,
            rated_by=rated_by,
            checkpoint=checkpoint,
            compute=self.compute,
        )
        return self._detector(weights, epochs, self.windows.batches("energies", self.report))

    def rated(self, weights: Weights, epochs: int) -> Detector:
        """The detector to rate after an epoch, with statistics of a sample, evenly spaced."""
        n = len(self.windows.footage)
        rows = np.linspace(0, n, min(n, RATED_WINDOWS), endpoint=False).astype(np.int64)
        parts = (rows[first : first + BATCH] for first in range(0, len(rows), BATCH))
        return self._detector(weights, epochs, (self.windows.batch(part)[0] for part in parts))

    def _detector(
        self, weights: Weights, epochs: int, projected: Iterable[NDArray[np.float32]]
    ) -> Detector:
        """The detector with Ē_i and Var(E_i) of these weights over training windows (Eq. 8)."""
        # energies of windows that are projected already; their moments per scale, (L,)
        folded = fold(weights, self.config)
        network = EngineNetwork.load(folded, self.compute.runtime)
        moments = Moments.measure(map(network.energies, projected), self.config.L)
        E_var = moments.covariance.diagonal().copy()
        if not (E_var > SMALLEST).all():  # NaN compares false
            raise DataError(
                f"expected energies that vary over the training windows, got variances {E_var}",
                hint="lower the learning rate, or fit on footage with more motion",
            )
        footage, space = self.windows.footage, self.windows.space
        measured = footage.view
        model = Model(space, EnergyModel(weights, moments.mean, E_var), measured.noise)
        view = View(self.config, model, runtime=self.compute.runtime)
        return Detector((view,), footage.skeleton, footage.origin(epochs))
