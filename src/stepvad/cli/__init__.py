"""The command line: one module per command, which parses options, calls the library and prints."""

from __future__ import annotations

import os
import sys
import warnings

import typer

from stepvad.cli.archive import archive
from stepvad.cli.benchmark import benchmark
from stepvad.cli.convert import convert
from stepvad.cli.evaluate import evaluate
from stepvad.cli.events import events
from stepvad.cli.explain import explain
from stepvad.cli.export import export
from stepvad.cli.extract import extract
from stepvad.cli.fit import calibrate, fit
from stepvad.cli.fleet import fleet
from stepvad.cli.inspect import inspect
from stepvad.cli.learning import learning
from stepvad.cli.models import models
from stepvad.cli.notify import notify
from stepvad.cli.overlay import overlay
from stepvad.cli.report import report
from stepvad.cli.score import score
from stepvad.cli.terminal import say, say_error
from stepvad.cli.users import users
from stepvad.cli.watch import watch
from stepvad.errors import StepvadError, os_reason

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def stepvad(*, version: bool = typer.Option(False, "--version", help="Show the version.")) -> None:
    """Learn how people normally move, and detect when someone does not.

    A first run, on synthetic people:

        stepvad benchmark walkers people

        stepvad fit people/pose/train -o model.safetensors

        stepvad evaluate model.safetensors people

    Every command has more examples in its own --help.
    """
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("stepvad"))
        raise typer.Exit


VERBS = (
    *(
        extract,
        fit,
        calibrate,
        score,
        overlay,
        evaluate,
        explain,
        report,
    ),
    *(watch, convert, inspect, export),
)
"""Commands in their usual order of use."""

WAITING_THREADS = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Make waiting threads sleep: spinning slows fitting down many times on a busy machine."""

for verb in VERBS:
    app.command(verb.__name__, no_args_is_help=True)(verb)
app.add_typer(models, name="models")
app.add_typer(events, name="events")
app.add_typer(learning, name="learning")
app.add_typer(users, name="users")
app.add_typer(notify, name="notify")
app.add_typer(archive, name="archive")
app.add_typer(benchmark, name="benchmark")
app.add_typer(fleet, name="fleet")


def main() -> None:
    """Run the command line; errors are printed as a sentence and a hint, without a traceback."""
    for name, value in WAITING_THREADS.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app()
    except StepvadError as error:
        _fail(error.problem, error.hint)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{os_reason(error)}", "check the path, its permissions and the free space")


def _warn(message: Warning | str, *_where: object, **_more: object) -> None:
    say(f"warning: {message}")


def _fail(problem: str, hint: str) -> None:
    say_error(problem, hint)
    sys.exit(1)
