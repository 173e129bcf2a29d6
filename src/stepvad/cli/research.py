"""stepvad compare, reproduce: methods on one data set; the figures of the paper."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from stepvad import evaluation
from stepvad.cli import options, terminal
from stepvad.config import Compute, Config, Precision, Runtime
from stepvad.executors import Executor

if TYPE_CHECKING:
    from stepvad.evaluation import experiment, runs
    from stepvad.evaluation import reproduce as reproduction

METHODS = "step,raw-modulated,raw,vanilla,knn,mahalanobis"
COLUMNS = ("method", "AUROC", "over seeds", "95 % over clips", "lead of the first", "AP", "EER")
PaperDataset = Literal["ubnormal", "shanghaitech", "msad"]
FIGURES = ("split", "protocol", "scores", "aggregation", "metric", "ours", "paper", "table")
NOT_THE_PAPERS = "not the paper's settings"
"""Note on figures computed with other settings than the paper's."""
PROTOCOLS = {"latest": "online", "backtrack": "backtrack"}


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """Rare settings of `compare`: how scores are measured, and where fits run."""

    jitter: float = 0.0
    """Noise added to the test windows."""
    fps: float | None = None
    """Rate of clips that do not state one."""
    placement: Literal["latest", "center", "backtrack"] = "latest"
    smoothed: bool = False
    frames: Literal["all", "covered", "one-person"] = "all"
    executor: Executor = "processes"
    runtime: Runtime = "auto"


@dataclass(frozen=True, slots=True)
class ReproduceSettings:
    """Rare settings of `reproduce`."""

    executor: Executor = "processes"
    precision: Precision = "auto"


