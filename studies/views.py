"""Measure several views of a window, each alone and joined; events found per false alarm.

    python -m studies views people --views pose,motion,place --densities step,knn -o views

Writes views.md, views.csv and views.json into the directory of -o; results already in the directory
of --results are reused.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from stepvad import executors
from stepvad.cli.terminal import json_text, print_table, progress_bars, say, write_table
from stepvad.config import Compute, Config, Method, ViewKind
from stepvad.detector import Detector, rank_scores
from stepvad.errors import ConfigError, DataError, Progress, Report, silent
from stepvad.evaluation import comparison, custom, protocol
from stepvad.evaluation.baselines import Fitted, Neighbours
from stepvad.evaluation.comparison import VARIANTS
from stepvad.evaluation.datasets import Dataset, Split
from stepvad.evaluation.experiment import Experiment, code_version, result_suffix
from stepvad.evaluation.metrics import (
    FrameScores,
    Interval,
    Resampled,
    Spread,
    over_seeds,
    resample,
)
from stepvad.evaluation.protocol import FrameView, ScoredClip, Selection
from stepvad.evaluation.runs import ExperimentRun, data_changed, digest_of, read_run, write_run
from stepvad.evaluation.trivial import TITLES, BodyWindows, Places, Trivial, with_scores
from stepvad.files import check_writable, remove_leftovers, replacing
from stepvad.formats.labels import FrameLabels
from stepvad.model.footage import hold_out
from stepvad.model.scoring import BATCH, Scores, View
from stepvad.poses import Clip
from stepvad.windows.runs import cut_in_pieces
from studies import fits
from studies.fits import Fits
from studies.measures.event_recall import RATES, WatchedClip, recall, thresholds_at
from studies.measures.mixture import Mixture

COLUMNS = (
    *("data", "score", "AUROC", "over seeds", "difference"),
    *("smoothed", "difference, smoothed"),
)
FOOTAGE = {"held-out": "held out", "test": "test clips"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    fits.add_sweep(parser)
    parser.add_argument("--views", type=fits.listed(str), default=get_args(ViewKind))
    parser.add_argument("--densities", type=fits.listed(str), default=("step",))
    parser.add_argument("--fps", type=float, help="rate of clips that do not state one")
    parser.add_argument("--T", type=int, default=12, help="frames in a window of the paper")
    parser.add_argument("--K", type=int, default=48, help="components of the paper")
    given = parser.parse_args(arguments)
    chosen = ViewScope(
        base=fits.config_of(given, T=given.T, K=given.K),
        seeds=tuple(range(given.seeds)),
        views=given.views,
        densities=given.densities,
        data=tuple(given.data),
        split=given.split,
        fps=given.fps,
        frames=given.frames,
    )
    given.output.mkdir(parents=True, exist_ok=True)
    with progress_bars() as report:
        tables = run(chosen, Fits.of(given), report=report)
    _show(tables, given.output)


def _show(tables: Sequence[ViewTable], output: Path) -> None:
    rates = [*tables[0].rows[0].found]
    columns = [*COLUMNS, *(f"found at {rate:g}/h" for rate in rates), "normal footage"]
    rows = [_cells(table, row) for table in tables for row in table.rows]
    print_table("views (%)", columns, rows)
    for suffix in (".md", ".csv"):
        write_table(columns, rows, output / f"views{suffix}")
    for table in tables:
        _print_classes(table)
    facts = {table.data: asdict(table) for table in tables}
    with replacing(output / "views.json") as file:
        file.write_text(json_text(facts) + "\n", "utf-8")
    say(f"written: {output / 'views'}.md, .csv and .json")


def _cells(table: ViewTable, row: ViewRow) -> list[str]:
    return [
        table.data,
        row.name,
        f"{100 * row.raw.auroc.mean:.1f}",
        f"± {100 * row.raw.auroc.std:.1f}" if row.raw.auroc.n > 1 else "-",
        _difference(row.raw),
        f"{100 * row.smoothed.auroc.mean:.1f}",
        _difference(row.smoothed),
        *(f"{100 * share.mean:.0f}" for share in row.found.values()),
        f"{table.hours:.2g} h, {FOOTAGE[table.normal]}",
    ]


def _difference(figure: FrameAuroc) -> str:
    lead = figure.difference
    if lead is None:
        return "-"
    return f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"


def _print_classes(table: ViewTable) -> None:
    """Print AUROC and found events of each class, if the data set knows classes."""
    names = [*table.rows[0].raw.by_class]
    if names:
        title = f"{table.data}: AUROC, events found at {CLASS_RATE:g}/h, by class (%)"
        print_table(title, ["score", *names], [_classes(row, names) for row in table.rows])


def _classes(row: ViewRow, names: Sequence[str]) -> list[str]:
    figures = [(row.raw.by_class[name], row.found_by_class[name]) for name in names]
    return [row.name, *(f"{100 * auroc:.1f}, {100 * found:.0f}" for auroc, found in figures)]


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
    views: tuple[ViewKind, ...] = get_args(ViewKind)
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
        self.base.per_view(self.views, 25.0)  # raises if they are not views

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
    read = {fit: read_run(fit.file(place, digest), clips) for fit in chosen}
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
        division.dataset.smoothing.frame_sigma,
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
        draws.append(resample(scores))
        lead = draws[-1].minus(paper[number]).interval() if paper else None
        spread = over_seeds(scores.measure_each())
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
        at = dict(zip(RATES, thresholds_at(normal), strict=True))
        each.append({rate: recall(test, value) for rate, value in at.items()})
        by_class.append({name: recall(test, at[CLASS_RATE], name) for name in names})
    return (
        {rate: over_seeds(one[rate] for one in each) for rate in RATES},
        {name: over_seeds(one[name] for one in by_class).mean for name in names},
    )


FEWEST_HOURS = 1 / 6
"""Held-out footage to count false alarms on; with less of it, the test clips are longer."""
NormalFootage = Literal["held-out", "test"]
Labelled = tuple[Clip, FrameLabels]


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
        learned, others = hold_out(train)
        held = [
            (c, FrameLabels(np.zeros(c.n_frames, bool), np.arange(c.n_frames) >= c.first_frame))
            for c in others
            if c.tracks
        ]
        if _hours(held) < min(FEWEST_HOURS, _hours(test)):
            learned, held = train, []
        clips = [clip for clip, _ in test]
        own = replace(dataset, train=lambda: learned, test=lambda: clips)
        return cls(own, test, held)

    @property
    def source(self) -> NormalFootage:
        """Where false alarms are counted."""
        return "held-out" if self.held_out else "test"

    @property
    def hours(self) -> float:
        """Hours of normal frames that false alarms are counted in."""
        return _hours(self.held_out or self.test)

    @property
    def scored(self) -> list[Labelled]:
        """All clips to score: those of the test, then those held out, under other names."""
        held = [
            (replace(clip, name=f"held out: {clip.name}"), labels) for clip, labels in self.held_out
        ]
        return [*self.test, *held]


def _hours(clips: Sequence[Labelled]) -> float:
    seconds = [(labels.counted & ~labels.abnormal).sum() / clip.rate() for clip, labels in clips]
    return float(sum(seconds)) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlace:
    """A data set that other processes can open, and the directory of its results."""

    data: Path | str
    results: Path
    split: Split = "full"
    fps: float | None = None
    compute: Compute = Compute()

    def divide(self) -> Division:
        """Open the data set and divide its training clips."""
        return Division.of(custom.opened(self.data, split=self.split), self.fps)

    def digest(self, division: Division) -> str:
        """A digest of all clips, their labels and rate, and of how they are divided."""
        every = digest_of(custom.opened(self.data, split=self.split))
        return f"{every} {self.fps} {division.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFit:
    """One fit: the paper's detector, its kNN, the joined views, or nothing but trivial scores."""

    what: Literal["step", "knn", "views", "trivial"]
    config: Config
    """Settings of the paper's detector, with the seed."""
    views: tuple[ViewKind, ...] = field(default=())
    density: Density = "step"

    def file(self, place: ViewPlace, digest: str, suffix: str = ".parquet") -> Path:
        """Its result on data with this digest, by this code and its settings of views."""
        told = (self.what, asdict(self.config), self._views(), self.density)
        words = json.dumps(["views", *told, digest, code_version()], sort_keys=True)
        name = hashlib.sha256(words.encode()).hexdigest()[:20] + self._engine(place.compute)
        return place.results / f"{name}{suffix}"

    def _engine(self, compute: Compute) -> str:
        if self.what == "trivial":
            return ""
        method: Method = "knn" if self.what == "knn" else "step"
        return result_suffix(method, compute, self.config)

    def _views(self) -> list[dict[str, object]]:
        """Settings of the views at a slow and at a fast camera."""
        rates = (10.0, 50.0) if self.views else ()
        return [asdict(one) for rate in rates for one in self.config.per_view(self.views, rate)]


