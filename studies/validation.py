"""What the choice of an epoch by a sample of windows saves on the processor, and what it errs.

    python -m studies validation DATA [--width 64] [--epochs 12] [--seed 0]

Trains and rates every epoch twice: exactly, with statistics of all training windows and scores of
all validation windows, and by the sample that `fit` takes. Prints AUROC and processor time of each
epoch both ways, their largest difference, and what the choice by the sample loses in AUROC.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad import Config, Detector
from stepvad.detector import RATED_WINDOWS
from stepvad.errors import Progress
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.experiment import RATED_EVERY, validation_auroc
from stepvad.evaluation.protocol import frame_scores, score_clips
from stepvad.model.footage import Footage
from stepvad.model.pcspace import Moments
from stepvad.model.scoring import BATCH
from stepvad.windows.views import ViewSettings


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data)
    config = Config(
        width=given.width, epochs=given.epochs, seed=given.seed, learning_rate=1e-3, ema_warmup=True
    )
    rows = _rated_epochs(dataset, config)
    for epoch, one in enumerate(rows, 1):
        print(
            f"epoch {epoch}: sample {100 * one.sample:.2f} in {one.sample_s:.1f} s, "
            f"exact {100 * one.exact:.2f} in {one.exact_s:.1f} s, training {one.training_s:.1f} s"
        )
    sample, sample_s, exact, exact_s, training_s = np.array(rows).T
    lost = exact.max() - exact[sample.argmax()]
    print(
        f"one validation window in {RATED_EVERY}, statistics of {RATED_WINDOWS} training windows: "
        f"largest difference {100 * np.abs(sample - exact).max():.2f} points, "
        f"choice {sample.argmax() + 1} for {exact.argmax() + 1}, which loses {100 * lost:.2f}; "
        f"share of the run {sample_s.sum() / (sample_s + training_s).sum():.0%} "
        f"for {exact_s.sum() / (exact_s + training_s).sum():.0%}"
    )


class RatedEpoch(NamedTuple):
    """AUROC and seconds of one epoch, rated by the sample and exactly."""

    sample: float
    sample_s: float
    exact: float
    exact_s: float
    training_s: float


def _rated_epochs(dataset: Dataset, config: Config) -> list[RatedEpoch]:
    """Train, and rate every epoch both ways."""
    clips = [*dataset.train_clips()]
    chosen_on = dataset if dataset.validation is None else dataset.validation()
    by_sample, footage = (
        validation_auroc(chosen_on),
        Footage.from_clips(iter(clips), [ViewSettings(config)]),
    )
    every = np.arange(len(footage))
    some = np.linspace(0, len(footage), min(len(footage), RATED_WINDOWS), endpoint=False)
    rows: list[RatedEpoch] = []
    began = stepped = time.process_time()

    def note(progress: Progress) -> None:
        nonlocal began, stepped
        if progress.stage == "training":
            stepped = time.process_time()
        else:
            began = time.process_time()  # of the first step: all else is over

    def rate(detector: Detector) -> float:
        nonlocal began
        training_s, started = stepped - began, time.process_time()
        sample = by_sample(_with_statistics(detector, footage, some.astype(np.int64)))
        sampled = time.process_time()
        whole = _with_statistics(detector, footage, every)
        exact = frame_scores(score_clips(whole, chosen_on), chosen_on).measure("auroc")
        began = time.process_time()
        rows.append(RatedEpoch(sample, sampled - started, exact, began - sampled, training_s))
        return exact

    Detector.fit(iter(clips), config, keep_best=rate, report=note)
    return rows


def _with_statistics(detector: Detector, footage: Footage, rows: NDArray[np.int64]) -> Detector:
    """The detector with the statistics of these training windows."""
    (view,) = detector.views
    batches = (rows[i : i + BATCH] for i in range(0, len(rows), BATCH))
    energies = (view.energies(footage.index.windows(batch)) for batch in batches)
    moments = Moments.measure(energies, detector.config.L)
    spread = moments.covariance.diagonal().copy()
    learned = replace(view.model.energy, E_mean=moments.mean, E_var=spread)
    model = replace(view.model, learned=learned)
    return replace(detector, views=(replace(view, model=model),))
