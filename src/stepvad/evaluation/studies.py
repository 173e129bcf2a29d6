"""The paper's studies: lists of experiments that produce one table and one plot each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepvad.config import Aggregation, Compute, Config
from stepvad.errors import ConfigError
from stepvad.evaluation import intervals, protocol
from stepvad.evaluation.comparison import VARIANTS, experiments
from stepvad.evaluation.datasets import Dataset, Split, dataset_name
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.frames import FrameScores
from stepvad.evaluation.intervals import Interval, Resampled, Spread
from stepvad.evaluation.protocol import FrameView, Selection
from stepvad.evaluation.runs import ExperimentRun
from stepvad.evaluation.sweep import SweepPlace, sweep
from stepvad.executors import Executor
from stepvad.model.scoring import Placement
from stepvad.plots.curves import Scale
from stepvad.progress import Progress, Report, silent

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
        return tuple(experiments([name], config, self.seeds)[name])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Where the results of fits are stored, and how fits run."""

    results: Path
    jobs: int = 1
    executor: Executor = "processes"
    compute: Compute = Compute()


def run(
    study: Study, scope: Scope, fits: Fits, view: FrameView = ONLINE, *, report: Report = silent
) -> list[StudyResult]:
    """Run every case on every data set; stored results are reused."""
    lines: list[StudyResult] = []
    for directory in scope.data:
        place = SweepPlace(
            data=directory, results=fits.results, split=scope.split, compute=fits.compute
        )
        cases = [*study.cases(scope, directory)]
        every = [experiment for case in cases for experiment in case.experiments]
        found = iter(sweep(every, place, jobs=fits.jobs, executor=fits.executor, report=report))
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
            seen[case.label] = intervals.resample(scores)
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
        auroc=intervals.over_seeds(each),
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
    yield other(
        f"block jitter {BLOCK_JITTER} in training", scope.of("step", block_jitter=BLOCK_JITTER)
    )


def training(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """Training that is shorter, longer, wider, faster or with noise in the blocks; kNN has none."""
    base = scope.base
    changes: dict[str, dict[str, object]] = {
        "": {},
        ", twice as wide": {"width": 2 * base.width},
        ", twice the rate": {"learning_rate": 2 * base.learning_rate},
        f", block jitter {BLOCK_JITTER}": {"block_jitter": BLOCK_JITTER},
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


def projections(scope: Scope, _: Path) -> Iterator[StudyCase]:
    """PCA compared with learned projections, also ones trained on anomalies."""
    names = ["step", "autoencoder", "vae"]
    names += [f"{name}-anomalies" for name in ("pca", "autoencoder", "vae")]
    for name in names:
        yield StudyCase(
            label=VARIANTS[name][1],
            method=name,
            experiments=scope.of(name),
            beside="" if name == "step" else VARIANTS["step"][1],
        )


def transfer(scope: Scope, own: Path) -> Iterator[StudyCase]:
    """Fitted on this data set, on each of the others, and on all together."""
    first = f"fitted on {dataset_name(own)}"
    yield StudyCase(label=first, method="step", experiments=scope.of("step"))
    others = [path for path in scope.data if path != own]
    elsewhere: dict[str, tuple[Path, ...]] = {
        f"fitted on {dataset_name(path)}": (path,) for path in others
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
    Study("projections", "projections", projections),
    Study(
        "transfer",
        "other data sets",
        transfer,
    ),
)
