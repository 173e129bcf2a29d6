"""Measure STEP with one thing changed: window, components, training, confidence, noise, data.

    python -m studies ablations grid people -o grid --seeds 1 --T 8,12 --K 24,48

Names: grid, components, training, aggregations, confidence, jitter, transfer.

Writes NAME.md, NAME.csv and NAME.png into the directory of -o. Mean and deviation are over seeds,
intervals over clips; differences are to the reference of each case, paired over clips. Results
already in the directory of --results are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepvad.cli.terminal import print_table, progress_bars, say, write_table
from stepvad.config import Aggregation, Config, Reference
from stepvad.errors import ConfigError, Progress, Report, silent
from stepvad.evaluation import protocol
from stepvad.evaluation.comparison import VARIANTS, Trials, experiments
from stepvad.evaluation.datasets import Dataset, Split
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.metrics import (
    FrameScores,
    Interval,
    Resampled,
    Spread,
    over_seeds,
    resample,
)
from stepvad.evaluation.protocol import FrameView, Selection
from stepvad.evaluation.runs import ExperimentRun, SweepPlace, sweep
from stepvad.model.scoring import Placement
from studies import fits
from studies.fits import Fits
from studies.plots.curves import AxisLabels, Scale, Series, draw_panels
from studies.plots.dots import Dot, draw_dots
from studies.plots.heatmap import Grid, draw_heatmaps
from studies.plots.looks import STROKES, LineStyle, look

COLUMNS = ("data", "case", "AUROC", "over seeds", "95 % over clips", "difference", "AP", "EER")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("name", choices=[study.name for study in STUDIES], metavar="NAME")
    fits.add_sweep(parser)
    parser.add_argument("--methods", type=fits.listed(str), default=METHODS)
    parser.add_argument("--T", type=fits.listed(int), default=(12,), help="frames in a window")
    parser.add_argument("--K", type=fits.listed(int), default=(48,), help="components")
    parser.add_argument("--placement", default="latest", help="latest, center or backtrack")
    parser.add_argument("--smoothed", action="store_true")
    given = parser.parse_args(arguments)
    scope = Scope(
        base=fits.config_of(given),
        seeds=tuple(range(given.seeds)),
        T=given.T,
        K=given.K,
        methods=given.methods,
        data=tuple(given.data),
        split=given.split,
    )
    given.output.mkdir(parents=True, exist_ok=True)
    view = FrameView(given.placement, given.smoothed, given.frames)
    chosen = next(study for study in STUDIES if study.name == given.name)
    with progress_bars() as report:
        lines = run(chosen, scope, Fits.of(given), view, report=report)
    _show(chosen, lines, given.output)


def _show(study: Study, lines: list[StudyResult], output: Path) -> None:

    rows = [_cells(line) for line in lines]
    print_table(f"{study.title} (%)", COLUMNS, rows)
    for suffix in (".md", ".csv"):
        write_table(COLUMNS, rows, output / f"{study.name}{suffix}")
    draw(study, lines, output)
    say(f"written: {output / study.name}.md, .csv and .png")


def _cells(line: StudyResult) -> list[str]:
    difference = "-"
    if line.difference is not None:
        low, high = line.difference.low, line.difference.high
        difference = f"{100 * line.difference.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return [
        line.data,
        line.case.label,
        f"{100 * line.auroc.mean:.1f}",
        f"± {100 * line.auroc.std:.1f}" if line.auroc.n > 1 else "-",
        f"{100 * line.interval.low:.1f} to {100 * line.interval.high:.1f}",
        difference,
        f"{100 * line.ap:.1f}",
        f"{100 * line.eer:.1f}",
    ]


METHODS = ("step", "raw-modulated", "raw", "knn")
UNPROJECTED = ("raw-modulated", "raw")
"""Methods on raw coordinates, which have no K: STEP's network (Table 2, *no PCA*) and MULDE's."""
ONLINE = FrameView(smoothed=False)
AGGREGATIONS: tuple[Aggregation, ...] = ("max", "sum", "top2", "top3")
PROTOCOLS: Mapping[str, Placement] = {"online": "latest", "backtrack": "backtrack"}
JITTERS = (0.0, 0.1, 0.2, 0.5, 1.0)
"""Noise on the coordinates of standardised test windows."""
SIGMA_LOW = (0.0001, 0.001, 0.01, 0.5)
SIGMA_HIGH = (0.2, 0.5, 2.0)
"""Values in the paper besides its defaults 0.1 and 1."""
DROPPED = (0.1, 0.2, 0.4)
"""Confidences below which training poses are dropped."""
BLOCK_JITTER = 0.1
"""Noise that the reference implementation adds before every block in training."""
JITTERED = Reference(block_jitter=BLOCK_JITTER)
RANK = (34, 2)
"""The paper's 18 joints in T frames have rank 34 T - 2: the neck is between the shoulders, and
windows are centred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Parameters of a study: base settings, seeds, window sizes, data sets."""

    base: Config
    seeds: tuple[int, ...]
    T: tuple[int, ...] = (12,)
    K: tuple[int, ...] = (48,)
    methods: tuple[str, ...] = METHODS
    """Methods of the studies that compare several."""
    data: tuple[Path, ...]
    """All data sets of the study."""
    split: Split = "full"

    def __post_init__(self) -> None:
        """Reject methods that no study compares."""
        if not self.methods or not set(self.methods) <= set(METHODS):
            raise ConfigError(
                f"methods: expected some of {', '.join(METHODS)}, got {', '.join(self.methods)}"
            )

    def of(self, name: str, **changes: object) -> tuple[Experiment, ...]:
        """Experiments of a method of `comparison.VARIANTS`, with all seeds and changed settings."""
        config = replace(self.base, **{"T": self.T[0], "K": self.K[0], **changes})  # type: ignore[arg-type]  # Config checks
        return tuple(experiments([name], config, Trials(seeds=self.seeds))[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCase:
    """One line of a table: experiments, one per seed, and how their scores are evaluated."""

    label: str
    method: str
    """Its name in `comparison.VARIANTS`."""
    experiments: tuple[Experiment, ...]
    beside: str = ""
    """Label of the case that it is compared with; itself, if empty."""
    line: str = ""
    """Line of the plot that it belongs to, if the plot has lines."""
    x: float = 0.0
    """Position on that line."""
    K: int = 0
    """Components, if the plot has a map over T and K."""
    placement: Placement | None = None
    smoothed: bool | None = None
    """How window scores become frame scores, if set by the case rather than the user."""


@dataclass(frozen=True, slots=True)
class Study:
    """A question, and the cases that answer it on one data set."""

    name: str
    title: str
    cases: Callable[[Scope, Path], Iterator[StudyCase]]
    axis: str = ""
    """Axis of a plot with lines; a plot without an axis has a dot for each case."""
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Measured result of a case on a data set."""

    data: str
    case: StudyCase
    auroc: Spread
    """Over seeds."""
    interval: Interval
    """Over clips, of the mean of the seeds."""
    difference: Interval | None
    """Difference from the case it is compared with, paired over clips; None for that case."""
    each: tuple[float, ...]
    """AUROC of each seed."""
    ap: float
    eer: float


