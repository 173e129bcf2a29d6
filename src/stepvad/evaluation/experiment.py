"""One experiment: a fit, and how the test clips are scored with it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

from stepvad.config import Aggregation, Compute, Config, View
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import baselines, provenance
from stepvad.evaluation.baselines import Fitted, Method
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.validation import validation_auroc
from stepvad.model.footage import score_clip
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip, Track
from stepvad.progress import Report, silent
from stepvad.windows import Windows


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
    """Whether to keep the epoch with the best AUROC on the validation clips (Sec. 4.1)."""
    views: tuple[View, ...] = ()
    """Views of a window to join; none is the paper's window.

    Their lengths follow from `config.fps`, or else from the rate of the first training clip.
    """

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
        if self.views and (self.method != "step" or self.jitter):
            raise ConfigError(
                f"views: expected step without jitter, got {self.method}, jitter {self.jitter:g}",
                hint="other methods and noisy windows have one view",
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
        if baselines.is_distance(self.method):
            return baselines.fit(self.method, clips, self.config, k=self.k, report=report)
        config = baselines.variant(self.method, self.config)
        if self.views:
            clips = known = self._known_rate([*clips])
            checkpoint, config = None, config.with_views(self.views, known[0].rate())
        chosen_on = dataset.validation_set() if self.best_on_validation else None
        return Detector.fit(
            clips,
            config,
            keep_best=None if chosen_on is None else validation_auroc(chosen_on),
            report=report,
            checkpoint=checkpoint,
            resume=checkpoint is not None and checkpoint.exists(),
            compute=compute,
        )

    def _known_rate(self, clips: list[Clip]) -> list[Clip]:
        """The clips, with the rate of the settings if they do not state one."""
        if not clips:
            raise DataError("expected clips to fit on, got none", hint="check the data set")
        return [clip if clip.fps else clip.with_rate(self.config.fps) for clip in clips]

    def scorer(self, fitted: Fitted) -> Fitted | Jittered:
        """The (possibly shared) fit with this experiment's aggregation and jitter."""
        own = _aggregating(fitted, self.config.aggregation)
        return Jittered(own, self.jitter) if self.jitter else own

    def key(self, data: str) -> str:
        """A key for the result of this experiment on data with this digest, by this code.

        The digest covers the data sets of `fit_on`, so their paths are not part of the key.
        """
        told = asdict(self)
        del told["fit_on"]
        words = {"experiment": told, "data": data, "code": provenance.code()}
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

    def score(self, clip: Clip) -> Scores:
        """Score a clip; its name seeds the noise."""
        rng = np.random.default_rng(crc32(clip.name.encode()))

        def score_windows(windows: Windows) -> WindowScores:
            noise = rng.standard_normal(windows.x.shape, dtype=np.float32)
            return self.fitted.score_windows(replace(windows, x=windows.x + self.jitter * noise))

        return score_clip(clip, self.config, self.fitted.skeleton, score_windows)


def _aggregating(fitted: Fitted, aggregation: Aggregation) -> Fitted:
    """The same fit with another aggregation of its energies; distances have only one."""
    if not isinstance(fitted, Detector) or fitted.config.aggregation == aggregation:
        return fitted
    config = replace(fitted.config, aggregation=aggregation)
    return replace(fitted, model=replace(fitted.model, config=config))


def without_unsure(clip: Clip, drop_below: float) -> Clip:
    """Drop poses whose mean confidence is below `drop_below`; the number of frames stays.

    NaN confidence counts as 0, others are clipped to [0, 1]. Tracks without poses are removed. Gaps
    of at most T frames are filled later, as in any clip.
    """
    if not drop_below:
        return clip
    tracks = (_sure_part(track, drop_below) for track in clip.tracks)
    return replace(clip, tracks=tuple(track for track in tracks if len(track)))


def _sure_part(track: Track, drop_below: float) -> Track:
    confidence = np.clip(np.nan_to_num(track.confidence, nan=0.0), 0.0, 1.0)
    # rounded to float32 like the confidences: a pose of 0.2 everywhere is not below 0.2
    mean = confidence.mean(axis=1, dtype=np.float64).astype(np.float32)
    sure = mean >= np.float32(drop_below)
    return Track(track.id, track.frames[sure], track.keypoints[sure], track.confidence[sure])
