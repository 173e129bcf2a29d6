"""The metric that selects an epoch: AUROC on clips not used for fitting."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.evaluation.datasets import Dataset, clip_digest, open_dataset
from stepvad.evaluation.protocol import frame_scores, score_clips
from stepvad.model.footage import score_clip
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows import Windows

logger = logging.getLogger(__name__)

EVERY = 4
"""Of the windows of a person, one in this many is scored to rate an epoch on the processor."""


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
    return ValidationAuroc(replace(dataset, test=lambda: clips), _digest(dataset, clips))


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
        scorer = SampledScorer(detector, EVERY)
        return frame_scores(score_clips(scorer, self.dataset), self.dataset).measure("auroc")


def _digest(dataset: Dataset, clips: Sequence[Clip]) -> str:
    """A digest of all that the rating depends on, other than the detector."""
    smoothing = (dataset.person_sigma, dataset.frame_sigma, dataset.smoothing)
    sha = hashlib.sha256(repr(smoothing).encode())
    for clip, labels in replace(dataset, test=lambda: clips).test_clips():
        sha.update(clip_digest(clip, labels))
    return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class SampledScorer:
    """A detector that scores some windows of each person and interpolates between them."""

    detector: Detector
    every: int

    def score(self, clip: Clip) -> Scores:
        """Score a clip."""
        config, skeleton = self.detector.config, self.detector.skeleton
        return score_clip(clip, config, skeleton, self._score_windows)

    def _score_windows(self, windows: Windows) -> WindowScores:
        rows = sampled_rows(windows.track_id, windows.frame, self.every)
        some = self.detector.score_windows(windows.part(rows))
        between = np.interp(np.arange(len(windows)), rows, some.A) if len(rows) else some.A
        return WindowScores(
            windows.track_id,
            windows.frame,
            windows.c,
            np.zeros((len(windows), self.detector.config.columns), np.float32),  # not of a sample
            between.astype(np.float32),
            windows.seen,
        )


def sampled_rows(
    track_id: NDArray[np.int64], frame: NDArray[np.int64], every: int
) -> NDArray[np.int64]:
    """Every `every`-th of the windows, and the first and last of each run of consecutive ones.

    So no score is interpolated from one person to another, or over a gap.
    """
    ends = (np.diff(track_id) != 0) | (np.diff(frame) != 1)
    kept = (frame % every == 0) | np.append(True, ends)[: len(frame)] | np.append(ends, True)
    return np.flatnonzero(kept[: len(frame)])