def run(
    study: Study, scope: Scope, fits: Fits, view: FrameView = ONLINE, *, report: Report = silent
) -> list[StudyResult]:
    """Run every case on every data set; stored results are reused."""
    lines: list[StudyResult] = []
    for directory in scope.data:
        place = SweepPlace(
            data=directory, results=fits.results, split=scope.split, compute=fits.compute,
            jobs=fits.jobs, executor=fits.executor,
        )  # fmt: skip
        cases = [*study.cases(scope, directory)]
        every = [experiment for case in cases for experiment in case.experiments]
        found = iter(sweep(every, place, report=report))
        dataset = place.open()
        seen: dict[str, Resampled] = {}
        for done, case in enumerate(cases):
            report(Progress("measuring", done, len(cases), case.label))
            chosen = replace(
                case,
                placement=case.placement or view.placement,
                smoothed=view.smoothed if case.smoothed is None else case.smoothed,
            )
            several = [next(found) for _ in case.experiments]
            scores = _frame_scores(chosen, several, dataset, view.frames)
            seen[case.label] = resample(scores)
            lines.append(_line(dataset.name, chosen, scores, seen))
        report(Progress("measuring", len(cases), len(cases)))
    return lines


def _frame_scores(
    case: StudyCase, runs: Sequence[ExperimentRun], dataset: Dataset, frames: Selection
) -> FrameScores:
    view = FrameView(case.placement or "latest", bool(case.smoothed), frames)
    return FrameScores.of_seeds([protocol.frame_scores(run.clips, dataset, view) for run in runs])


