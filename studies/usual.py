"""Measure the nearest usual motion: frames, events found per false alarm, and each of its views.

    python -m studies usual HR-ShanghaiTech --split hr --variants -o usual
    python -m studies usual HR-Avenue --split hr --method usual-place --variants -o usual-avenue

A quarter of the training clips is left out of every fit, and false alarms are counted there. With
--variants, the first seed is also fitted with averages of any number of tracks, and with single
windows in the place of averages. Writes usual.md, usual.csv and usual.json into the directory of
-o.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from stepvad.cli.terminal import json_text, print_table, progress_bars, say, write_table
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import Progress, Report, silent
from stepvad.evaluation import custom, protocol
from stepvad.evaluation.baselines import Fitted
from stepvad.evaluation.comparison import VARIANTS, Trials, experiments
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.metrics import (
    RESAMPLES,
    FrameScores,
    Interval,
    Resampled,
    Spread,
    over_seeds,
    resample,
)
from stepvad.evaluation.protocol import FrameView, ScoredClip
from stepvad.evaluation.trivial import with_scores
from stepvad.files import replacing
from stepvad.formats.labels import FrameLabels
from stepvad.model import usual
from stepvad.model.scoring import Scores, WindowScores, true_runs
from stepvad.model.usual import Centroids
from stepvad.poses import Clip
from studies import fits
from studies.measures.event_recall import RATES, EventsFound, WatchedClip, thresholds_at

COLUMNS = ("data", "score", "AUROC", "over seeds", "smoothed", "over clips", "lead", "lead at 6/h")
HELD_OUT = 4
"""One training clip in so many is held out."""
FEWEST_HOURS = 1 / 6
"""Held-out footage to count false alarms on; with less of it, the test clips are longer."""
LEAD = 1
"""Of `RATES`, the one at which the events found by two scores are compared."""
LIVE_S = 0.2
"""Time constant of the running mean of frame scores that a page could show."""
SINGLE = 5334
"""Single windows of each view that may take the place of at most 2,000 averages."""
LONG_EVENT_S = 1.0
"""A shorter event is hardly longer than the 0.4 s that an alert takes."""
Labelled = tuple[Clip, FrameLabels]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("data", type=Path, nargs="+", help="poses under pose, labels under gt")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="directory for tables")
    parser.add_argument("--method", choices=("usual", "usual-place"), default="usual")
    parser.add_argument("--beside", nargs="*", choices=VARIANTS, default=[], help="methods")
    parser.add_argument("--variants", action="store_true", help="two variants of the fit, too")
    parser.add_argument("--seeds", type=int, default=3, help="fits of every method with chance")
    parser.add_argument("--split", default="full", help="full, hr, st, ub or validation")
    parser.add_argument("--fps", type=float, help="rate of clips that do not state one")
    fits.add_network(parser)
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    trials = Trials(seeds=range(given.seeds), fps=given.fps)
    with progress_bars() as report:
        tables = [
            measure(
                Division.of(custom.opened(data, split=given.split), given.fps),
                (given.method, *given.beside),
                replace(fits.config_of(given), clock=True),
                trials,
                variants=given.variants,
                report=report,
            )
            for data in given.data
        ]
    _show(tables, given.output)


def _show(tables: Sequence[UsualTable], output: Path) -> None:
    columns = [*COLUMNS, *(f"found at {rate:g}/h" for rate in RATES), "over 1 s at 6/h", "normal"]
    rows = [_cells(table, row) for table in tables for row in table.rows]
    print_table("nearest usual motion (%)", columns, rows)
    for suffix in (".md", ".csv"):
        write_table(columns, rows, output / f"usual{suffix}")
    with replacing(output / "usual.json") as file:
        file.write_text(json_text({one.data: asdict(one) for one in tables}) + "\n", "utf-8")
    say(f"written: {output / 'usual'}.md, .csv and .json")


def _cells(table: UsualTable, row: UsualRow) -> list[str]:
    return [
        table.data,
        row.name,
        f"{100 * row.raw.mean:.1f}",
        f"± {100 * row.raw.std:.1f}" if row.raw.n > 1 else "-",
        f"{100 * row.smoothed.mean:.1f}",
        f"{100 * row.interval.low:.1f} to {100 * row.interval.high:.1f}",
        _lead(row.lead),
        _lead(row.lead_found),
        *(f"{100 * share.mean:.0f}" for share in row.found.values()),
        f"{100 * row.found_long.mean:.0f}",
        f"{table.hours:.2g} h, {table.normal}",
    ]


def _lead(lead: Interval | None) -> str:
    if lead is None:
        return "-"
    return f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"


@dataclass(frozen=True, slots=True)
class UsualRow:
    """One score on one data set, means and spreads over seeds."""

    name: str
    raw: Spread
    smoothed: Spread
    interval: Interval
    """Of the smoothed AUROC, over clips."""
    lead: Interval | None
    """Of the first score over this one, smoothed and paired over clips; None for the first."""
    lead_found: Interval | None
    """The same of the events found at the second of `RATES`."""
    found: Mapping[float, Spread]
    """Share of the abnormal events found at each rate of false alarms an hour."""
    found_long: Spread
    """The same of events of more than a second, at the second of `RATES`."""


@dataclass(frozen=True, slots=True)
class UsualTable:
    """All scores on one data set, and where false alarms were counted."""

    data: str
    normal: str
    hours: float
    events: int
    long_events: int
    rows: tuple[UsualRow, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """A data set with clips of known rate, and the normal footage to count false alarms on.

    `dataset` has the training clips that are fitted on. `held_out` are the others; if they are few,
    there are none of them and false alarms are counted in the normal frames of the test clips.
    """

    dataset: Dataset
    test: list[Labelled]
    held_out: list[Labelled]

    @classmethod
    def of(cls, dataset: Dataset, fps: float | None) -> Division:
        """Divide the training clips; `fps` is the rate of clips that do not state one."""

        def known(clip: Clip) -> Clip:
            clip = clip if clip.fps else clip.with_rate(fps)
            return clip.with_rate(clip.rate())

        train = [known(clip) for clip in dataset.train_clips()]
        test = [(known(clip), labels) for clip, labels in dataset.test_clips()]
        learned = [clip for n, clip in enumerate(train) if n % HELD_OUT != HELD_OUT - 1]
        # held-out clips count from their first frame with people
        held = [
            (c, FrameLabels(np.zeros(c.n_frames, bool), np.arange(c.n_frames) >= c.first_frame))
            for c in train[HELD_OUT - 1 :: HELD_OUT]
            if c.tracks
        ]
        if _hours(held) < min(FEWEST_HOURS, _hours(test)):
            learned, held = train, []
        return cls(replace(dataset, train=lambda: learned), test, held)

    @property
    def hours(self) -> float:
        """Hours of normal frames that false alarms are counted in."""
        return _hours(self.held_out or self.test)


def _hours(clips: Sequence[Labelled]) -> float:
    seconds = [(labels.counted & ~labels.abnormal).sum() / clip.rate() for clip, labels in clips]
    return float(sum(seconds)) / 3600


@dataclass(frozen=True, slots=True, eq=False)
class SeedScores:
    """The clips of one division as one fit scored them: the test clips, and those held out."""

    test: list[ScoredClip]
    held_out: list[ScoredClip]

    @classmethod
    def of(cls, fitted: Fitted, division: Division) -> SeedScores:
        """Score all clips."""
        return cls(
            *(
                [_scored(fitted.score(clip), labels) for clip, labels in clips]
                for clips in (division.test, division.held_out)
            )
        )

    def by_columns(self, columns: Sequence[int]) -> SeedScores:
        """The same clips, scored by some of the views alone, or by all."""
        parts = (self.test, self.held_out)
        return SeedScores(*([_by_columns(clip, columns) for clip in clips] for clips in parts))

    def live(self, division: Division) -> SeedScores:
        """The same clips with the running means of their frame scores."""
        parts = ((self.test, division.test), (self.held_out, division.held_out))
        return SeedScores(*([*map(_live, *both)] for both in parts))

    def found(self, division: Division) -> EventsFound:
        """The events of the test clips that are found at each rate of false alarms."""
        test = _watched(self.test, division.test)
        normal = _watched(self.held_out, division.held_out) or test
        return EventsFound.at(test, thresholds_at(normal))


def _watched(scored: Sequence[ScoredClip], clips: Sequence[Labelled]) -> list[WatchedClip]:
    return [
        WatchedClip(one.scores.windows, one.labels, clip.rate())
        for one, (clip, _) in zip(scored, clips, strict=True)
    ]


def measure(
    division: Division,
    methods: Sequence[str],
    config: Config,
    trials: Trials,
    *,
    variants: bool = False,
    report: Report = silent,
) -> UsualTable:
    """Fit and score every method with its seeds, and measure them against the first one."""
    scored: dict[str, list[SeedScores]] = {}
    chosen = experiments(methods, config, trials)
    for name, several in chosen.items():
        for number, experiment in enumerate(several):
            report(Progress("fits", number, len(several), name))
            fitted = experiment.fit(division.dataset)
            scores = SeedScores.of(fitted, division)
            # the score, and those of every view, under the name of the method
            for title, columns in _columns(name, fitted).items():
                one = scores.by_columns(columns)
                scored.setdefault(title, []).append(one)
            if name == methods[0]:
                live = scores.live(division)
                scored.setdefault(f"the same, live mean over {LIVE_S:g} s", []).append(live)
    for title, patched in _variants() if variants else ():
        report(Progress("fits", 0, 1, title))
        with patched:
            fitted = chosen[methods[0]][0].fit(division.dataset)
        scored[f"the same, {title}"] = [SeedScores.of(fitted, division)]
    rows: list[UsualRow] = []
    first: Draws | None = None
    for name, seeds in scored.items():
        report(Progress("measuring", len(rows), len(scored), name))
        row, drawn = _row(name, seeds, division, first)
        first = first or drawn
        rows.append(row)
    clips = _watched(next(iter(scored.values()))[0].test, division.test)
    seconds = EventsFound.at(clips, ()).seconds
    source = "held out" if division.held_out else "test clips"
    counts = (len(seconds), int((seconds > LONG_EVENT_S).sum()))
    return UsualTable(division.dataset.name, source, division.hours, *counts, tuple(rows))


def _variants() -> Iterator[tuple[str, AbstractContextManager[object]]]:
    """Titles of other fits, and what has to be patched meanwhile."""
    yield "averages of any number of tracks", patch.object(usual, "FEWEST_TRACKS", 1)
    yield f"nearest of {SINGLE:,} single windows", patch.object(Centroids, "fit", _single)


def _single(
    z: NDArray[np.float32], track: NDArray[np.int64], fold: NDArray[np.int64], rng: object
) -> Centroids:
    """Single windows `(n, K)` in the place of averages, evenly spaced over the footage."""
    rows = np.linspace(0, len(z), SINGLE, endpoint=False).astype(np.int64)
    return Centroids(z[rows], fold[rows])


def _scored(scores: Scores, labels: FrameLabels) -> ScoredClip:
    return ScoredClip(scores, labels, np.zeros(scores.n_frames, np.int64))


def _columns(name: str, fitted: Fitted) -> dict[str, list[int]]:
    """Titles of a method and of its views alone, with the columns these are the mean of."""
    found: dict[str, list[int]] = {VARIANTS[name][1]: []}
    if isinstance(fitted, Detector) and len(fitted.views) > 1:
        kinds = [view.config.view for view in fitted.views]
        found |= {view.config.view_name: [n] for n, view in enumerate(fitted.views)}
        found["both poses"] = [n for n, kind in enumerate(kinds) if kind == "pose"]
    return found


def _by_columns(clip: ScoredClip, columns: Sequence[int]) -> ScoredClip:
    """A clip scored by some of its views alone, or by all."""
    windows = clip.scores.windows
    A = windows.E[:, columns].mean(axis=1) if columns else windows.A
    return replace(clip, scores=with_scores(clip.scores, A))


def _live(clip: ScoredClip, labelled: Labelled) -> ScoredClip:
    """A clip with the running mean of its frame scores, which begins anew where nobody is."""
    mean, kept = clip.scores.frames.astype(np.float64), 1 - 1 / (LIVE_S * labelled[0].rate())
    for first, end in true_runs(~np.isnan(mean)):
        own = mean[first:end]
        own[:], _ = lfilter([1 - kept], [1, -kept], own, zi=[kept * own[0]])
    # as one person, in every frame with a score
    frame = np.flatnonzero(~np.isnan(mean))
    nothing, ones = np.empty((len(frame), 0), np.float32), np.ones(len(frame), np.float32)
    A = mean[frame].astype(np.float32)
    windows = WindowScores(np.zeros(len(frame), np.int64), frame, ones, nothing, A)
    return replace(clip, scores=replace(clip.scores, windows=windows))


Draws = tuple[Resampled, Resampled]
"""Smoothed AUROC and events found at one rate, of the same draws of clips for every score."""


def _row(
    name: str, several: Sequence[SeedScores], division: Division, first: Draws | None
) -> tuple[UsualRow, Draws]:
    """A row, and its draws of clips."""
    raw, smoothed = (
        FrameScores.of_seeds(
            [
                protocol.frame_scores(one.test, division.dataset, FrameView("latest", is_smoothed))
                for one in several
            ]
        )
        for is_smoothed in (False, True)
    )
    found = [one.found(division) for one in several]
    drawn = (resample(smoothed), _resample_found(found))
    leads = [one.minus(own).interval() for one, own in zip(first or (), drawn, strict=False)]
    shares = np.array([one.shares() for one in found])
    long = [one.hits[LEAD, one.seconds > LONG_EVENT_S].mean() for one in found]
    row = UsualRow(
        name,
        over_seeds(raw.measure_each()),
        over_seeds(smoothed.measure_each()),
        drawn[0].interval(),
        leads[0] if leads else None,
        leads[1] if leads else None,
        {rate: over_seeds(shares[:, n]) for n, rate in enumerate(RATES)},
        over_seeds(long),
    )
    return row, drawn


def _resample_found(found: Sequence[EventsFound]) -> Resampled:
    """The share of events found at one rate, a mean over seeds, for draws of whole clips."""
    one = found[0]
    n, share = one.n_clips, np.full(one.n_clips, 1 / one.n_clips)
    draws = np.random.default_rng(0).multinomial(n, share, size=RESAMPLES)
    # events of each clip, and those found, the mean over seeds, (n,)
    events = np.bincount(one.clip, minlength=n)
    hits = np.mean([np.bincount(own.clip, own.hits[LEAD], n) for own in found], axis=0)
    with np.errstate(invalid="ignore"):
        figures = draws @ hits / (draws @ events)
    return Resampled(float(hits.sum() / events.sum()), figures, tuple(map(str, range(n))))
