"""stepvad benchmark reproduce: recompute the figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.options import Device, ExecutorName, FitJobsOption, PrecisionName, TableFile
from stepvad.cli.terminal import check_output, print_table, progress_bars, say, write_table
from stepvad.config import Compute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepvad.evaluation.datasets import Dataset, Split
    from stepvad.evaluation.experiment import Experiment
    from stepvad.evaluation.forecast import DatasetPart, Forecast
    from stepvad.evaluation.reproduction import ReproducedFigure
    from stepvad.evaluation.sweep import SweepPlace

PaperDatasetName = Literal["ubnormal", "shanghaitech", "msad"]
COLUMNS = ("split", "protocol", "scores", "aggregation", "metric", "ours", "paper", "table")
NOT_THE_PAPERS = "not the paper's settings"
"""Note on figures computed with other settings than the paper's."""
PROTOCOLS = {"latest": "online", "backtrack": "backtrack"}


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
    executor: ExecutorName = "processes",
    device: Device = "cpu",
    precision: PrecisionName = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and for how long, then exit.")
    ] = False,
    table: TableFile = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs, if fewer than the paper's 400.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Hidden units, if fewer than the paper's 1024.")
    ] = None,
) -> None:
    """Train and evaluate as the paper does, and report which of its figures hold.

    Show the plan, and how long it takes on this machine:

        stepvad benchmark reproduce ubnormal --data UBnormal --dry-run

    Run all of it; you can stop at any time, and the same command resumes it:

        stepvad benchmark reproduce ubnormal --data UBnormal --table ubnormal.md

    400 epochs with the data set's learning rate, early stopping by validation AUROC on UBnormal,
    20 runs; every split, online and backtrack, raw and smoothed, four aggregations, AUROC and AP.
    A figure holds if ours is within 0.5 points or within the paper's standard deviation. Results
    already in RESULTS are reused if the same code, device, engine and precision made them.
    """
    from stepvad.evaluation import reproduction
    from stepvad.evaluation.sweep import SweepPlace, sweep

    if table is not None:
        check_output(table)
    reproduction.check(name, data)
    settings = reproduction.config(name, epochs=epochs, width=width)
    experiments = reproduction.experiments(name, settings, runs)
    splits = reproduction.open_splits(name, data)
    compute = Compute(device=device, precision=precision)
    place = SweepPlace(
        data=data,
        results=results or Path(f"{name}-results"),
        compute=compute,
        checkpoints=True,
    )
    differs = reproduction.deviations(name, settings, runs, splits["full"])
    _say_what_differs(name, splits, differs)
    choices = reproduction.open_choices(name, settings, splits["full"], compute)
    say(f"choices that the paper leaves open: {'; '.join(choices)}")
    if dry_run:
        _foretell(name, place, experiments, runs)
        return
    with progress_bars() as report:
        finished = sweep(experiments, place, jobs=jobs, executor=executor, report=report)
        lines = reproduction.lines(name, finished, splits, report)
    _show(name, lines, runs, table, "verdict" if not differs else f"verdict, {NOT_THE_PAPERS}")


def _say_what_differs(
    name: PaperDatasetName, splits: Mapping[Split, Dataset], differs: list[str]
) -> None:
    """Report all differences from the paper's experiment."""
    from stepvad.evaluation.reproduction import HUMAN_RELATED, SETUPS

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
    rows, columns = [_cells(line) for line in lines], [*COLUMNS, verdict]
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


def _foretell(
    name: PaperDatasetName, place: SweepPlace, experiments: list[Experiment], runs: int
) -> None:
    """Print what would run and how long it takes; reads the data and trains a few steps."""
    from stepvad.evaluation.forecast import forecast
    from stepvad.evaluation.reproduction import SETUPS
    from stepvad.evaluation.sweep import digest_of

    first = experiments[0]
    with progress_bars() as report:
        dataset = place.open()
        expected = forecast(
            dataset,
            first.config,
            validated=first.best_on_validation,
            compute=place.compute,
            report=report,
        )
        digest = digest_of(dataset)
    missing = {e.fitting for e in experiments if not place.file(e, digest).exists()}
    for line in [
        *_plan(name, first, expected),
        f"runs: {runs}, of which {runs - len(missing)} are in {place.results}",
        *_durations(expected, len(SETUPS[name].aggregations), len(missing), place.compute.device),
    ]:
        typer.echo(line)


def _plan(name: PaperDatasetName, experiment: Experiment, expected: Forecast) -> list[str]:
    """Describe one run."""
    config = experiment.config
    parts = [f"to fit on {_words(expected.train)}", f"to test on {_words(expected.test)}"]
    kept = "the last epoch is kept"
    if expected.validation is not None:
        parts.append(f"to choose the epoch with {_words(expected.validation)}")
        kept = "the epoch with the best validation AUROC is kept"
    return [
        f"{name}: {'; '.join(parts)}",
        f"one run: {_many(config.epochs, 'epoch')} of {_many(expected.steps_per_epoch, 'step')}, "
        f"{_many(expected.steps, 'step')} of up to {config.batch_size:,} windows, "
        f"learning rate {config.learning_rate:g}, T = {config.T}, K = {config.K}, "
        f"width {config.width}; {kept}",
    ]


def _durations(expected: Forecast, looks: int, runs: int, device: str) -> list[str]:
    """Describe how long it takes on this machine, and how to shorten it."""
    run_s = expected.run_s(looks)
    lines = [
        f"measured here on {device}: {1000 * expected.step_s:,.1f} ms a step, "
        f"{1e6 * expected.window_s:,.1f} µs a window scored",
        f"one run takes about {_duration(run_s)}: training {_duration(expected.training_s)}, "
        f"scoring {_duration(run_s - expected.training_s)}; the {_many(runs, 'run')} to do, one "
        f"after the other, {_duration(runs * run_s)}",
    ]
    if expected.has_cuda and device == "cpu":
        lines.append("faster: --device cuda, which is there")
    elif not device.startswith("cuda"):
        lines.append("faster: a machine with a CUDA device, and --device cuda; there is none here")
    lines.append("a first answer: fewer --runs; more can be added later to the same results")
    return lines


def _words(part: DatasetPart) -> str:
    return f"{_many(part.clips, 'clip')} with {_many(part.windows, 'window')}"


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _duration(seconds: float) -> str:
    """A duration in a suitable unit."""
    for unit, length in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"