@dataclass(frozen=True, slots=True)
class FittedData:
    """A data set, the frames of it that count, and the results of its fits."""

    data: Annotated[
        str,
        Argument(
            help="Data set: poses under pose, labels under gt; trajectories; or "
            "package.module:name."
        ),
    ]
    results: Annotated[Path, Argument(help="Directory for the results, one file per fit.")]
    split: options.SplitName = "full"


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The network that all methods train, and how long."""

    width: Annotated[int, Option(help="Hidden units of the network.")] = 256
    max_steps: Annotated[int, Option(help="Training steps.")] = 500
    settings: options.SettingsFile = None


FitJobs = Annotated[int, Option(min=1, help="Fits to run in parallel.")]
TableFile = Annotated[Path | None, Option("--table", help="Table file: .csv, otherwise Markdown.")]


@options.grouped
def compare(
    *,
    methods: Annotated[
        str, Option(help="Names from the list above, `all`, or package.module:name.")
    ] = METHODS,
    seeds: Annotated[int, Option(min=1, help="Fits per trained method.")] = 3,
    chosen: FittedData,
    network: NetworkOptions,
    jobs: FitJobs = 1,
    table: TableFile = None,
) -> None:
    """Fit methods on a data set's training clips and evaluate them on its test clips.

    Besides STEP (step): step-unweighted, step-unwhitened, vanilla, raw-modulated,
    raw-modulated-unweighted, raw, raw-unweighted, knn, knn-5, knn-unweighted, knn-unwhitened,
    mahalanobis, views.
    raw-modulated is STEP without PCA, raw is MULDE with confidence weights.

    Trivial scores are always listed for comparison: the number of people, the negative confidence,
    a random score, the speed of the body, and its distance to places of training footage.

        stepvad compare people results --methods step,raw,knn --seeds 1

    Your own method is a CustomMethod in one of your modules, your own data set a CustomDataset; the
    module is imported from this directory or from Python's path:

        stepvad compare people results --methods step,mine:speed

    Your own method runs once, after the others, and its scores are not kept.

    Mean and deviation are over seeds, the interval is over clips, and the lead is that of the
    first method, paired over clips. Results already in RESULTS are reused if
    the same code, engine and precision made them.

    --settings also takes jitter, fps, placement (latest, center, backtrack), smoothed, frames (all,
    covered, one-person), runtime, and executor: `ray` uses the cluster that RAY_ADDRESS names, or
    this machine; all its machines must see DATA and RESULTS in the same place.
    """
    from stepvad.evaluation import comparison, custom
    from stepvad.evaluation.protocol import FrameView
    from stepvad.evaluation.runs import SweepPlace

    if table is not None:
        terminal.check_output(table)
    config, rare = options.configured_with(
        Config.short(),
        network.settings,
        CompareSettings(),
        width=network.width,
        max_steps=network.max_steps,
    )
    names = [*comparison.VARIANTS] if methods == "all" else methods.split(",")
    if any(map(custom.is_name, [chosen.data, *names])):
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    compute = Compute(runtime=rare.runtime)
    place = SweepPlace(**asdict(chosen), compute=compute, jobs=jobs, executor=rare.executor)
    trials = comparison.Trials(seeds=[*range(seeds)], jitter=rare.jitter, fps=rare.fps)
    view = FrameView(rare.placement, rare.smoothed, rare.frames)
    # fits that are on disk already are not repeated
    with terminal.progress_bars() as report:
        lines = comparison.compare(
            names, place, config=config, trials=trials, view=view, report=report
        )
    columns, rows = [*COLUMNS, *lines[0].by_class], [_method_cells(line) for line in lines]
    _print_table(f"{place.open().name} (%)", columns, rows, table)


def _print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], file: Path | None
) -> None:
    """Print a table, and write it to a file if there is one."""
    terminal.print_table(title, columns, rows)
    if file is not None:
        terminal.write_table(columns, rows, file)
        terminal.say(f"written: {file}")


def _method_cells(line: evaluation.MethodResult) -> list[str]:
    lead = "-"
    if line.lead is not None:
        lead = f"{_points(line.lead.value)} ({_points(line.lead.low)} to {_points(line.lead.high)})"
    return [
        line.name,
        f"{100 * line.auroc.mean:.1f}",
        f"± {100 * line.auroc.std:.1f}" if line.auroc.n > 1 else "-",
        f"{100 * line.interval.low:.1f} to {100 * line.interval.high:.1f}",
        lead,
        f"{100 * line.ap:.1f}",
        f"{100 * line.eer:.1f}",
        *(f"{100 * value:.1f}" for value in line.by_class.values()),
    ]


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


@dataclass(frozen=True, slots=True)
class PaperRuns:
    """The data, and how many fits run where."""

    data: Annotated[
        Path, Option(help="Directory of the data set: poses under pose, labels under gt.")
    ]
    results: Annotated[
        Path | None, Option(help="Directory for the results; defaults to NAME-results.")
    ] = None
    runs: Annotated[int, Option(min=1, help="Training runs; the paper has 20.")] = 20
    jobs: FitJobs = 1
    device: options.Device = "cpu"
    settings: options.SettingsFile = None


@options.grouped
def reproduce(
    name: Annotated[PaperDataset, Argument(help="Data set of the paper.")],
    *,
    plan: PaperRuns,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would run and for how long, then exit.")
    ] = False,
    table: TableFile = None,
) -> None:
    """Train and evaluate as the paper does, and report which of its figures hold.

    Show the plan, and how long it takes on this machine:

        stepvad reproduce ubnormal --data UBnormal --dry-run

    Run all of it; you can stop at any time, and the same command resumes it:

        stepvad reproduce ubnormal --data UBnormal --table ubnormal.md

    400 epochs with the data set's learning rate, early stopping by validation AUROC on UBnormal,
    20 runs; every split, online and backtrack, raw and smoothed, four aggregations, AUROC and AP.
    A figure holds if ours is within 0.5 points or within the paper's standard deviation. Results
    already in RESULTS are reused if the same code, device, engine and precision made them.

    --settings makes a shorter trial, as with epochs = 2 and width = 64; it also takes precision
    (auto, float32, bfloat16) and executor (processes, ray).
    """
    from stepvad.evaluation import reproduce as reproduction
    from stepvad.evaluation.runs import SweepPlace, sweep

    if table is not None:
        terminal.check_output(table)
    reproduction.check_complete(name, plan.data)
    paper = reproduction.paper_config(name)
    config, rare = options.configured_with(paper, plan.settings, ReproduceSettings())
    experiments = reproduction.paper_experiments(name, config, plan.runs)
    splits = reproduction.open_splits(name, plan.data)
    place = SweepPlace(
        data=plan.data,
        results=plan.results or Path(f"{name}-results"),
        compute=Compute(device=plan.device, precision=rare.precision),
        checkpoints=True,
        jobs=plan.jobs,
        executor=rare.executor,
    )

    # the differences from the paper, stated or left open by it
    differs = reproduction.deviations(name, config, plan.runs, splits["full"])
    _print_differences(name, len(splits), differs)
    choices = reproduction.open_choices(name, config, splits["full"], place.compute)
    terminal.say(f"choices that the paper leaves open: {'; '.join(choices)}")
    if dry_run:
        _print_plan(place, experiments, plan.runs)
        return

    # fits that are on disk already are not repeated
    with terminal.progress_bars() as report:
        finished = sweep(experiments, place, report=report)
        lines = reproduction.reproduced_figures(name, finished, splits, report)
    over = f"mean ± deviation over {plan.runs} runs" if plan.runs > 1 else "one run"
    verdict = "verdict" if not differs else f"verdict, {NOT_THE_PAPERS}"
    rows = [_cells(line) for line in lines]
    judged = [line.figure.holds(line.ours.mean) for line in lines if line.figure is not None]
    _print_table(f"{name}, {over} (%)", [*FIGURES, verdict], rows, table)
    terminal.say(f"{sum(judged)} of {len(judged)} figures of the paper hold")


def _print_differences(name: PaperDataset, n_splits: int, differs: list[str]) -> None:
    """Report all differences from the paper's experiment."""
    from stepvad.evaluation import reproduce as reproduction

    if differs:
        terminal.say(f"{NOT_THE_PAPERS}: {', '.join(differs)}")
    if n_splits < len(reproduction.SETUPS[name].splits):
        terminal.say(
            f"no {reproduction.HUMAN_RELATED}: the lines of the human-related split are left out"
        )
    if name == "msad":
        terminal.say("the reference smoothing of MSAD is none: smoothed lines equal raw ones")


