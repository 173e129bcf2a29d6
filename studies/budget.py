"""Split normal footage at random, set limits by one part and count the events of the rest.

    python -m studies budget HR-ShanghaiTech --split hr --fps 24

A detector of usual motion is fitted on all training clips, and each clip is scored without its
part. A budget is to be met by the rest, on average; a strict limit must not be exceeded in 95 of
100 splits. Also lists how many true events of the test clips the limits find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stepvad.cli.terminal import print_table, progress_bars
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Progress, Report, silent
from stepvad.evaluation import custom
from stepvad.evaluation.datasets import Dataset
from stepvad.events.calibration import RULES, watched_s
from stepvad.events.ledger import LedgerEntry
from stepvad.events.threshold import duration, limit_of
from stepvad.model.usual import FOLDS
from studies import fits
from studies.measures.event_recall import WatchedClip

COLUMNS = ("budget an hour", "calibrated on", "limit", "raised an hour", "95 % of splits", "found")
STRICT = (*COLUMNS, "kept", "refused")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("data", type=Path, help="data set: poses under pose, labels under gt")
    parser.add_argument("--split", default="full", help="full, hr, st, ub or validation")
    parser.add_argument("--fps", type=float, help="rate of clips that do not state one")
    parser.add_argument("--rates", type=fits.listed(float), default=(1.0, 6.0, 60.0))
    parser.add_argument("--shares", type=fits.listed(float), default=(0.3, 0.03))
    parser.add_argument("--splits", type=int, default=40, help="number of random splits")
    given = parser.parse_args(arguments)
    with progress_bars() as report:
        footage = measure(custom.opened(given.data, split=given.split), given.fps, report=report)
    cases = [(share, rate) for share in given.shares for rate in given.rates]
    hours = sum(one.watched_s for one in footage.normal) / 3600
    title = f"{duration(hours)} of normal footage, {given.splits} splits"
    for columns, strict in ((COLUMNS, False), (STRICT, True)):
        words = f"{title}, {'strict' if strict else 'budgets'}"
        rows = [
            footage.splits(rate, share, given.splits, strict=strict).cells(strict)
            for share, rate in cases
        ]
        print_table(words, columns, rows)


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """One rate over many splits of the footage."""

    rate: float
    hours: float
    """Footage that sets a limit, in the mean."""
    limits: list[float]
    raised: list[float]
    """Events an hour of the rest."""
    found: float
    """Share of the true events at the median limit."""
    refused: int

    def cells(self, strict: bool) -> list[str]:
        """The cells of its row."""
        if not self.limits:
            return [f"{self.rate:g}", duration(self.hours), *"-----", f"{self.refused}"]
        low, high = np.quantile(self.raised, (0.025, 0.975))
        cells = [
            f"{self.rate:g}",
            duration(self.hours),
            f"{np.median(self.limits):.2f}",
            f"{np.mean(self.raised):.2g}",
            f"{low:.2g} to {high:.2g}",
            f"{100 * self.found:.0f} %",
        ]
        kept = np.mean(np.array(self.raised) <= self.rate)
        return [*cells, f"{100 * kept:.0f} %", f"{self.refused}"] if strict else cells


@dataclass(frozen=True, slots=True)
class Footage:
    """The peaks of normal clips, and the scored clips with true events."""

    normal: list[LedgerEntry]
    test: list[WatchedClip]

    def splits(self, rate: float, share: float, n: int, *, strict: bool) -> BudgetResult:
        """Set the limit by a random share of the clips, and count the events of the others."""
        rng, limits, raised, hours = np.random.default_rng(0), [], [], []
        for _ in range(n):
            order = rng.permutation(len(self.normal)).tolist()
            cut = max(round(share * len(order)), 1)
            known, rest = ([self.normal[i] for i in some] for some in (order[:cut], order[cut:]))
            hours.append(sum(one.watched_s for one in known) / 3600)
            try:
                limit = limit_of(known, 24 * rate, strict=strict).value
            except DataError:  # strict, and too little
                continue
            limits.append(limit)
            events = sum(peak >= limit for one in rest for peak in one.quiet)
            raised.append(events / (sum(one.watched_s for one in rest) / 3600))
        found = self.found(float(np.median(limits))) if limits else 0.0
        return BudgetResult(rate, float(np.mean(hours)), limits, raised, found, n - len(limits))

    def found(self, limit: float) -> float:
        """Share of the true events that an alert overlaps."""
        rules = replace(RULES, threshold=limit)
        hits = [hit for one in self.test for hit in one.found(one.labels.abnormal, rules)]
        return float(np.mean(hits)) if hits else float("nan")


def measure(dataset: Dataset, fps: float | None, *, report: Report = silent) -> Footage:
    """Fit on the training clips, and score each without its part."""
    train = [clip.with_rate(fps) for clip in dataset.train_clips()]
    folds = [number % FOLDS for number in range(len(train))]
    settings = Config.usual(train[0].rate())
    detector = Detector.fit(train, settings, folds=folds, report=report)
    unseen = [detector.without(fold) for fold in range(FOLDS)]
    normal = []
    for number, (clip, fold) in enumerate(zip(train, folds, strict=True)):
        report(Progress("scoring", number, len(train), clip.name))
        windows = unseen[fold].score(clip).windows
        normal.append(
            LedgerEntry.from_windows(windows, clip.rate(), RULES, watched_s=watched_s(clip))
        )
    test = [(clip.with_rate(fps), labels) for clip, labels in dataset.test_clips()]
    return Footage(
        normal, [WatchedClip(detector.score(c).windows, truth, c.rate()) for c, truth in test]
    )
