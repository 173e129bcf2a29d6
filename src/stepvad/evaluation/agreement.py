"""Check that all runtimes agree on a whole data set, not only on a few windows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stepvad.config import Engine
from stepvad.detector import Detector
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import Dataset
from stepvad.model.runtime import available
from stepvad.progress import Report, silent

REFERENCE: Engine = "numpy"
TOP = 0.01
"""Share of windows, those with the highest scores, on which runtimes should agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One runtime on the test clips of a data set, compared with the reference."""

    engine: Engine
    auroc: float
    """Over all frames, online, not smoothed."""
    moved: float
    """AUROC minus the reference's, in points."""
    rank_correlation: float
    """Spearman's, between the scores of all windows and the reference's."""
    top: float
    """Share of the reference's top-scoring windows that are also among the top here."""
    deviation: float
    """Largest score difference, as a share of the spread of the reference's scores."""
    seconds: float


def agreement(
    detector: Detector,
    dataset: Dataset,
    engines: Sequence[Engine] | None = None,
    *,
    report: Report = silent,
) -> Iterator[Agreement]:
    """Yield one line per runtime, the reference first."""
    here = available(ranges=detector.model.ranges is not None)
    others = [engine for engine in engines or here if engine != REFERENCE]
    reference, auroc, seconds = _score(detector, REFERENCE, dataset, report)
    yield _line(REFERENCE, reference, reference, auroc, auroc, seconds)
    for engine in others:
        A, its, seconds = _score(detector, engine, dataset, report)
        yield _line(engine, A, reference, its, auroc, seconds)


def _score(
    detector: Detector, engine: Engine, dataset: Dataset, report: Report
) -> tuple[NDArray[np.float32], float, float]:
    """Scores of all windows, AUROC over all frames, and the seconds that both took."""
    started = time.perf_counter()
    clips = protocol.score_clips(replace(detector, runtime=engine), dataset, report=report)
    frames = protocol.frame_scores(clips, dataset, protocol.FrameView(smoothed=False))
    A = np.concatenate([clip.scores.A for clip in clips])
    return A, frames.measure("auroc"), time.perf_counter() - started


def _line(
    engine: Engine,
    A: NDArray[np.float32],
    reference: NDArray[np.float32],
    auroc: float,
    expected: float,
    seconds: float,
) -> Agreement:
    return Agreement(
        engine=engine,
        auroc=auroc,
        moved=100 * (auroc - expected),
        rank_correlation=float(spearmanr(A, reference).statistic),
        top=top_overlap(A, reference),
        deviation=float(np.abs(A - reference).max()) / (float(reference.std()) or 1.0),
        seconds=seconds,
    )


def top_overlap(A: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Share of the top-scoring windows that two runtimes have in common."""
    n = max(1, round(TOP * len(reference)))
    ours, theirs = (np.argpartition(scores, -n)[-n:] for scores in (A, reference))
    return len(np.intersect1d(ours, theirs)) / n