@dataclass(frozen=True, slots=True)
class ViewTask:
    """One fit on one data set."""

    fit: ViewFit
    place: ViewPlace
    digest: str


def run_view_fit(task: ViewTask) -> int:
    """Fit, score all clips, and write the scores; returns 1."""
    started, division = time.monotonic(), task.place.divide()
    score, columns = _scorer(task, division)
    clips = [
        _scored(score(clip), named.name, labels, keep=bool(columns))
        for clip, (named, labels) in zip(
            [clip for clip, _ in [*division.test, *division.held_out]],
            division.scored,
            strict=True,
        )
    ]
    facts = {
        "config": asdict(task.fit.config),
        "columns": columns,
        "data": task.digest,
        "seconds": time.monotonic() - started,
        "version": version("stepvad"),
        "code": code_version(),
    }
    if task.place.digest(task.place.divide()) != task.digest:
        raise data_changed(task.place.data)
    with replacing(task.fit.file(task.place, task.digest)) as temporary:
        write_run(clips, facts, temporary)
    return 1


def _scored(scores: Scores, name: str, labels: FrameLabels, *, keep: bool) -> ScoredClip:
    """A scored clip under another name, with what stands behind its scores if it is kept."""
    windows = scores.windows
    windows = windows if keep else replace(windows, E=windows.E[:, :0])
    people = np.zeros(scores.n_frames, np.int64)
    return ScoredClip(replace(scores, clip=name, windows=windows), labels, people)


