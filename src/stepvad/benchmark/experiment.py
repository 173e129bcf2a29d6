"""One experiment: a fit, and how it looks at the test clips."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from zlib import crc32

import numpy as np

from stepvad import baselines
from stepvad.baselines import Fitted, Method
from stepvad.benchmark.datasets import Dataset
from stepvad.benchmark.protocol import Scorer
from stepvad.config import Config
from stepvad.detector import Detector
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

    def fit(self, dataset: Dataset, *, report: Report = silent) -> Fitted:
        """The method, fitted on the data set's training clips."""
        if baselines.is_distance(self.method):
            clips = dataset.train_clips()
            return baselines.fit(self.method, clips, self.config, k=self.k, report=report)
        return Detector.fit(
            dataset.train_clips(),
            baselines.variant(self.method, self.config),
            projection_clips=_validation_clips(dataset) if self.anomalies else None,
            report=report,
        )

    def scorer(self, fitted: Fitted) -> Scorer:
        """The fitted method as it looks at the test clips."""
        return Jittered(fitted, self.jitter) if self.jitter else fitted

    def key(self, data: str) -> str:
        """A name for the result of this experiment on data of this digest by this version."""
        words = {"experiment": asdict(self), "data": data, "version": version("stepvad")}
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


def _validation_clips(dataset: Dataset) -> Iterator[Clip]:
    for clip, _ in dataset.validation_clips():
        yield clip
