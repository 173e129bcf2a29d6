"""One experiment: a fit, the epoch it keeps, the scoring of test clips, its result's key."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import stepvad
from stepvad.config import Checkpoint, Compute, Config, Method, Precision, ViewKind
from stepvad.detector import Detector
from stepvad.errors import ConfigError, Report, silent
from stepvad.evaluation import baselines
from stepvad.evaluation.baselines import Fitted, is_distance
from stepvad.evaluation.datasets import Dataset, clip_digest, open_dataset
from stepvad.evaluation.protocol import frame_scores, score_clips
from stepvad.model.engines import choose
from stepvad.model.scoring import Scores, WindowScores, score_clip
from stepvad.poses import Clip, Track
from stepvad.windows.views import ViewSettings, Windows

logger = logging.getLogger(__name__)
RATED_EVERY = 4
"""Of the windows of a person, one in this many is scored to rate an epoch on the processor."""

SCORING_CODE = (
    "config.py",
    "detector.py",
    "model",
    "poses.py",
    "skeletons.py",
    "windows",
    "evaluation/baselines.py",
    "evaluation/custom.py",
    "evaluation/experiment.py",
    "evaluation/protocol.py",
    "evaluation/runs.py",
    "evaluation/trivial.py",
)
"""The parts of the package that decide a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One fit and one scoring of the test clips: every setting that determines a result."""

    method: Method = "step"
    config: Config = Config()
    k: int = 1
    """Neighbours of `knn`."""
    jitter: float = 0.0
    """Gaussian noise on the coordinates of standardised test windows (Supp., Table on jitter)."""
    drop_below: float = 0.0
    """Training poses with a lower mean confidence are dropped (Supp., Table on noisy poses)."""
    fit_on: tuple[str, ...] = ()
    """Directories of the data sets to fit on, instead of the one being measured.

    One gives a cross-data-set experiment, several give joint training.
    """
    best_on_validation: bool = False
    """True to keep the epoch with the best AUROC on the validation clips (Sec. 4.1)."""
    views: tuple[ViewKind, ...] = ("pose", "motion")
    """Views of `usual`."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        if not 0 <= self.drop_below <= 1:
            raise ConfigError(f"drop_below: expected a number from 0 to 1, got {self.drop_below}")
        if not 0 <= self.jitter < math.inf:
            raise ConfigError(f"jitter: expected a finite number of at least 0, got {self.jitter}")
        if len(set(self.fit_on)) < len(self.fit_on):
            raise ConfigError(
                f"fit_on: expected different directories, got {', '.join(self.fit_on)}",
                hint="name each data set once",
            )
        if self.method == "usual" and self.jitter:
            raise ConfigError(
                f"usual: expected no jitter, got {self.jitter:g}",
                hint="noisy windows are those of one view",
            )

    @property
    def fitting(self) -> Experiment:
        """The settings that affect the fit; experiments with equal ones share a fit."""
        return replace(self, jitter=0.0, config=replace(self.config, aggregation="max"))

    def train_clips(self, dataset: Dataset) -> Iterator[Clip]:
        """The clips to fit on, from `dataset` or from `fit_on`, without low-confidence poses."""
        sources = [open_dataset(directory) for directory in self.fit_on] or [dataset]
        for source in sources:
            for clip in source.train_clips():
                yield without_unsure(clip, self.drop_below)

    def fit(
        self,
        dataset: Dataset,
        *,
        report: Report = silent,
        compute: Compute = Compute(),
        checkpoint: Path | None = None,
    ) -> Fitted:
        """Fit the method on the training clips.

        `checkpoint` stores the state of a training, which resumes from it if the file exists.
        """
        clips: Iterable[Clip] = self.train_clips(dataset)
        if baselines.is_distance(self.method) or self.method == "usual":
            return baselines.fit(
                self.method, clips, self.config, k=self.k, views=self.views, report=report
            )
        config = baselines.variant(self.method, self.config)
        # a training that was interrupted goes on from its file
        kept = None if checkpoint is None else Checkpoint(checkpoint, resume=checkpoint.exists())
        chosen_on = dataset.validation_set() if self.best_on_validation else None
        return Detector.fit(
            clips,
            config,
            keep_best=None if chosen_on is None else validation_auroc(chosen_on),
            report=report,
            checkpoint=kept,
            compute=compute,
        )

    def scorer(self, fitted: Fitted) -> Fitted | Jittered:
        """The (possibly shared) fit with this experiment's aggregation and jitter."""
        # distances have one aggregation only
        if isinstance(fitted, Detector) and fitted.config.scored_by == "energy":
            (view,) = fitted.views
            config = replace(view.config, aggregation=self.config.aggregation)
            fitted = replace(fitted, views=(replace(view, config=config),))
        return Jittered(fitted, self.jitter) if self.jitter else fitted

    def key(self, data: str) -> str:
        """A key for the result of this experiment on data with this digest, by this code.

        The digest covers the data sets of `fit_on`, so their paths are not part of the key.
        """
        told = asdict(self)
        del told["fit_on"]
        words = {"experiment": told, "data": data, "code": code_version()}
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Jittered:
    """A fitted method that scores test windows with noise on their coordinates."""

    fitted: Fitted
    jitter: float

    @property
    def config(self) -> Config:
        """The settings it was fitted with."""
        return self.fitted.config

    @property
    def view_settings(self) -> tuple[ViewSettings, ...]:
        """All that cutting windows for it needs."""
        return self.fitted.view_settings

    def score(self, clip: Clip) -> Scores:
        """Score a clip; its name seeds the noise."""
        rng = np.random.default_rng(crc32(clip.name.encode()))

        def score_windows(windows: Windows) -> WindowScores:
            noise = rng.standard_normal(windows.x.shape, dtype=np.float32)
            return self.fitted.score_windows(replace(windows, x=windows.x + self.jitter * noise))

        return score_clip(clip, self.view_settings, self.fitted.skeleton, score_windows)


