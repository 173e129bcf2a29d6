"""The study of views: each alone and all joined, beside the paper's detector and trivial scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from stepvad import executors
from stepvad.config import Config, View
from stepvad.errors import ConfigError
from stepvad.evaluation import eventrecall, intervals, protocol, runs
from stepvad.evaluation.comparison import VARIANTS
from stepvad.evaluation.datasets import Split
from stepvad.evaluation.densities import TITLES as DENSITIES
from stepvad.evaluation.densities import Density
from stepvad.evaluation.eventrecall import RATES, WatchedClip
from stepvad.evaluation.frames import FrameScores
from stepvad.evaluation.intervals import Interval, Resampled, Spread
from stepvad.evaluation.protocol import FrameView, ScoredClip, Selection
from stepvad.evaluation.runs import ExperimentRun
from stepvad.evaluation.studies import Fits
from stepvad.evaluation.trivial import with_scores
from stepvad.evaluation.viewruns import (
    Division,
    NormalFootage,
    ViewFit,
    ViewPlace,
    ViewTask,
    run_view_fit,
)
from stepvad.files.atomic import check_writable, remove_leftovers
from stepvad.progress import Progress, Report, silent

PAPER = "STEP, one view"
JOINED = "views joined"
CLASS_RATE = RATES[1]
"""False alarms per hour at which classes are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewScope:
    """Parameters of the study."""

    base: Config
    """Settings of the paper's detector; views take their own lengths and widths."""
    seeds: tuple[int, ...]
    views: tuple[View, ...] = get_args(View)
    densities: tuple[Density, ...] = ("step",)
    data: tuple[Path | str, ...]
    split: Split = "full"
    fps: float | None = None
    """Rate of clips that do not state one."""
    frames: Selection = "all"

    def __post_init__(self) -> None:
        """Reject unknown densities, and a list without the energy model."""
        if "step" not in self.densities or not {*self.densities} <= {*get_args(Density)}:
            raise ConfigError(
                f"densities: expected step, optionally with knn or gmm, got "
                f"{', '.join(self.densities)}"
            )
        self.base.with_views(self.views, 25.0)  # raises if they are not views

    def fits(self) -> list[ViewFit]:
        """All fits; those with another density come last, because they need the fitted views."""
        seeded = [replace(self.base, seed=seed) for seed in self.seeds]
        found = [ViewFit(what="step", config=config) for config in seeded]
        found += [self._joined(config, "step") for config in seeded]
        found += [ViewFit(what="knn", config=seeded[0])]
        found += [ViewFit(what="trivial", config=config) for config in seeded]
        if "knn" in self.densities:  # no chance in it but that of the projection, which has none
            found.append(self._joined(seeded[0], "knn"))
        if "gmm" in self.densities:
            found += [self._joined(config, "gmm") for config in seeded]
        return found

    def _joined(self, config: Config, density: Density) -> ViewFit:
        return ViewFit(what="views", config=config, views=self.views, density=density)


@dataclass(frozen=True, slots=True)
class FrameAuroc:
    """AUROC over frames: spread over seeds, interval over clips, lead over the paper's detector."""

    auroc: Spread
    interval: Interval
    difference: Interval | None
    """Paired over clips; None for the paper's detector."""
    by_class: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ViewRow:
    """One score on one data set."""

    name: str
    raw: FrameAuroc
    smoothed: FrameAuroc
    found: Mapping[float, Spread]
    """Share of the abnormal events found at each rate of false alarms per hour, over seeds."""
    found_by_class: Mapping[str, float]
    """The same for each class, at `CLASS_RATE`."""


@dataclass(frozen=True, slots=True)
class ViewTable:
    """All scores on one data set, and where false alarms were counted."""

    data: str
    normal: NormalFootage
    hours: float
    frame_sigma: float
    rows: tuple[ViewRow, ...]


def run(scope: ViewScope, fits: Fits, *, report: Report = silent) -> list[ViewTable]:
    """Run the study on every data set; stored results are reused."""
    return [_table(scope, data, fits, report) for data in scope.data]


