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
from stepvad.benchmark.datasets import Dataset
from stepvad.config import Aggregation, Compute, Config
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.footage import score_clip
from stepvad.poses import Clip
from stepvad.progress import Report, silent
from stepvad.scoring import Scores, WindowScores
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
    best_on_validation: bool = False
    """Whether the epoch with the best AUROC on the validation clips is kept (Sec. 4.1)."""

    @property
    def fitting(self) -> Experiment:
        """What must be fitted: experiments that agree in it share a fit."""
        return replace(self, jitter=0.0, config=replace(self.config, aggregation="max"))

    def fit(
        self,
        dataset: Dataset,
        *,
        report: Report = silent,
        compute: Compute = Compute(),
        checkpoint: Path | None = None,
    ) -> Fitted:
        """The method, fitted on the data set's training clips.

        `checkpoint` keeps the state of a training, which goes on from there if the file exists.
        """
        if baselines.is_distance(self.method):
            clips = dataset.train_clips()
            return baselines.fit(self.method, clips, self.config, k=self.k, report=report)
        return Detector.fit(
            dataset.train_clips(),
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
        """A name for the result of this experiment on data of this digest by this version."""
        told = asdict(self)
        if not self.best_on_validation:  # results from before there was a choice keep their names
            del told["best_on_validation"]
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
    if dataset.validation is None:
        raise DataError(
            f"{dataset.name}: expected validation clips to choose the best epoch with, got none",
            hint="put their poses where the data set has them, as UBnormal in pose/validation",
        )
    validation = dataset.validation()
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
