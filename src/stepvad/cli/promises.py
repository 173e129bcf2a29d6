"""stepvad benchmark promises: check that calibrated thresholds keep their promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.engine import RuntimeName
from stepvad.cli.groups import grouped
from stepvad.cli.options import Components, FitOptions, FpsOption, numbers
from stepvad.cli.poses import read_poses
from stepvad.cli.terminal import print_table, progress_bars
from stepvad.config import Compute, Config

if TYPE_CHECKING:
    from stepvad.evaluation.promises import Found, PromiseResult

COLUMNS = ("promised per hour", "kept", "observed", "95 %", "threshold", "by tail", "refused")


SMALL_FIT = FitOptions()


@grouped
def promises(
    data: Annotated[Path, typer.Argument(help="Data set: poses under pose, labels under gt.")],
    *,
    normal: Annotated[
        list[Path] | None,
        typer.Option(help="Normal footage; by default half of the training clips are held out."),
    ] = None,
    rates: Annotated[
        str, typer.Option(help="False events per hour to promise, comma-separated.")
    ] = "2,1,0.5,0.2,0.1",
    splits: Annotated[int, typer.Option(min=1, help="Number of random splits.")] = 40,
    share: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Share of the footage to calibrate on.")
    ] = 0.3,
    fps: FpsOption = None,
    K: Components = 48,
    fitted: FitOptions = SMALL_FIT,
    runtime: RuntimeName = "auto",
) -> None:
    """Split normal footage at random, calibrate on one part and count false events on the rest.

        stepvad benchmark promises people --fps 25 --splits 30

    A promise is kept if the unseen part has no more events per hour than promised. Also lists how
    many true events of the test clips are found at these thresholds and at two common choices: the
    highest score of the training clips, and the 99th percentile of normal frames.
    """
    from stepvad.evaluation.datasets import open_dataset
    from stepvad.evaluation.promises import keep_promises, measure

    promised = numbers("--rates", rates)
    config = fitted.applied(replace(Config.short(), K=K))
    with progress_bars() as report:
        measured = measure(
            open_dataset(data),
            [*read_poses(normal, "auto", report, fps=fps)] if normal else None,
            config,
            fps=fps,
            compute=Compute(runtime=runtime),
            report=report,
        )
        lines = keep_promises(measured.counted, promised, splits=splits, share=share)
    hours = measured.counted.total_hours
    title = f"{hours:.3g} hours of normal footage, {100 * share:g} % to calibrate, {splits} splits"
    print_table(title, COLUMNS, [_cells(line) for line in lines])
    chosen = [(f"promised {line.rate:g} per hour", line.threshold) for line in lines]
    chosen += [("highest score in training", measured.highest), ("99 % of frames", measured.p99)]
    found = [(words, measured.found(value)) for words, value in chosen if value == value]
    columns = ("threshold", "value", "true events found", "false events per hour")
    print_table("what thresholds find", columns, [_found(words, one) for words, one in found])


def _cells(line: PromiseResult) -> list[str]:
    if not line.promised:
        return [f"{line.rate:g}", "-", "-", "-", "-", "-", f"{line.refused}"]
    low, high = line.interval
    return [
        f"{line.rate:g}",
        f"{100 * line.kept:.0f} %",
        f"{line.observed:.3f}",
        f"{low:.2f} to {high:.2f}",
        f"{line.threshold:.2f}",
        f"{100 * line.tail:.0f} %",
        f"{line.refused}",
    ]


def _found(words: str, found: Found) -> list[str]:
    return [
        words,
        f"{found.threshold:.2f}",
        f"{100 * found.recall:.1f} %",
        f"{found.false_per_hour:.2f}",
    ]