def without_unsure(clip: Clip, drop_below: float) -> Clip:
    """Drop poses whose mean confidence is below `drop_below`; the number of frames stays.

    NaN confidence counts as 0, others are clipped to [0, 1]. Tracks without poses are removed. Gaps
    of at most T frames are filled later, as in any clip.
    """
    if not drop_below:
        return clip
    tracks = (_sure_part(track, drop_below) for track in clip.tracks)
    return replace(clip, tracks=tuple(track for track in tracks if len(track)))


def auroc_on(data: Path) -> ValidationAuroc:
    """`validation_auroc` on the validation clips of a data set, or else on its test clips."""
    dataset = open_dataset(data)
    if dataset.validation is not None:
        return validation_auroc(dataset.validation())
    logger.info("%s has no validation clips: its test clips choose the epoch", dataset.name)
    return validation_auroc(dataset)


def validation_auroc(dataset: Dataset) -> ValidationAuroc:
    """A function that rates a detector on the clips of a data set, which are read once."""
    clips = [*dataset.test()]
    return ValidationAuroc(replace(dataset, test=lambda: clips), _clips_digest(dataset, clips))


@dataclass(frozen=True, slots=True)
class ValidationAuroc:
    """Rates a detector by its online smoothed AUROC on the clips of a data set.

    A fixed sample of their windows is scored.
    """

    dataset: Dataset
    digest: str
    """Of the clips, their labels and their smoothing."""

    def __call__(self, detector: Detector) -> float:
        """The AUROC; higher is better."""
        scorer = SampledScorer(detector, RATED_EVERY)
        return frame_scores(score_clips(scorer, self.dataset), self.dataset).measure("auroc")


