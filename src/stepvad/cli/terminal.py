"""What every verb shows: progress bars, tables and JSON; data to stdout, all else to stderr."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepvad.errors import StepvadError
from stepvad.progress import Progress, Report

if TYPE_CHECKING:
    from stepvad.windows import Counts

ModelFile = Annotated[Path, typer.Argument(help="A model file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

TABLE_WIDTH = 200
"""Room for a table; a narrower terminal breaks its lines rather than losing digits."""


def say(text: str) -> None:
    """A word for the person at the terminal, on stderr."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """Data for a program, on stdout; NaN becomes null."""
    typer.echo(json.dumps(_strict(value), indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Data for a person, on stdout: words to the left, numbers to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        numeric = all(row[number][:1] in "0123456789-+" for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, width=TABLE_WIDTH, highlight=False).print(table)


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], path: Path) -> None:
    """A table as .csv, or else as Markdown to stand in a page."""
    from stepvad.atomic import replacing

    lines = [columns, *rows]
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerows(lines)
            return
        lines.insert(1, ["---", *["--:"] * (len(columns) - 1)])
        file.writelines(f"| {' | '.join(line)} |\n" for line in lines)


@contextmanager
def progress_bars() -> Iterator[Report]:
    """Bars on stderr while something runs, one per stage, with rate and remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = ("{task.description:<11}", "{task.fields[rate]}", "{task.fields[note]}")
    stage, rate, note = (TextColumn(column, markup=False) for column in columns)
    layout = (stage, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), note)
    tasks: dict[str, _Stage] = {}
    console = Console(stderr=True)
    with Bars(*layout, console=console, transient=True, disable=not console.is_terminal) as bars:

        def report(progress: Progress) -> None:
            if progress.stage not in tasks:
                task = bars.add_task(progress.stage, total=None, rate="", note="")
                tasks[progress.stage] = _Stage(task)
            stage = tasks[progress.stage]
            bars.update(
                stage.task,
                completed=progress.done,
                total=progress.total or None,
                rate=stage.rate(progress.done),
                note=progress.note,
            )

        yield report


class _Stage:
    """One bar, and since when it counts."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self._started, self._done = time.monotonic(), 0

    def rate(self, done: int) -> str:
        """Units per second since the stage started, or started over."""
        if done < self._done:
            self._started = time.monotonic()
        self._done = done
        speed = done / max(time.monotonic() - self._started, 1e-3)
        return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"


def mended_words(counts: Counts) -> list[str]:
    """What was mended on the way from poses to windows, in words."""
    from dataclasses import asdict

    mended = {name: n for name, n in asdict(counts).items() if n and name != "poses"}
    return [f"{n:,} {name.replace('_', ' ')}" for name, n in mended.items()]


def check_output(path: Path) -> None:
    """Refuse an output that could not be written, before the work and not after it."""
    parent = path.resolve().parent
    if not parent.is_dir() or path.is_dir() or not os.access(parent, os.W_OK):
        raise StepvadError(
            f"{path}: expected a file name in a directory that exists and can be written",
            hint="make the directory first, or choose another name",
        )


def _strict(value: Any) -> Any:
    """The same value as strict JSON has it."""
    if isinstance(value, dict):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
