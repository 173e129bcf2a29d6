"""The command line: one module per command, which parses options, calls the library and prints."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer
from typer import Option

from stepvad.cli.archive import archive
from stepvad.cli.events import events
from stepvad.cli.extract import extract, models
from stepvad.cli.files import convert, export, inspect
from stepvad.cli.fit import calibrate, fit
from stepvad.cli.fleet import fleet
from stepvad.cli.research import compare, evaluate, reproduce, walkers
from stepvad.cli.score import explain, overlay, report, score
from stepvad.cli.terminal import say, say_error
from stepvad.cli.users import users
from stepvad.cli.watch import watch
from stepvad.errors import StepvadError, os_reason

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def stepvad(*, version: bool = Option(False, "--version", help="Show the version.")) -> None:
    """Learn how people normally move, and detect when someone does not.

    See it at once, on a bundled scene:

        stepvad watch --demo

    Train a model on synthetic people, and measure it:

        stepvad walkers people

        stepvad fit people/pose/train -o model.safetensors

        stepvad evaluate model.safetensors people

    Every command has more examples in its own --help. To train is `fit`, to run is `watch`, to draw
    is `overlay`, and a threshold comes from `calibrate`.
    """
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("stepvad"))
        raise typer.Exit


PANELS: dict[str, tuple[Any, ...]] = {
    "Poses and models": (
        *(extract, models, convert, inspect, fit, calibrate, score, explain, report, overlay),
        *(export, archive),
    ),
    "A site": (watch, events, users),
    "Research": (evaluate, compare, reproduce, walkers),
    "Many sites": (fleet,),
}
"""Commands and groups of commands by what they are for, in their usual order of use."""

WAITING_THREADS = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Make waiting threads sleep: spinning slows fitting down many times on a busy machine."""

for panel, verbs in PANELS.items():
    for verb in verbs:
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, rich_help_panel=panel)
        else:
            app.command(no_args_is_help=verb is not models, rich_help_panel=panel)(verb)


def main() -> None:
    """Run the command line; errors are printed as a sentence and a hint, without a traceback."""
    for name, value in WAITING_THREADS.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            app()
    except StepvadError as error:
        _fail(error.problem, error.hint)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{os_reason(error)}", "check the path, its permissions and the free space")


def _fail(problem: str, hint: str) -> None:
    say_error(problem, hint)
    sys.exit(1)