@dataclass(frozen=True, slots=True)
class SampledScorer:
    """A detector that scores some windows of each person and interpolates between them."""

    detector: Detector
    every: int

    def score(self, clip: Clip) -> Scores:
        """Score a clip."""
        settings, skeleton = self.detector.view_settings, self.detector.skeleton
        return score_clip(clip, settings, skeleton, self._score_windows)

    def _score_windows(self, windows: Windows) -> WindowScores:
        # scores of the sample, (n,), and linear interpolation for the windows between
        rows = sampled_rows(windows.track_id, windows.frame, self.every)
        some = self.detector.score_windows(windows.part(rows))
        between = np.interp(np.arange(len(windows)), rows, some.A) if len(rows) else some.A
        return WindowScores(
            windows.track_id,
            windows.frame,
            windows.c,
            np.zeros((len(windows), self.detector.columns), np.float32),  # not of a sample
            between.astype(np.float32),
            windows.seen,
        )


def sampled_rows(
    track_id: NDArray[np.int64], frame: NDArray[np.int64], every: int
) -> NDArray[np.int64]:
    """Every `every`-th of the windows, and the first and last of each run of consecutive ones.

    So no score is interpolated from one person to another, or over a gap.
    """
    # a run ends where the person changes or a frame is missing
    ends = (np.diff(track_id) != 0) | (np.diff(frame) != 1)
    kept = (frame % every == 0) | np.append(True, ends)[: len(frame)] | np.append(ends, True)
    return np.flatnonzero(kept[: len(frame)])


@cache
def code_version() -> str:
    """A digest of the version and of the code that decides a score."""
    return f"{version('stepvad')} {code_digest(Path(stepvad.__file__).parent)}"


def code_digest(package: Path) -> str:
    """A digest of the deciding files of a package, in whatever directory it is."""
    sha = hashlib.sha256()
    for part in SCORING_CODE:
        for file in sorted([package / part, *(package / part).rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                sha.update(repr(str(file.relative_to(package))).encode())
                sha.update(hashlib.sha256(file.read_bytes()).digest())
    return sha.hexdigest()


def resolved_compute(compute: Compute, config: Config) -> Compute:
    """`compute` with the engine and the precision that `auto` and `fastest` mean on this machine.

    Scores of two engines differ in their last digits, in bfloat16 by more.
    """
    engine = choose(compute.runtime, width=config.width)
    return replace(compute, runtime=engine, precision=_precision(compute, config))


def result_suffix(method: Method, compute: Compute, config: Config) -> str:
    """Part of the name of a result: the device, engine and precision it was computed with."""
    if is_distance(method):
        return ""
    own = resolved_compute(compute, config)
    device = own.device.partition(":")[0]
    return "".join(f"-{part}" for part in (device, own.runtime, own.precision))


def _sure_part(track: Track, drop_below: float) -> Track:
    confidence = np.clip(np.nan_to_num(track.confidence, nan=0.0), 0.0, 1.0)
    # rounded to float32 like the confidences: a pose of 0.2 everywhere is not below 0.2
    mean = confidence.mean(axis=1, dtype=np.float64).astype(np.float32)
    sure = mean >= np.float32(drop_below)
    return Track(track.id, track.frames[sure], track.keypoints[sure], track.confidence[sure])


def _clips_digest(dataset: Dataset, clips: Sequence[Clip]) -> str:
    """A digest of all that the rating depends on, other than the detector."""
    sha = hashlib.sha256(repr(dataset.smoothing).encode())
    for clip, labels in replace(dataset, test=lambda: clips).test_clips():
        sha.update(clip_digest(clip, labels))
    return sha.hexdigest()


def _precision(compute: Compute, config: Config) -> Precision:
    if compute.precision != "auto":
        return compute.precision
    if find_spec("torch") is None:  # nothing can be trained here, and nothing was
        return "float32"
    from stepvad.model.training import training_precision

    try:
        return training_precision(config, compute)
    except ConfigError:  # other machines of a cluster have that device
        return "auto"
