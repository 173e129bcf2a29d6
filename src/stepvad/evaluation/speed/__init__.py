"""Speed of scoring, compared with the best the machine can do (Supp. C, runtime)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from stepvad.evaluation.speed.subjects import (
    ScoreArray,
    SubjectKind,
    TimedSubject,
    raw_windows,
    subjects,
)
from stepvad.evaluation.speed.worker import TimedWorker
from stepvad.model import modelfile
from stepvad.progress import Progress, Report, silent

__all__ = [
    "PAPER",
    "PEOPLE",
    "THREADS",
    "SpeedResult",
    "TimedSubject",
    "compare",
    "run",
    "subjects",
]

PEOPLE = (1, 10, 50, 100, 500, 4096)
THREADS = (1, 2)
PAPER = {1: (0.86, 21.5), 10: (0.93, 22.8), 50: (0.97, 32.6), 100: (1.62, 44.9), 500: (7.45, 143.2)}
"""People to milliseconds and megabytes of the paper's implementation on a GTX 1080 (Supp. C)."""
FEW_FROM = 1000
"""From this many windows on, only a third of the readings is taken, but at least three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedResult:
    """Timing of one subject at one number of people and threads, relative to the others."""

    subject: str
    kind: SubjectKind
    precision: str
    threads: int
    people: int
    median_s: float
    """Median time for all windows, in seconds; the quartiles follow."""
    low_s: float
    high_s: float
    of_limit: float
    """Time of the fastest library's bare products in this precision, divided by this time.

    This and the other ratios are medians of the ratios within each round of readings.
    """
    of_own: float
    """The same for the products of its own library."""
    times_naive: float
    """Speed-up over passing every window as L rows through the training network."""
    memory_mb: float
    """Peak memory of model and scoring, excluding the libraries."""
    deviation: float
    """Largest difference from numpy's scores in float32, as a share of their spread."""
    rank_correlation: float
    """Spearman's, with numpy's scores in float32."""


def run(
    model: Path,
    *,
    people: Sequence[int] = PEOPLE,
    threads: Sequence[int] = THREADS,
    repeats: int = 9,
    report: Report = silent,
) -> list[SpeedResult]:
    """Time all subjects for each number of threads and people."""
    lines: list[SpeedResult] = []
    chosen = list(subjects(ranges=modelfile.read(model).ranges is not None))
    for number in threads:
        lines += compare(model, chosen, people, threads=number, repeats=repeats, report=report)
    return lines


def compare(
    model: Path,
    chosen: Sequence[TimedSubject],
    people: Sequence[int],
    *,
    threads: int = 1,
    repeats: int = 9,
    report: Report = silent,
) -> Iterator[SpeedResult]:
    """Time subjects side by side, each in its own process, taking turns for every reading.

    Load on the machine thus affects all of them alike, and idle threads of one do not slow down
    another.
    """
    x = raw_windows(model, max(people))
    workers = [TimedWorker.start(subject, model, threads) for subject in chosen]
    try:
        for N in sorted(people):
            loaded = [worker.load(x[:N]) for worker in workers]
            rounds = max(3, repeats // 3) if N >= FEW_FROM else repeats
            readings = np.empty((rounds, len(workers)))
            for done in range(rounds):
                report(Progress("timing", done, rounds, f"{N} people, threads: {threads}"))
                readings[done] = [worker.reading() for worker in workers]
            yield from _lines(chosen, N, threads, readings, loaded)
    finally:
        for worker in workers:
            worker.stop()


def _lines(
    chosen: Sequence[TimedSubject],
    N: int,
    threads: int,
    readings: NDArray[np.float64],
    loaded: Sequence[tuple[ScoreArray | None, float]],
) -> Iterator[SpeedResult]:
    """Yield the figures of every subject, relative to the others."""
    quartiles = np.quantile(readings, [0.25, 0.5, 0.75], axis=0).T
    column = {subject: i for i, subject in enumerate(chosen)}
    scores = {subject: A for subject, (A, _) in zip(chosen, loaded, strict=True)}
    limit: dict[str, TimedSubject] = {}
    for subject in sorted(chosen, key=lambda subject: -quartiles[column[subject], 1]):
        if subject.kind == "bare":
            limit[subject.precision] = subject  # the fastest comes last

    def ratio(other: TimedSubject | None, subject: TimedSubject) -> float:
        """The median ratio of another's time to this one's, per reading, to cancel drift."""
        if other not in column:
            return math.nan
        return float(np.median(readings[:, column[other]] / readings[:, column[subject]]))

    for subject, (low, median, high), (A, memory) in zip(chosen, quartiles, loaded, strict=True):
        deviation, correlation = _deviation(A, scores.get(TimedSubject("engine", "numpy")))
        yield SpeedResult(
            subject=subject.name,
            kind=subject.kind,
            precision=subject.precision,
            threads=threads,
            people=N,
            median_s=float(median),
            low_s=float(low),
            high_s=float(high),
            of_limit=ratio(limit.get(subject.precision), subject),
            of_own=ratio(TimedSubject("bare", subject.engine), subject),
            times_naive=ratio(TimedSubject("naive", "torch"), subject),
            memory_mb=memory,
            deviation=deviation,
            rank_correlation=correlation,
        )


def _deviation(A: ScoreArray | None, reference: ScoreArray | None) -> tuple[float, float]:
    if A is None or reference is None:
        return math.nan, math.nan
    largest = float(np.abs(A - reference).max()) / (float(reference.std()) or 1.0)
    return largest, math.nan if len(A) < 2 else float(spearmanr(A, reference).statistic)