def _line(
    data: str, case: StudyCase, scores: FrameScores, seen: Mapping[str, Resampled]
) -> StudyResult:
    each = tuple(scores.measure_each())
    drawn = seen[case.label]
    beside = seen[case.beside] if case.beside else drawn
    return StudyResult(
        data=data,
        case=case,
        auroc=over_seeds(each),
        interval=drawn.interval(),
        difference=None if beside is drawn else drawn.minus(beside).interval(),
        each=each,
        ap=scores.measure("ap"),
        eer=scores.measure("eer"),
    )


def grid(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """STEP, raw coordinates with either network, and kNN over T and K; raw ones have no K."""
    for T in scope.T:
        per_frame, lost = RANK
        K_of_T = [K for K in scope.K if per_frame * T - lost >= K] or [per_frame * T - lost]
        step = f"STEP, T = {T}, K = {K_of_T[0]}" if "step" in scope.methods else ""
        for K in K_of_T:
            some = f", K = {K}" if len(scope.K) > 1 else ""
            for name, title in (("step", "STEP"), ("knn", "PCA/kNN times confidence")):
                if name not in scope.methods:
                    continue
                own = f"STEP, T = {T}, K = {K}" if "step" in scope.methods else ""
                yield StudyCase(
                    label=f"{title}, T = {T}, K = {K}",
                    method=name,
                    experiments=scope.of(name, T=T, K=K),
                    beside="" if name == "step" else own,
                    line=title + some,
                    x=T,
                    K=K,
                )
        for name in (name for name in UNPROJECTED if name in scope.methods):
            title = VARIANTS[name][1]
            yield StudyCase(
                label=f"{title}, T = {T}",
                method=name,
                experiments=scope.of(name, T=T, K=K_of_T[0]),
                beside=step,
                line=title,
                x=T,
            )


def components(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """Ablation of STEP, one component changed at a time."""
    yield StudyCase(label="STEP", method="step", experiments=scope.of("step"))

    def other(label: str, some: tuple[Experiment, ...], method: str = "step") -> StudyCase:
        return StudyCase(label=label, method=method, experiments=some, beside="STEP")

    for name in ("vanilla", "step-unwhitened", "step-unweighted"):
        yield other(VARIANTS[name][1], scope.of(name), name)
    for value in DROPPED:
        unsure = tuple(replace(one, drop_below=value) for one in scope.of("step"))
        yield other(f"without training poses under {value}", unsure)
    for value in SIGMA_LOW:
        yield other(f"σ_low = {value}", scope.of("step", sigma_low=value))
    for value in SIGMA_HIGH:
        yield other(f"σ_high = {value}", scope.of("step", sigma_high=value))
    yield other(f"block jitter {BLOCK_JITTER} in training", scope.of("step", reference=JITTERED))


def training(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """Training that is shorter, longer, wider, faster or with noise in the blocks; kNN has none."""
    base = scope.base
    changes: dict[str, dict[str, object]] = {
        "": {},
        ", twice as wide": {"width": 2 * base.width},
        ", twice the rate": {"learning_rate": 2 * base.learning_rate},
        f", block jitter {BLOCK_JITTER}": {"reference": JITTERED},
    }
    lines = [("step", words, change) for words, change in changes.items()]
    lines += [(name, "", {}) for name in (*UNPROJECTED, "knn")]
    for name, words, change in lines:
        if name not in scope.methods:
            continue
        line = VARIANTS[name][1] + words
        for steps in _budgets(base):
            own = {} if name == "knn" else {"max_steps": steps}
            yield StudyCase(
                label=f"{line}, {steps} steps" if own else f"{line}, beside {steps} steps",
                method=name,
                experiments=scope.of(name, **change, **own),
                line=line,
                x=steps,
            )


def _budgets(base: Config) -> list[int]:
    """Numbers of steps from a quarter to four times the requested one."""
    if base.max_steps is None:
        raise ConfigError("max_steps: expected a number to vary, got None")
    return [max(base.max_steps * share // 4, 1) for share in (1, 2, 4, 8, 16)]


def aggregations(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """Aggregations of the noise scales into one score, under every protocol."""
    protocols: tuple[tuple[str, Placement], ...] = (
        ("online", "latest"),
        ("backtrack", "backtrack"),
    )
    for words, placement in protocols:
        for smoothed in (False, True):
            under = f"{words}, {'smoothed' if smoothed else 'raw'}"
            for name in AGGREGATIONS:
                yield StudyCase(
                    label=f"{name}: {under}",
                    method="step",
                    experiments=scope.of("step", aggregation=name),
                    beside="" if name == "max" else f"max: {under}",
                    placement=placement,
                    smoothed=smoothed,
                )


def confidence(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """Every method with and without weighting its score by confidence."""
    for name in scope.methods:
        title = VARIANTS[name][1]
        yield StudyCase(label=title, method=name, experiments=scope.of(name))
        without = f"{name}-unweighted"
        label = VARIANTS[without][1]
        yield StudyCase(label=label, method=without, experiments=scope.of(without), beside=title)


def jitter(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """Noise on the test windows that was not present in training."""
    for name in scope.methods:
        title = VARIANTS[name][1]
        for value in JITTERS:
            some = tuple(replace(one, jitter=value) for one in scope.of(name))
            yield StudyCase(
                label=f"{title}, noise {value}",
                method=name,
                experiments=some,
                beside=f"{title}, noise {JITTERS[0]}" if value else "",
                line=title,
                x=value,
            )


def transfer(scope: Scope, own: Path) -> Iterator[StudyCase]:
    """Fitted on this data set, on each of the others, and on all together."""
    first = f"fitted on {own.resolve().name}"
    yield StudyCase(label=first, method="step", experiments=scope.of("step"))
    others = [path for path in scope.data if path != own]
    elsewhere: dict[str, tuple[Path, ...]] = {
        f"fitted on {path.resolve().name}": (path,) for path in others
    }
    if others:
        elsewhere["fitted on all"] = scope.data
    for label, fit_on in elsewhere.items():
        some = tuple(replace(one, fit_on=tuple(map(str, fit_on))) for one in scope.of("step"))
        yield StudyCase(label=label, method="step", experiments=some, beside=first)


STUDIES = (
    Study(
        "grid",
        "windows of T frames, K components",
        grid,
        "frames in a window, T",
        "log2",
    ),
    Study("components", "parts of STEP", components),
    Study("training", "length of training", training, "steps of training", "log2"),
    Study(
        "aggregations",
        "aggregation of the noise scales",
        aggregations,
    ),
    Study("confidence", "confidence", confidence),
    Study(
        "jitter",
        "noise on the test windows",
        jitter,
        "standard deviation of the noise",
    ),
    Study(
        "transfer",
        "other data sets",
        transfer,
    ),
)


def draw(study: Study, lines: Sequence[StudyResult], directory: Path) -> None:
    """Write the plot of a study, one panel per data set, and maps if there are several K."""
    path = directory / f"{study.name}.png"
    by_data: dict[str, list[StudyResult]] = {}
    for line in lines:
        by_data.setdefault(line.data, []).append(line)
    if not study.axis:
        dots = {data: [_dot(line) for line in some] for data, some in by_data.items()}
        draw_dots(dots, path, "AUROC (%), interval over clips")
        return
    panels = {data: _series(some) for data, some in by_data.items()}
    draw_panels(panels, path, AxisLabels(study.axis, "AUROC (%)", study.scale))
    if len({line.case.K for line in lines if line.case.K}) > 1:
        draw_heatmaps(_maps(lines), directory / f"{study.name}-maps.png")


def _dot(line: StudyResult) -> Dot:
    value, low, high = (
        100 * share for share in (line.auroc.mean, line.interval.low, line.interval.high)
    )
    return Dot(line.case.label, line.case.method, value, low, high)


def _series(lines: Sequence[StudyResult]) -> dict[str, Series]:
    """AUROC of each seed along the axis, by line of the plot."""
    values: dict[str, dict[float, list[float]]] = {}
    for line in lines:
        along = values.setdefault(line.case.line, {})
        along[line.case.x] = [100 * value for value in line.each]
    looks = _looks(lines)
    return {name: Series.of(along, look=looks[name]) for name, along in values.items()}


def _looks(lines: Sequence[StudyResult]) -> dict[str, LineStyle]:
    """Style of each line: its method's colour, and a distinct stroke if a method has several."""
    methods = {line.case.line: line.case.method for line in lines}
    looks: dict[str, LineStyle] = {}
    for name, method in methods.items():
        own = look(method)
        number = [*methods.values()][: len(looks)].count(method)
        stroke = STROKES[number % len(STROKES)]
        looks[name] = replace(own, line=stroke) if number else own
    return looks


def _maps(lines: Sequence[StudyResult]) -> Mapping[str, Grid]:
    """AUROC over T and K for each data set and method that has a K."""
    cells: dict[str, dict[tuple[int, int], float]] = {}
    for line in lines:
        if line.case.K:
            title = f"{line.data}, {VARIANTS[line.case.method][1]}"
            cells.setdefault(title, {})[int(line.case.x), line.case.K] = 100 * line.auroc.mean
    return {title: Grid.of(of_title) for title, of_title in cells.items()}