def _cells(line: reproduction.ReproducedFigure) -> list[str]:
    cell, ours, figure = line.cell, line.ours, line.figure
    deviation = f" ± {ours.std:.2f}" if ours.n > 1 else ""
    return [
        cell.split,
        PROTOCOLS[cell.placement],
        "smoothed" if cell.smoothed else "raw",
        cell.aggregation,
        "AUROC" if cell.metric == "auroc" else "AP",
        f"{ours.mean:.2f}{deviation}",
        "-" if figure is None else figure.words,
        "-" if figure is None else figure.table,
        line.verdict,
    ]


def _print_plan(
    place: runs.SweepPlace, experiments: list[experiment.Experiment], n_runs: int
) -> None:
    """Print what would run and about how long it trains: a few real steps are timed."""
    from stepvad.evaluation.runs import digest_of
    from stepvad.model import training
    from stepvad.model.footage import Footage
    from stepvad.windows.views import ViewSettings

    dataset, config = place.open(), experiments[0].config
    # time a few real steps, and scale them to all epochs
    footage = Footage.from_clips(dataset.train_clips(), ViewSettings(config))
    steps = config.epochs * ceil(len(footage) / config.batch_size)
    batch, timed = min(len(footage), config.batch_size), replace(config, max_steps=steps)
    hours = steps * training.time_steps(batch, timed, place.compute) / 3600
    digest = digest_of(dataset)
    # fits without a result file of this data, code and engine
    missing = {e.fitting for e in experiments if not place.file(e, digest).exists()}
    echo(f"{dataset.name}: fitted on {footage.n_clips:,} clips, {len(footage):,} windows")
    echo(f"one run: {config.epochs:,} epochs, {steps:,} steps, width {config.width}")
    echo(f"runs: {n_runs}, of which {n_runs - len(missing)} are in {place.results}")
    device = place.compute.device
    echo(f"training on {device}: {hours:.2g} hours a run, {hours * len(missing):.2g} in all")
    echo("a first answer: fewer --runs; more can be added later to the same results")
