"""One experiment: a fit, and how it looks at the test clips."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

import numpy as np

from stepvad import baselines
from stepvad.baselines import Fitted, Method
from stepvad.benchmark import protocol
from stepvad.benchmark.datasets import Dataset, open_dataset
from stepvad.config import Aggregation, Compute, Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.model.footage import score_clip
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip, Track
from stepvad.progress import Report, silent
from stepvad.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One fit and one look at the test clips: all that makes a result what it is."""

    method: Method = "step"
    config: Config = Config()
    k: int = 1
    """Neighbours of `knn`."""
    anomalies: bool = False
    """Whether the projection also learns from the validation clips, which show anomalies."""
    jitter: float = 0.0
    """Gaussian noise on the coordinates of standardised test windows (Supp., Table on jitter)."""
    drop_below: float = 0.0
    """Training poses of a lower mean confidence are left out (Supp., Table on noisy poses)."""
    fit_on: tuple[str, ...] = ()
    """Directories of data sets to fit on in the place of the data set that is measured on.

    One makes it a cross-data-set experiment, several train jointly.
    """
    best_on_validation: bool = False
    """Whether the epoch with the best AUROC on the validation clips is kept (Sec. 4.1)."""

    def __post_init__(self) -> None:
        """Refuse what no fit can do."""
        if not 0 <= self.drop_below <= 1:
            raise ConfigError(f"drop_below: expected a number from 0 to 1, got {self.drop_below}")
        if len(set(self.fit_on)) < len(self.fit_on):
            raise ConfigError(
                f"fit_on: expected different directories, got {', '.join(self.fit_on)}",
                hint="name each data set once",
            )

    @property
    def fitting(self) -> Experiment:
        """What must be fitted: experiments that agree in it share a fit."""
        return replace(self, jitter=0.0, config=replace(self.config, aggregation="max"))

    def train_clips(self, dataset: Dataset) -> Iterator[Clip]:
        """The clips to fit on: the data set's own or those of others, without unsure poses."""
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
        """The method, fitted on the training clips.

        `checkpoint` keeps the state of a training, which goes on from there if the file exists.
        """
        clips = self.train_clips(dataset)
        if baselines.is_distance(self.method):
            return baselines.fit(self.method, clips, self.config, k=self.k, report=report)
        return Detector.fit(
            clips,
            baselines.variant(self.method, self.config),
            projection_clips=_validation_clips(dataset) if self.anomalies else None,
            keep_best=validation_auroc(dataset) if self.best_on_validation else None,
            report=report,
            checkpoint=checkpoint,
            resume=checkpoint is not None and checkpoint.exists(),
            compute=compute,
        )

    def scorer(self, fitted: Fitted) -> Fitted | Jittered:
        """The fitted method as it looks at the test clips, whatever shared fit it comes from."""
        own = _aggregating(fitted, self.config.aggregation)
        return Jittered(own, self.jitter) if self.jitter else own

    def key(self, data: str) -> str:
        """A name for the result of this experiment on data of this digest by this version.

        The digest speaks for the data sets of `fit_on`, wherever they are.
        """
        told = asdict(self)
        del told["fit_on"]
        for choice in ("drop_below", "best_on_validation"):
            if not told[choice]:  # results from before there was a choice keep their names
                del told[choice]
        words = {"experiment": told, "data": data, "version": version("stepvad")}
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Jittered:
    """A fitted method that sees test windows with noise on their coordinates."""

    fitted: Fitted
    jitter: float

    @property
    def config(self) -> Config:
        """The settings it was fitted with."""
        return self.fitted.config

    def score(self, clip: Clip) -> Scores:
        """Scores of a clip; its name decides the noise."""
        rng = np.random.default_rng(crc32(clip.name.encode()))

        def score_windows(windows: Windows) -> WindowScores:
            noise = rng.standard_normal(windows.x.shape, dtype=np.float32)
            return self.fitted.score_windows(replace(windows, x=windows.x + self.jitter * noise))

        return score_clip(clip, self.config, self.fitted.skeleton, score_windows)


def validation_auroc(dataset: Dataset) -> Callable[[Detector], float]:
    """What rates a detector: online smoothed AUROC on the validation clips, read once."""
    validation = dataset.validation_set()
    clips = [*validation.test()]
    kept = replace(validation, test=lambda: clips)

    def rate(detector: Detector) -> float:
        return protocol.frame_scores(protocol.score_clips(detector, kept), kept).measure("auroc")

    return rate


def _validation_clips(dataset: Dataset) -> Iterator[Clip]:
    for clip, _ in dataset.validation_clips():
        yield clip


def _aggregating(fitted: Fitted, aggregation: Aggregation) -> Fitted:
    """The same fit with its energies aggregated so; a distance has but one."""
    if not isinstance(fitted, Detector) or fitted.config.aggregation == aggregation:
        return fitted
    config = replace(fitted.config, aggregation=aggregation)
    return replace(fitted, model=replace(fitted.model, config=config))


def without_unsure(clip: Clip, drop_below: float) -> Clip:
    """The clip without poses whose mean confidence is lower; its number of frames stays.

    NaN confidence counts as 0, others are clipped to [0, 1]. A track without poses goes. Gaps of
    at most T frames are filled later, as those of any clip are.
    """
    if not drop_below:
        return clip
    tracks = (_sure_part(track, drop_below) for track in clip.tracks)
    return replace(clip, tracks=tuple(track for track in tracks if len(track)))


def _sure_part(track: Track, drop_below: float) -> Track:
    confidence = np.clip(np.nan_to_num(track.confidence, nan=0.0), 0.0, 1.0)
    # rounded to what confidences are, so that a pose of 0.2 everywhere is not below 0.2
    mean = confidence.mean(axis=1, dtype=np.float64).astype(np.float32)
    sure = mean >= np.float32(drop_below)
    return Track(track.id, track.frames[sure], track.keypoints[sure], track.confidence[sure])
