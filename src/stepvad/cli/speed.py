"""stepvad benchmark speed: measure the speed of scoring on this machine."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.terminal import (
    AsJson,
    check_output,
    print_json,
    print_table,
    progress_bars,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepvad.evaluation.speed import SpeedResult

COLUMNS = (
    *("threads", "people", "way", "ms", "low", "high", "windows/s", "of limit"),
    *("of own", "x naive", "MB", "deviation", "rank corr."),
)


def speed(
    *,
    model: Annotated[
        Path | None,
        typer.Option(help="Model file; by default one of the paper's size is fitted."),
    ] = None,
    people: Annotated[
        list[int] | None, typer.Option(min=1, help="Windows scored at once; repeatable.")
    ] = None,
    threads: Annotated[
        list[int] | None, typer.Option(min=1, help="Number of threads; repeatable.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Readings per figure.")] = 9,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Results as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot of the results as .png.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time every scoring engine against the bare matrix products of the network.

    Everything, in about ten minutes:

        stepvad benchmark speed --model model.safetensors -o speed.csv --plot speed.png

    A single case:

        stepvad benchmark speed --model model.safetensors --people 100 --threads 1

    Timed from raw windows in pixels to aggregated scores. The engines take turns, so a busy machine
    slows all of them alike; compare the ratios. The limit is the fastest library's bare products in
    the same precision.
    """
    from stepvad.evaluation.speed import PEOPLE, THREADS, run
    from stepvad.evaluation.speed.files import usual_model, write_csv

    for path in (output, plot):
        if path is not None:
            check_output(path)
    if model is None:
        say("no --model: fitting one of the paper's size on walkers")
    with progress_bars() as report, usual_model(model, report) as fitted:
        lines = run(
            fitted,
            people=people or PEOPLE,
            threads=threads or THREADS,
            repeats=repeats,
            report=report,
        )
    if output is not None:
        write_csv(lines, output)
    if plot is not None:
        _draw(lines, plot)
    if as_json:
        print_json([asdict(line) for line in lines])
        return
    print_table("from raw windows to scores", COLUMNS, _rows(lines))
    _print_paper()


def _rows(lines: Sequence[SpeedResult]) -> list[list[str]]:
    return [
        [
            str(line.threads),
            str(line.people),
            line.subject,
            *(f"{1000 * s:.2f}" for s in _times(line)),
            f"{line.people / line.median_s:.0f}",
            f"{line.of_limit:.2f}",
            *(
                _number(value, places)
                for value, places in (
                    (line.of_own, 2),
                    (line.times_naive, 2),
                    (line.memory_mb, 1),
                    (line.deviation, 6),
                    (line.rank_correlation, 6),
                )
            ),
        ]
        for line in lines
    ]


def _times(line: SpeedResult) -> tuple[float, float, float]:
    return line.median_s, line.low_s, line.high_s


def _number(value: float, places: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{places}f}"


def _draw(lines: Sequence[SpeedResult], path: Path) -> None:
    from stepvad.evaluation.speed import PAPER
    from stepvad.plots.speed import Curve, draw_speed

    panels: dict[str, list[Curve]] = {}
    for line in lines:
        panel = panels.setdefault(f"threads: {line.threads}", [])
        curve = next((curve for curve in panel if curve.label == line.subject), None)
        if curve is None:
            curve = Curve(line.subject, line.kind, {})
            panel.append(curve)
        curve.points[line.people] = _times(line)
    draw_speed(panels, {N: ms / 1000 for N, (ms, _) in PAPER.items()}, path)


def _print_paper() -> None:
    from stepvad.evaluation.speed import PAPER

    rows = [[str(N), f"{ms:.2f}", f"{N / ms * 1000:.0f}", f"{mb}"] for N, (ms, mb) in PAPER.items()]
    print_table("the paper, on a GTX 1080 (Supp. C)", ["people", "ms", "windows/s", "MB"], rows)
