"""The metric that selects an epoch: AUROC on clips not used for fitting."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from stepvad.benchmark.datasets import open_dataset
from stepvad.benchmark.protocol import frame_scores, score_clips
from stepvad.detector import Detector

logger = logging.getLogger(__name__)


def auroc_on(data: Path) -> Callable[[Detector], float]:
    """Online smoothed AUROC on the validation clips of a data set, or else on its test clips."""
    dataset = open_dataset(data)
    if dataset.validation is None:
        logger.info("%s has no validation clips: its test clips choose the epoch", dataset.name)
    else:
        dataset = dataset.validation()
    return lambda detector: frame_scores(score_clips(detector, dataset), dataset).measure("auroc")
