"""stepvad benchmark runtimes: compare the scores of all runtimes on a data set."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stepvad.cli.engine import load_detector
from stepvad.cli.terminal import AsJson, ModelFile, print_json, print_table, progress_bars

if TYPE_CHECKING:
    from stepvad.config import Engine, Runtime

COLUMNS = ("runtime", "AUROC", "moved", "rank corr.", "top 1 %", "deviation", "seconds")


def runtimes(
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Data set: poses under pose, labels under gt.")],
    *,
    names: Annotated[
        str, typer.Option("--runtimes", help="Comma-separated names, or `all`.")
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """Score a data set on every runtime of this machine and compare with numpy in float32.

        stepvad benchmark runtimes model.safetensors people

    AUROC is over all frames, online and not smoothed; `moved` is its change in points. `top 1 %` is
    the share of the highest-scoring windows that are the same.
    """
    from stepvad.evaluation.agreement import agreement
    from stepvad.evaluation.datasets import open_dataset

    detector = load_detector(model)
    width = detector.config.width
    some = None if names == "all" else [engine_of(name, width) for name in names.split(",")]
    with progress_bars() as report:
        lines = [*agreement(detector, open_dataset(data), some, report=report)]
    if as_json:
        print_json([asdict(line) for line in lines])
        return
    rows = [
        [
            line.engine,
            f"{100 * line.auroc:.3f}",
            f"{line.moved:+.3f}",
            f"{line.rank_correlation:.6f}",
            f"{100 * line.top:.1f}",
            f"{line.deviation:.6f}",
            f"{line.seconds:.1f}",
        ]
        for line in lines
    ]
    print_table(f"{model.name} on {data.name}", COLUMNS, rows)


def engine_of(name: str, width: int) -> Engine:
    """The engine with this name; raises if unknown or unavailable."""
    from stepvad.model.runtime import choose

    return choose(cast("Runtime", name), width=width)  # it checks
