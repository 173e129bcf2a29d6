"""Split normal footage at random, calibrate on one part and count false events on the rest.

    python -m studies promises people --fps 25 --splits 30

A promise is kept if the unseen part has no more events per hour than promised. Also lists how many
true events of the test clips are found at these thresholds and at two common choices: the highest
score of the training clips, and the 99th percentile of normal frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stepvad.cli.options import read_poses
from stepvad.cli.terminal import print_table, progress_bars
from stepvad.config import Compute, Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, silent
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.events.calibration import RULES
from stepvad.events.rules import Rules
from stepvad.events.threshold import Counted, NormalClip, levels_for, threshold_for
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import frame_scores
from stepvad.poses import Clip
from studies import fits
from studies.measures.event_recall import WatchedClip

COLUMNS = ("promised per hour", "kept", "observed", "95 %", "threshold", "by tail", "refused")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("data", type=Path, help="data set: poses under pose, labels under gt")
    parser.add_argument("--normal", type=Path, nargs="+", help="by default half of the training")
    parser.add_argument("--rates", type=fits.listed(float), default=(2.0, 1.0, 0.5, 0.2, 0.1))
    parser.add_argument("--splits", type=int, default=40, help="number of random splits")
    parser.add_argument("--share", type=float, default=0.3, help="of the footage to calibrate on")
    parser.add_argument("--fps", type=float, help="rate of clips that do not state one")
    parser.add_argument("--K", type=int, default=48)
    fits.add_network(parser)
    given = parser.parse_args(arguments)
    fps, share, splits = given.fps, given.share, given.splits
    config = fits.config_of(given, K=given.K)
    with progress_bars() as report:
        measured = measure(
            open_dataset(given.data),
            [*read_poses(given.normal, "auto", report, fps=fps)] if given.normal else None,
            config,
            fps=fps,
            compute=Compute(runtime=given.runtime),
            report=report,
        )
        lines = keep_promises(measured.counted, given.rates, splits=splits, share=share)
    hours = measured.counted.total_hours
    title = f"{hours:.3g} hours of normal footage, {100 * share:g} % to calibrate, {splits} splits"
    print_table(title, COLUMNS, [_cells(line) for line in lines])
    chosen = [(f"promised {line.rate:g} per hour", line.threshold) for line in lines]
    chosen += [("highest score in training", measured.highest), ("99 % of frames", measured.p99)]
    found = [(words, measured.found(value)) for words, value in chosen if value == value]
    columns = ("threshold", "value", "true events found", "false events per hour")
    print_table("what thresholds find", columns, [_found(words, one) for words, one in found])


def _cells(line: PromiseResult) -> list[str]:
    if not line.promised:
        return [f"{line.rate:g}", "-", "-", "-", "-", "-", f"{line.refused}"]
    low, high = line.interval
    return [
        f"{line.rate:g}",
        f"{100 * line.kept:.0f} %",
        f"{line.observed:.3f}",
        f"{low:.2f} to {high:.2f}",
        f"{line.threshold:.2f}",
        f"{100 * line.tail:.0f} %",
        f"{line.refused}",
    ]


def _found(words: str, found: Found) -> list[str]:
    return [
        words,
        f"{found.threshold:.2f}",
        f"{100 * found.recall:.1f} %",
        f"{found.false_per_hour:.2f}",
    ]


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """One promised rate over many splits of the footage."""

    rate: float
    promised: int
    """Number of splits in which the footage supported the promise."""
    refused: int
    kept: float
    """Share of promises for which the unseen part has no more events than promised."""
    observed: float
    """Events per hour over all unseen parts."""
    interval: tuple[float, float]
    """Central 95 % of the rates of the unseen parts."""
    threshold: float
    """Median over splits."""
    tail: float
    """Share of promises that required extrapolating the tail."""


def keep_promises(
    counted: Counted,
    rates: Sequence[float],
    *,
    splits: int = 40,
    share: float = 0.3,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[PromiseResult]:
    """Calibrate on a random share of the blocks, and count events on the others."""
    return [
        _line(counted, rate, splits=splits, share=share, confidence=confidence, seed=seed)
        for rate in rates
    ]


def _line(
    counted: Counted, rate: float, *, splits: int, share: float, confidence: float, seed: int
) -> PromiseResult:
    rng = np.random.default_rng(seed)
    thresholds, observed, hours, tails = [], [], [], []
    for _ in range(splits):
        order = rng.permutation(len(counted.hours))
        seen, unseen = (
            replace(counted, events=counted.events[rows], hours=counted.hours[rows])
            for rows in np.split(order, [round(share * len(order))])
        )
        try:
            threshold = threshold_for(seen, rate, confidence=confidence)
        except DataError:
            continue
        thresholds.append(threshold.value)
        tails.append(threshold.how == "tail")
        observed.append(unseen.at(threshold.value))
        hours.append(unseen.total_hours)
    if not thresholds:
        nothing = float("nan")
        return PromiseResult(
            rate, 0, splits, nothing, nothing, (nothing, nothing), nothing, nothing
        )
    events, exposure = np.array(observed), np.array(hours)
    low, high = np.quantile(events / exposure, (0.025, 0.975))
    return PromiseResult(
        rate=rate,
        promised=len(thresholds),
        refused=splits - len(thresholds),
        kept=float((events <= rate * exposure).mean()),
        observed=float(events.sum() / exposure.sum()),
        interval=(float(low), float(high)),
        threshold=float(np.median(thresholds)),
        tail=float(np.mean(tails)),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """Recall and false alarms of one threshold."""

    threshold: float
    recall: float
    """Share of the true events that overlap a detected event."""
    false_per_hour: float
    """Events per hour of normal footage."""


def at_threshold(
    threshold: float,
    normal: Counted,
    test: Sequence[tuple[NormalClip, FrameLabels]],
    rules: Rules,
    T: int,
) -> Found:
    """Recall on labelled clips and false events on normal footage at one threshold.

    Windows that show a true event may end up to T frames after it.
    """
    chosen = replace(rules, threshold=threshold)
    hits = [
        hit
        for clip, labels in test
        for hit in WatchedClip(clip.windows, labels, clip.fps).found(
            labels.abnormal, chosen, late=T
        )
    ]
    recall = float(np.mean(hits)) if hits else float("nan")
    return Found(threshold, recall, normal.at(threshold) / normal.total_hours)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Results of a fit: event counts on unseen normal footage, and scored labelled clips."""

    counted: Counted
    test: Sequence[tuple[NormalClip, FrameLabels]]
    T: int
    highest: float
    """Highest score of the training clips."""
    p99: float
    """99th percentile of the scores of normal frames."""

    def found(self, threshold: float) -> Found:
        """Recall and false alarms of a threshold."""
        return at_threshold(threshold, self.counted, self.test, RULES, self.T)


