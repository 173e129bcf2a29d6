"""Score a data set on every runtime of this machine and compare with numpy in float32.

    python -m studies runtimes model.safetensors people

AUROC is over all frames, online and not smoothed; `moved` is its change in points. `top 1 %` is the
share of the highest-scoring windows that are the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stepvad.cli.terminal import print_table, progress_bars
from stepvad.config import Engine
from stepvad.detector import Detector
from stepvad.errors import Report, silent
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.model.engines import ENGINES, usable

COLUMNS = ("runtime", "AUROC", "moved", "rank corr.", "top 1 %", "deviation", "seconds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path, help="data set: poses under pose, labels under gt")
    parser.add_argument("--runtimes", nargs="+", choices=ENGINES, help="by default all")
    given = parser.parse_args(arguments)
    detector = Detector.load(given.model)
    with progress_bars() as report:
        lines = [*agreement(detector, open_dataset(given.data), given.runtimes, report=report)]
    rows = [
        [
            line.engine,
            f"{100 * line.auroc:.3f}",
            f"{line.moved:+.3f}",
            f"{line.rank_correlation:.6f}",
            f"{100 * line.top:.1f}",
            f"{line.deviation:.6f}",
            f"{line.seconds:.1f}",
        ]
        for line in lines
    ]
    print_table(f"{given.model.name} on {given.data.name}", COLUMNS, rows)


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
    here = [engine for engine in ENGINES if usable(engine)]
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
    clips = protocol.score_clips(detector.with_engine(engine), dataset, report=report)
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