def _table(scope: ViewScope, data: Path | str, fits: Fits, report: Report) -> ViewTable:
    place = ViewPlace(
        data=data,
        results=fits.results.absolute(),
        split=scope.split,
        fps=scope.fps,
        compute=fits.compute,
    )
    division = place.divide()
    digest = place.digest(division)
    chosen = scope.fits()
    _run_missing(chosen, place, digest, fits, report)
    clips = division.scored
    read = {fit: runs.read(fit.file(place, digest), clips) for fit in chosen}
    series = _series(read)
    rows: list[ViewRow] = []
    paper: tuple[Resampled, ...] = ()
    for done, (name, several) in enumerate(series.items()):
        report(Progress("measuring", done, len(series), name))
        row, drawn = _row(name, several, division, scope.frames, paper)
        paper = paper or drawn
        rows.append(row)
    report(Progress("measuring", len(series), len(series)))
    return ViewTable(
        division.dataset.name,
        division.source,
        division.hours,
        division.dataset.frame_sigma,
        tuple(rows),
    )


def _run_missing(
    fits: Sequence[ViewFit], place: ViewPlace, digest: str, how: Fits, report: Report
) -> None:
    """Run the fits without a result; those with another density after the views are fitted."""
    place.results.mkdir(parents=True, exist_ok=True)
    remove_leftovers(place.results)
    missing = [fit for fit in fits if not fit.file(place, digest).exists()]
    if missing:
        check_writable(place.results)
    done = len(fits) - len(missing)
    report(Progress("fits", done, len(fits)))
    for last in (False, True):
        tasks = [ViewTask(fit, place, digest) for fit in missing if (fit.density != "step") == last]
        for finished in executors.run(run_view_fit, tasks, jobs=how.jobs, executor=how.executor):
            done += finished
            report(Progress("fits", done, len(fits)))


def _series(read: Mapping[ViewFit, ExperimentRun]) -> dict[str, list[list[ScoredClip]]]:
    """The scored clips of every score by name, one list per seed; the paper's detector first."""
    found: dict[str, list[list[ScoredClip]]] = {}
    for fit, run in read.items():
        for name, clips in _scores_of(fit, run):
            found.setdefault(name, []).append(clips)
    return found


def _scores_of(fit: ViewFit, run: ExperimentRun) -> Iterator[tuple[str, list[ScoredClip]]]:
    """The score of a fit, and those of its columns."""
    words = "" if fit.density == "step" else f", {DENSITIES[fit.density]}"
    titles = {"step": PAPER, "knn": VARIANTS["knn"][1], "views": JOINED}
    if fit.what != "trivial":
        yield titles[fit.what] + words, run.clips
    for number, column in enumerate(run.facts["columns"]):
        alone = [
            replace(clip, scores=with_scores(clip.scores, clip.scores.windows.E[:, number]))
            for clip in run.clips
        ]
        yield column + words, alone


def _row(
    name: str,
    several: Sequence[Sequence[ScoredClip]],
    division: Division,
    frames: Selection,
    paper: tuple[Resampled, ...],
) -> tuple[ViewRow, tuple[Resampled, ...]]:
    """A row, and its draws of clips without and with smoothing."""
    n_test = len(division.test)
    figures, draws = [], []
    for number, smoothed in enumerate((False, True)):
        view = FrameView("latest", smoothed, frames)
        scores = FrameScores.of_seeds(
            [protocol.frame_scores(clips[:n_test], division.dataset, view) for clips in several]
        )
        draws.append(intervals.resample(scores))
        lead = draws[-1].minus(paper[number]).interval() if paper else None
        spread = intervals.over_seeds(scores.measure_each())
        figures.append(FrameAuroc(spread, draws[-1].interval(), lead, scores.by_class()))
    found, by_class = _found(several, division)
    return ViewRow(name, figures[0], figures[1], found, by_class), tuple(draws)


def _found(
    several: Sequence[Sequence[ScoredClip]], division: Division
) -> tuple[dict[float, Spread], dict[str, float]]:
    """The share of events found at each rate, and of each class at `CLASS_RATE`; over seeds."""
    fps = [clip.rate() for clip, _ in division.scored]
    n_test, each, by_class = len(division.test), [], []
    names = dict.fromkeys(name for _, labels in division.test for name in labels.classes)
    for clips in several:
        watched = [
            WatchedClip(clip.scores.windows, clip.labels, rate)
            for clip, rate in zip(clips, fps, strict=True)
        ]
        test, normal = watched[:n_test], watched[n_test:] or watched
        at = dict(zip(RATES, eventrecall.thresholds_at(normal), strict=True))
        each.append({rate: eventrecall.recall(test, value) for rate, value in at.items()})
        by_class.append({name: eventrecall.recall(test, at[CLASS_RATE], name) for name in names})
    return (
        {rate: intervals.over_seeds(one[rate] for one in each) for rate in RATES},
        {name: intervals.over_seeds(one[name] for one in by_class).mean for name in names},
    )