def _scorer(task: ViewTask, division: Division) -> tuple[Callable[[Clip], Scores], list[str]]:
    """What scores a clip, and the names of the columns behind its scores."""
    fit, dataset = task.fit, division.dataset
    if fit.what == "trivial":
        places = Places.of_clips(dataset.train_clips(), fit.config.T)
        return partial(trivial_scores, config=fit.config, places=places), [*TITLES.values()]
    if fit.what != "views":
        experiment = Experiment(method=fit.what, config=fit.config)
        fitted: Fitted = experiment.fit(dataset, compute=task.place.compute)
        return fitted.score, []
    detector = _joined(task, dataset)
    columns = [view.config.view_name for view in detector.views]
    clips = [*dataset.train_clips()]
    return with_density(detector, fit.density, clips, seed=fit.config.seed).score, columns


def _joined(task: ViewTask, dataset: Dataset) -> Detector:
    """The detector with views, fitted once for all densities."""
    fit = replace(task.fit, density="step")
    model = fit.file(task.place, task.digest, ".safetensors")
    if not model.exists():
        experiment = Experiment(config=fit.config, views=fit.views)
        fitted = experiment.fit(dataset, compute=task.place.compute)
        fitted.save(model)
    return Detector.load(model, runtime=task.place.compute.runtime)


