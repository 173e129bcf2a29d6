"""Terminal output: progress bars, tables and JSON; data to stdout, everything else to stderr."""

from __future__ import annotations

import csv
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from typer import echo

from stepvad.codec import encode
from stepvad.errors import MissingExtraError, Progress, Report, StepvadError
from stepvad.files import replacing

if TYPE_CHECKING:
    from stepvad.windows.body import Repairs

FLEET = ("pydantic", "msgpack", "nats", "asyncpg")
"""Libraries of the fleet extra."""
DAY_S = 86400.0
TABLE_WIDTH = 200
"""Width of a table; a narrower terminal wraps lines instead of truncating digits."""


def say(text: str) -> None:
    """Print a message for the user to stderr."""
    echo(text, err=True)


def say_error(problem: str, hint: str) -> None:
    """Print the problem, a blank line, and the hint."""
    say(f"error: {problem}" + (f"\n\nhint: {hint}" if hint else ""))


def print_json(value: Any) -> None:
    """Print data as JSON to stdout."""
    echo(json_text(value))


def json_text(value: Any) -> str:
    """Data as JSON; NaN becomes null."""
    return msgspec.json.format(encode(value)).decode()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout, with text left-aligned and numbers right-aligned."""
    from rich import console, table, text

    grid = table.Table(box=None, pad_edge=False)
    # a column is numeric if all its cells are
    for number, column in enumerate(columns):
        numeric = all(row[number][:1] in "0123456789-+" for row in rows)
        grid.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*map(text.Text, row))
    out = console.Console(file=sys.stdout, width=TABLE_WIDTH, highlight=False)
    if title:  # apart, because a title within a table wraps at its width
        out.print(text.Text(title, style="table.title"))
    out.print(grid)


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], path: Path) -> None:
    """Write a table as CSV if the suffix is .csv, otherwise as Markdown."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])
            return
        # Markdown: the first column left, numbers right
        rule = ["---", *["--:"] * (len(columns) - 1)]
        file.writelines(f"| {' | '.join(row)} |\n" for row in [columns, rule, *rows])


@contextmanager
def progress_bars() -> Iterator[Report]:
    """Show progress bars on stderr, one per stage, with elapsed and remaining time."""
    from rich import console as consoles
    from rich import progress as rich

    name = rich.TextColumn("{task.description:<11}", markup=False)
    times = rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
    note = rich.TextColumn("{task.fields[note]}", markup=False)
    layout = (name, rich.BarColumn(), rich.MofNCompleteColumn(), *times, note)
    console = consoles.Console(stderr=True)
    hidden = not console.is_terminal
    tasks: dict[str, rich.TaskID] = {}
    bars = rich.Progress(
        *layout, console=console, transient=True, disable=hidden, speed_estimate_period=DAY_S
    )
    with bars:

        def report(progress: Progress) -> None:
            stage, done, total = progress.stage, progress.done, progress.total or None
            if stage not in tasks:
                # results from before this run would make the rest seem too short
                tasks[stage] = bars.add_task(stage, completed=done, total=total, note="")
            bars.update(tasks[stage], completed=done, total=total, note=progress.note)

        yield report


def local_time(seconds: float | None, unit: str = "seconds") -> str:
    """A unix time as date and time of this machine, to the second or to another unit."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", unit)


def repair_words(counts: Repairs) -> list[str]:
    """Descriptions of the repairs made from poses to windows."""
    repairs = {name: n for name, n in asdict(counts).items() if n and name != "poses"}
    return [f"{n:,} {name.replace('_', ' ')}" for name, n in repairs.items()]


def check_output(path: Path, *suffixes: str, or_directory: bool = False) -> None:
    """Before the work starts, reject an output that cannot be written, or has another suffix."""
    if or_directory and path.is_dir():
        return
    parent = path.resolve().parent
    if not parent.is_dir() or path.is_dir() or not os.access(parent, os.W_OK):
        raise StepvadError(
            f"{path}: expected a file name in a directory that exists and can be written",
            hint="create the directory first, or choose another name",
        )
    if suffixes and path.suffix.lower() not in suffixes:
        directory = ", or a directory that exists" if or_directory else ""
        raise StepvadError(
            f"{path}: expected a name that ends in {' or '.join(suffixes)}{directory}",
            hint=f"choose a name such as {path.stem}{suffixes[0]}"
            + (", or create the directory first" if or_directory else ""),
        )


def check_picture(path: Path, *, or_directory: bool = False) -> None:
    """Before the work starts, reject a picture that cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("plot", "plots")
    check_output(path, ".png", or_directory=or_directory)


def check_fleet() -> None:
    """Raise if the libraries of the fleet extra are not installed."""
    if any(importlib.util.find_spec(name) is None for name in FLEET):
        raise MissingExtraError("fleet", "fleet")


@contextmanager
def notes_of(part: str, *, once: bool = False) -> Iterator[None]:
    """Send the log messages of a part of the library to stderr; with `once`, each kind once."""
    logger, handler = logging.getLogger(part), _Notes(once)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Notes(logging.StreamHandler[Any]):
    """Prints log messages, with a prefix for warnings."""

    def __init__(self, once: bool) -> None:
        super().__init__()
        self._once = once
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, unless one of its wording was printed and one is enough."""
        wording = str(record.msg)
        if not self._once or wording not in self._printed:
            self._printed.add(wording)
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """The message, prefixed if it is a warning or worse."""
        text = super().format(record)
        return f"warning: {text}" if record.levelno >= logging.WARNING else text
