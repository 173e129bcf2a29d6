"""Estimate training time on this machine from a few steps of the real network."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from stepvad.config import Compute, Config
from stepvad.detector import RATED_WINDOWS
from stepvad.errors import MissingExtraError
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.validation import EVERY
from stepvad.model.folded import Weights, fold
from stepvad.model.footage import BATCH, Footage
from stepvad.model.runtime import EngineNetwork
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent

TIMED_BATCHES = 4
"""Batches of windows to cut and score."""


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """Number of clips in a part of a data set, and of windows in them."""

    clips: int
    windows: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The amount of work in a training on a data set, and the measured time of each unit."""

    train: DatasetPart
    test: DatasetPart
    validation: DatasetPart | None
    """Clips that rate every epoch."""
    rated_windows: int
    """Windows scored after every epoch: of these clips, and of the training for its statistics."""
    epochs: int
    steps_per_epoch: int
    step_s: float
    """Seconds of one step."""
    window_s: float
    """Seconds to cut and score one window."""
    has_cuda: bool
    """Whether torch finds a CUDA device here."""

    @property
    def steps(self) -> int:
        """Steps of one training."""
        return self.epochs * self.steps_per_epoch

    @property
    def training_s(self) -> float:
        """Seconds of the steps of one training."""
        return self.steps * self.step_s

    @property
    def scored_windows(self) -> int:
        """Windows scored in one training: after every epoch, and once for its statistics."""
        return self.epochs * self.rated_windows + self.train.windows

    def run_s(self, looks: int) -> float:
        """Seconds of one run: the training, and `looks` passes over the test clips."""
        scored = self.scored_windows + looks * self.test.windows
        return self.training_s + scored * self.window_s


def forecast(
    dataset: Dataset,
    config: Config,
    *,
    validated: bool = False,
    compute: Compute = Compute(),
    report: Report = silent,
) -> Forecast:
    """Read the data set and time a few steps and scores; no result is stored."""
    try:
        from stepvad.model import training
    except ImportError as error:
        raise MissingExtraError("fit", "train") from error
    report(Progress("reading", 0, 0, "training clips"))
    footage = Footage.read(dataset.train_clips(), config)
    report(Progress("reading", 0, 0, "test clips"))
    test = _part((clip for clip, _ in dataset.test_clips()), config)
    validation = None
    if validated:
        validation = _part((clip for clip, _ in dataset.validation_clips()), config)
    report(Progress("timing", 0, 0))
    steps_per_epoch = math.ceil(len(footage) / config.batch_size)
    step_s, weights = training.time_steps(
        min(len(footage), config.batch_size),
        replace(config, max_steps=config.epochs * steps_per_epoch),
        compute,
    )
    return Forecast(
        train=DatasetPart(footage.n_clips, len(footage)),
        test=test,
        validation=validation,
        rated_windows=_rated_windows(len(footage), validation),
        epochs=config.epochs,
        steps_per_epoch=steps_per_epoch,
        step_s=step_s,
        window_s=_seconds_per_window(footage, weights, config, compute),
        has_cuda=training.has_cuda(),
    )


def _rated_windows(train: int, validation: DatasetPart | None) -> int:
    """Windows scored to rate one epoch, a sample of them."""
    if validation is None:
        return 0
    return min(train, RATED_WINDOWS) + math.ceil(validation.windows / EVERY)


def _part(clips: Iterable[Clip], config: Config) -> DatasetPart:
    found = [*clips]
    return DatasetPart(len(found), len(Footage.read(found, config)))


def _seconds_per_window(
    footage: Footage, weights: Weights, config: Config, compute: Compute
) -> float:
    """Seconds to cut a window and compute its energies, median of a few batches."""
    folded, seconds = fold(weights, config), []
    network = EngineNetwork.of(folded, compute.runtime)
    rng = np.random.default_rng(0)
    for _ in range(TIMED_BATCHES + 1):
        started = time.perf_counter()
        windows = footage.index.windows(slice(0, BATCH))
        network.energies(rng.standard_normal((len(windows), config.K), dtype=np.float32))
        seconds.append((time.perf_counter() - started) / len(windows))
    return median(seconds[1:])  # the first one warms up
