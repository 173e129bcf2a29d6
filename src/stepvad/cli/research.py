"""stepvad compare, reproduce: methods on one data set; the figures of the paper."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.options import (
    Device,
    FitJobsOption,
    SettingsFile,
    SplitName,
    TableFile,
    configured_with,
)
from stepvad.cli.terminal import check_output, print_table, progress_bars, say, write_table
from stepvad.config import Compute, Config, Precision, Runtime
from stepvad.executors import Executor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepvad.evaluation.comparison import MethodResult
    from stepvad.evaluation.datasets import Dataset, Split
    from stepvad.evaluation.experiment import Experiment
    from stepvad.evaluation.reproduce import ReproducedFigure
    from stepvad.evaluation.runs import SweepPlace

METHODS = "step,raw-modulated,raw,vanilla,knn,mahalanobis"
COLUMNS = ("method", "AUROC", "over seeds", "95 % over clips", "lead of the first", "AP", "EER")
PaperDatasetName = Literal["ubnormal", "shanghaitech", "msad"]
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


def compare(
    data: Annotated[
        str,
        typer.Argument(
            help="Data set: poses under pose, labels under gt; trajectories; or "
            "package.module:name."
        ),
    ],
    results: Annotated[Path, typer.Argument(help="Directory for the results, one file per fit.")],
    *,
    methods: Annotated[
        str, typer.Option(help="Names from the list above, `all`, or package.module:name.")
    ] = METHODS,
    seeds: Annotated[int, typer.Option(min=1, help="Fits per trained method.")] = 3,
    split: SplitName = "full",
    width: Annotated[int, typer.Option(help="Hidden units of the network.")] = 256,
    max_steps: Annotated[int, typer.Option(help="Training steps.")] = 500,
    settings: SettingsFile = None,
    jobs: FitJobsOption = 1,
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
    from stepvad.evaluation.runs import SweepPlace

    if table is not None:
        check_output(table)
    base, rare = configured_with(
        Config.short(), settings, CompareSettings(), width=width, max_steps=max_steps
    )
    names = [*comparison.VARIANTS] if methods == "all" else methods.split(",")
    if any(map(custom.is_name, [data, *names])):
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    place = SweepPlace(
        data=data, results=results, split=split, compute=Compute(runtime=rare.runtime)
    )
    with progress_bars() as report:
        lines = comparison.compare(
            names,
            place,
            config=base,
            seeds=[*range(seeds)],
            jitter=rare.jitter,
            fps=rare.fps,
            placement=rare.placement,
            smoothed=rare.smoothed,
            frames=rare.frames,
            jobs=jobs,
            executor=rare.executor,
            report=report,
        )
    _print_lines(place.open().name, lines)
    if table is not None:
        write_table([*COLUMNS, *lines[0].by_class], [_method_cells(line) for line in lines], table)
        say(f"written: {table}")


def _method_cells(line: MethodResult) -> list[str]:
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


def _print_lines(name: str, lines: list[MethodResult]) -> None:
    columns = [*COLUMNS, *lines[0].by_class]
    print_table(f"{name} (%)", columns, [_method_cells(line) for line in lines])


def reproduce(
    name: Annotated[PaperDatasetName, typer.Argument(help="Data set of the paper.")],
    *,
    data: Annotated[
        Path, typer.Option(help="Directory of the data set: poses under pose, labels under gt.")
    ],
    results: Annotated[
        Path | None, typer.Option(help="Directory for the results; defaults to NAME-results.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Training runs; the paper has 20.")] = 20,
    jobs: FitJobsOption = 1,
    device: Device = "cpu",
    settings: SettingsFile = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and for how long, then exit.")
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
    from stepvad.evaluation.reproduce import (
        check_complete,
        deviations,
        open_choices,
        open_splits,
        paper_config,
        paper_experiments,
        reproduced_figures,
    )
    from stepvad.evaluation.runs import SweepPlace, sweep

    if table is not None:
        check_output(table)
    check_complete(name, data)
    config, rare = configured_with(paper_config(name), settings, ReproduceSettings())
    experiments = paper_experiments(name, config, runs)
    splits = open_splits(name, data)
    compute = Compute(device=device, precision=rare.precision)
    place = SweepPlace(
        data=data,
        results=results or Path(f"{name}-results"),
        compute=compute,
        checkpoints=True,
    )
    differs = deviations(name, config, runs, splits["full"])
    _say_what_differs(name, splits, differs)
    choices = open_choices(name, config, splits["full"], compute)
    say(f"choices that the paper leaves open: {'; '.join(choices)}")
    if dry_run:
        _foretell(place, experiments, runs)
        return
    with progress_bars() as report:
        finished = sweep(experiments, place, jobs=jobs, executor=rare.executor, report=report)
        lines = reproduced_figures(name, finished, splits, report)
    _show(name, lines, runs, table, "verdict" if not differs else f"verdict, {NOT_THE_PAPERS}")


def _say_what_differs(
    name: PaperDatasetName, splits: Mapping[Split, Dataset], differs: list[str]
) -> None:
    """Report all differences from the paper's experiment."""
    from stepvad.evaluation.reproduce import HUMAN_RELATED, SETUPS

    if differs:
        say(f"{NOT_THE_PAPERS}: {', '.join(differs)}")
    if len(splits) < len(SETUPS[name].splits):
        say(f"no {HUMAN_RELATED}: the lines of the human-related split are left out")
    if name == "msad":
        say("the reference smoothing of MSAD is none: smoothed lines equal raw ones")


def _show(
    name: PaperDatasetName,
    lines: list[ReproducedFigure],
    runs: int,
    table: Path | None,
    verdict: str,
) -> None:
    """Print the table, write it to a file if asked, and report how many figures hold."""
    rows, columns = [_cells(line) for line in lines], [*FIGURES, verdict]
    over = f"mean ± deviation over {runs} runs" if runs > 1 else "one run"
    print_table(f"{name}, {over} (%)", columns, rows)
    judged = [line.figure.holds(line.ours.mean) for line in lines if line.figure is not None]
    say(f"{sum(judged)} of {len(judged)} figures of the paper hold")
    if table is not None:
        write_table(columns, rows, table)
        say(f"written: {table}")


def _cells(line: ReproducedFigure) -> list[str]:
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


def _foretell(place: SweepPlace, experiments: list[Experiment], runs: int) -> None:
    """Print what would run and about how long it trains: a few real steps are timed."""
    from stepvad.evaluation.runs import digest_of
    from stepvad.model import training
    from stepvad.model.footage import Footage

    dataset, config = place.open(), experiments[0].config
    footage = Footage.read(dataset.train_clips(), config)
    steps = config.epochs * ceil(len(footage) / config.batch_size)
    batch, timed = min(len(footage), config.batch_size), replace(config, max_steps=steps)
    hours = steps * training.time_steps(batch, timed, place.compute) / 3600
    digest = digest_of(dataset)
    missing = {e.fitting for e in experiments if not place.file(e, digest).exists()}
    typer.echo(f"{dataset.name}: fitted on {footage.n_clips:,} clips, {len(footage):,} windows")
    typer.echo(f"one run: {config.epochs:,} epochs, {steps:,} steps, width {config.width}")
    typer.echo(f"runs: {runs}, of which {runs - len(missing)} are in {place.results}")
    device = place.compute.device
    typer.echo(f"training on {device}: {hours:.2g} hours a run, {hours * len(missing):.2g} in all")
    typer.echo("a first answer: fewer --runs; more can be added later to the same results")