def trivial_scores(clip: Clip, config: Config, places: Places | None) -> Scores:
    """The windows of a clip with a column for each of the trivial scores, none of them negative."""
    scores = comparison.without_scores(clip, config)
    windows = scores.windows
    body = BodyWindows.of_clip(clip, scores.T).at(scores)
    if body is None or places is None:
        raise DataError(
            f"clip {clip.name}: expected windows of {config.T} frames of normal footage, got none",
            hint="check the training clips",
        )
    people = np.bincount(windows.frame, minlength=scores.n_frames)[windows.frame]
    drawn = np.random.default_rng([config.seed, crc32(clip.name.encode())]).random(len(windows))
    columns: dict[Trivial, NDArray[np.float64]] = {
        "persons": people.astype(np.float64),
        "confidence": 1 - windows.c.astype(np.float64),
        "random": drawn,
        "speed": body.speed.astype(np.float64),
        "place": places.distances(body.place).astype(np.float64),
    }
    values = np.column_stack([columns[name] for name in TITLES]).astype(np.float32)
    return replace(scores, windows=replace(windows, E=values))


Density = Literal["step", "knn", "gmm"]
DENSITIES: dict[Density, str] = {"step": "energy", "knn": "kNN", "gmm": "mixture"}
Energies = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""One energy `(n,)` for each point `(n, K)`."""
MAX_POINTS = 50_000
"""Training windows that a density is fitted to, evenly spread."""
GAUSSIANS = 8
"""Gaussians of a mixture; fixed beforehand, tuned on nothing."""


@dataclass(frozen=True, slots=True)
class _Network:
    """In the place of a view's network: the same energy at every noise scale."""

    of: Energies
    L: int

    def energies(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The energy of each point, `(n, L)`."""
        return np.repeat(self.of(pi_x)[:, None], self.L, axis=1)


def with_density(
    detector: Detector,
    density: Density,
    clips: Sequence[Clip],
    *,
    seed: int = 0,
    report: Report = silent,
) -> Detector:
    """A detector with views whose energy models are replaced; `clips` are those it was fitted on.

    The density learns from the clips that the energy model learned from, and is standardised and
    ranked on those that were held out from it.
    """
    if len(detector.views) == 1:
        raise ConfigError("densities: expected a detector with several views, got one view")
    if density == "step":
        return detector
    learned, ranked = hold_out(clips)
    views = []
    for number, view in enumerate(detector.views):
        report(Progress("densities", number, len(detector.views), view.config.view_name))
        part = replace(detector, views=(view,))
        own, unseen = (_points(part, some) for some in (learned, ranked))
        other = _replaced(view, _fitted(density, own, seed), unseen)
        surprise = rank_scores(replace(part, views=(other,)), ranked)
        views.append(_with(other, surprise=surprise))
    report(Progress("densities", len(views), len(views)))
    return replace(detector, views=tuple(views))


def _fitted(density: Density, points: NDArray[np.float32], seed: int) -> Energies:
    rows = np.linspace(0, len(points) - 1, min(len(points), MAX_POINTS)).astype(np.int64)
    if density == "knn":
        return Neighbours(points[rows]).distances
    return Mixture.fit(points[rows], min(GAUSSIANS, len(rows)), seed=seed).energies


def _points(part: Detector, clips: Sequence[Clip]) -> NDArray[np.float32]:
    """π(x) of all windows of these clips as one view sees them."""
    points = [
        part.model.space.project(windows.x)
        for clip in clips
        for index, _ in cut_in_pieces(clip, part.view_settings, part.skeleton)
        for windows in index.batches(BATCH)
    ]
    return np.concatenate([np.empty((0, part.config.K), np.float32), *points])


def _replaced(view: View, of: Energies, unseen: NDArray[np.float32]) -> View:
    """A view with another density, its energies standardised on unseen points."""
    energies, scales = of(unseen).astype(np.float64), view.config.L
    mean, var = (np.full(scales, one) for one in (energies.mean(), max(energies.var(), 1e-12)))
    model = replace(view.model, E_mean=mean, E_var=var)
    return _with(view, network=_Network(of, scales), model=model)


def _with(view: View, **changes: object) -> View:
    """A copy with other attributes, also those that a view makes for itself."""
    other = copy.copy(view)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other
