"""stepvad benchmark compare: compare methods on one data set."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.options import (
    ExecutorName,
    FitJobsOption,
    FpsOption,
    FrameNames,
    LearningRate,
    MaxSteps,
    PlacementName,
    RuntimeName,
    Seeds,
    Smoothed,
    SplitName,
    Width,
)
from stepvad.cli.terminal import check_output, print_table, progress_bars, say, write_table
from stepvad.config import Compute, Config

if TYPE_CHECKING:
    from stepvad.evaluation.comparison import MethodResult

METHODS = "step,raw-modulated,raw,vanilla,knn,mahalanobis"


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
    seeds: Seeds = 3,
    split: SplitName = "full",
    T: Annotated[int, typer.Option("--T", help="Frames in a window.")] = 12,
    K: Annotated[int, typer.Option("--K", help="Principal components to keep.")] = 48,
    width: Width = 256,
    max_steps: MaxSteps = 1000,
    learning_rate: LearningRate = 2e-3,
    jitter: Annotated[float, typer.Option(min=0, help="Noise added to the test windows.")] = 0.0,
    fps: FpsOption = None,
    placement: PlacementName = "latest",
    smoothed: Smoothed = False,
    frames: FrameNames = "all",
    jobs: FitJobsOption = 1,
    executor: ExecutorName = "processes",
    runtime: RuntimeName = "auto",
    table: Annotated[
        Path | None, typer.Option(help="Table file: .csv, otherwise Markdown.")
    ] = None,
) -> None:
    """Fit methods on a data set's training clips and evaluate them on its test clips.

    Besides STEP (step): step-unweighted, step-unwhitened, vanilla, raw-modulated,
    raw-modulated-unweighted, raw, raw-unweighted, knn, knn-5, knn-unweighted, knn-unwhitened,
    mahalanobis, views.
    raw-modulated is STEP without PCA, raw is MULDE with confidence weights.

    Trivial scores are always listed for comparison: the number of people, the negative confidence,
    a random score, the speed of the body, and its distance to places of training footage.

        stepvad benchmark compare people results --methods step,raw,knn --seeds 1

    Your own method is a CustomMethod in one of your modules, your own data set a CustomDataset; the
    module is imported from this directory or from Python's path:

        stepvad benchmark compare people results --methods step,mine:speed

    Your own method runs once, after the others, and its scores are not kept.

    Mean and deviation are over seeds, the interval is over clips, and the lead is that of the
    first method, paired over clips. Results already in RESULTS are reused if
    the same code, engine and precision made them.

    The ray executor uses the cluster that RAY_ADDRESS names, otherwise this machine only. All
    machines of a cluster must see DATA and RESULTS in the same place.
    """
    from stepvad.evaluation import comparison, custom
    from stepvad.evaluation.sweep import SweepPlace

    if table is not None:
        check_output(table)
    base = replace(
        Config.short(), T=T, K=K, width=width, max_steps=max_steps, learning_rate=learning_rate
    )
    names = [*comparison.VARIANTS] if methods == "all" else methods.split(",")
    if any(map(custom.is_name, [data, *names])):
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    place = SweepPlace(data=data, results=results, split=split, compute=Compute(runtime=runtime))
    with progress_bars() as report:
        lines = comparison.compare(
            names,
            place,
            config=base,
            seeds=[*range(seeds)],
            jitter=jitter,
            fps=fps,
            placement=placement,
            smoothed=smoothed,
            frames=frames,
            jobs=jobs,
            executor=executor,
            report=report,
        )
    _print_lines(place.open().name, lines)
    if table is not None:
        write_table([*COLUMNS, *lines[0].by_class], [_cells(line) for line in lines], table)
        say(f"written: {table}")


COLUMNS = ["method", "AUROC", "over seeds", "95 % over clips", "lead of the first", "AP", "EER"]


def _cells(line: MethodResult) -> list[str]:
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
    print_table(f"{name} (%)", columns, [_cells(line) for line in lines])
