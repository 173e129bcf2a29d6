"""What every verb shows: progress bars, tables and JSON; data to stdout, all else to stderr."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stepvad.errors import StepvadError
from stepvad.progress import Progress, Report

if TYPE_CHECKING:
    from stepvad.poses import Clip
    from stepvad.windows import Counts

FormatName = Literal["auto", "alphapose", "poselift", "coco", "tracks"]
Format = Annotated[FormatName, typer.Option("--format", help="Layout of the pose files.")]
UPRIGHT = 0.85
"""Share of poses with the ankles below the nose that footage of people has; swapped, it is 0.5."""
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


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

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        numeric = all(row[number][:1] in "0123456789-+" for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width to fit
    console.print(table)


@contextmanager
def progress_bars() -> Iterator[Report]:
    """Bars on stderr while something runs, one per stage, with rate and remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = ("{task.description:<11}", "{task.fields[rate]}", "{task.fields[note]}")
    stage, rate, note = (TextColumn(column) for column in columns)
    layout = (stage, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), note)
    tasks: dict[str, tuple[Any, float]] = {}
    console = Console(stderr=True)
    with Bars(*layout, console=console, transient=True, disable=not console.is_terminal) as bars:

        def report(progress: Progress) -> None:
            if progress.stage not in tasks:
                task = bars.add_task(progress.stage, total=None, rate="", note="")
                tasks[progress.stage] = (task, time.monotonic())
            task, started = tasks[progress.stage]
            speed = progress.done / max(time.monotonic() - started, 1e-3)
            bars.update(
                task,
                completed=progress.done,
                total=progress.total or None,
                rate=f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s",
                note=progress.note,
            )

        yield report


def read_poses(
    paths: Sequence[Path], format: FormatName, report: Report, *, fps: float | None = None
) -> Iterator[Clip]:
    """The clips of all files and directories given, with a bar over the files."""
    from stepvad.formats import clip_files, read_clips

    files = [file for path in paths for file in clip_files(path, format=format)]
    n_poses = n_upright = 0
    with _readers_notes():
        for number, file in enumerate(files, start=1):
            for clip in read_clips(file, format=format, fps=fps):
                upright = clip.n_upright()
                if upright is not None:
                    n_poses, n_upright = n_poses + clip.n_poses, n_upright + upright
                yield clip
            report(Progress("reading", number, len(files), file.name))
    if n_upright < UPRIGHT * n_poses:
        say(
            f"warning: only {n_upright:,} of {n_poses:,} poses have their ankles below the nose; "
            "if people should stand upright, x and y may be swapped (--format poselift swaps them)"
        )


def mended_words(counts: Counts) -> list[str]:
    """What was mended on the way from poses to windows, in words."""
    from dataclasses import asdict

    mended = {name: n for name, n in asdict(counts).items() if n and name != "poses"}
    return [f"{n:,} {name.replace('_', ' ')}" for name, n in mended.items()]


def check_output(path: Path) -> None:
    """Refuse an output that could not be written, before the work and not after it."""
    if not path.resolve().parent.is_dir() or path.is_dir():
        raise StepvadError(
            f"{path}: expected a file name in a directory that exists",
            hint="make the directory first, or choose another name",
        )


@contextmanager
def _readers_notes() -> Iterator[None]:
    """What the readers notice goes to stderr, each thing once."""
    logger = logging.getLogger("stepvad.formats")
    handler = logging.StreamHandler()
    handler.addFilter(_Once())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Once(logging.Filter):
    """Lets each kind of message through once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this message's wording is new."""
        new = str(record.msg) not in self._seen
        self._seen.add(str(record.msg))
        return new


def _strict(value: Any) -> Any:
    """The same value as strict JSON has it."""
    if isinstance(value, dict):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