def measure(
    dataset: Dataset,
    normal: Sequence[Clip] | None,
    config: Config,
    *,
    fps: float | None = None,
    compute: Compute = Compute(),
    report: Report = silent,
) -> Measured:
    """Fit on the training clips, or on half of them if there is no other normal footage."""
    train = [*dataset.train_clips()]
    if normal is None:
        order = np.random.default_rng(config.seed).permutation(len(train))
        half = len(train) // 2
        normal, train = ([train[i] for i in some] for some in (order[:half], order[half:]))
    detector = Detector.fit(train, config, report=report, compute=compute)

    def scored(clip: Clip) -> NormalClip:
        scores = detector.score(clip, report=report)
        return NormalClip(scores.windows, clip.n_frames, clip.rate(fps))

    clips = [scored(clip) for clip in normal]
    frames = np.concatenate([frame_scores(c.windows, c.n_frames, config.T) for c in clips])
    levels = levels_for(clips, RULES)
    return Measured(
        counted=Counted.from_clips(clips, levels, RULES),
        test=[(scored(clip), labels) for clip, labels in dataset.test_clips()],
        T=config.T,
        highest=max(float(scored(clip).windows.A.max(initial=0.0)) for clip in train),
        p99=float(np.nanpercentile(frames, 99.0)),
    )
