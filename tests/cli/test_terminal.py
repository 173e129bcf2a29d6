"""What a terminal shows, and options that several commands have."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from stepvad.cli import terminal
from stepvad.cli.options import configured, grouped
from stepvad.config import Config, Reference
from stepvad.errors import ConfigError, Progress
from tests.conftest import Command


def test_a_bar_shows_how_many_are_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    with terminal.progress_bars() as report:
        for done in range(900, 1001):
            time.sleep(0.005)
            report(Progress("experiments", done, 2000, "seed 3"))
    shown = capsys.readouterr().err
    # a hundred take half a second, thus the rest five; what was there before does not count
    assert "1000/2000" in shown
    assert re.search("0:00:0[4-9]|0:00:1|0:00:2", shown)
    assert "seed 3" in shown


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"a": float("nan"), "b": [np.float32(1.5)], 3: Progress("é", 1, 2)})
    told = json.loads(capsys.readouterr().out)
    facts = {"stage": "é", "done": 1, "total": 2, "note": ""}
    assert told == {"a": None, "b": [1.5], "3": facts}


def test_an_error_of_the_system_without_a_number_keeps_its_words(
    stepvad: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space in this place")

    monkeypatch.setattr("stepvad.cli.app", fail)
    run = stepvad("fit")
    assert run.code == 1
    assert "error: no space in this place" in run.err


def test_options_go_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "fit.toml"
    file.write_text('K = 12\nwidth = 32\njoints = "weighed"\n[reference]\nsmooth = 0.5\n')
    made = configured(Config.footage(), file, width=64, T=None)
    assert (made.K, made.width, made.joints, made.T) == (12, 64, "weighed", 12)
    assert made.reference == Reference(smooth=0.5)
    assert made.max_steps == Config.footage().max_steps


def test_a_number_of_epochs_lifts_the_limit_on_steps_unless_both_are_stated(tmp_path: Path) -> None:
    file = tmp_path / "fit.toml"
    file.write_text("epochs = 3\n")
    assert configured(Config.footage(), file).max_steps is None
    assert configured(Config.footage(), None, epochs=3).max_steps is None
    assert configured(Config.footage(), file, max_steps=7).max_steps == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning-rate = 1e-3", "learning-rate: expected a known setting, got an unknown"),
        ("views = []", "views: expected a known setting"),
        ("epochs = 'many'", "epochs: expected int, got 'many'"),
        ("K = 0", "K: expected at least 1, got 0"),
        ("K =", "expected settings in TOML, got: Invalid value"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_name(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "fit.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        configured(Config(), file)
    assert caught.value.problem.startswith(f"{file}: {message}")


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.")]
    height: Annotated[int, typer.Option("--height", "-y", help="How high.")] = 2


@dataclass(frozen=True)
class Pen:
    colour: Annotated[str, typer.Option(help="Of the line.")] = "black"


app = typer.Typer()


@app.command()
@grouped
def draw(
    name: Annotated[str, typer.Argument()], *, size: Size, pen: Pen, twice: bool = False
) -> None:
    """Draw something."""
    typer.echo(f"{name} {size.width}x{size.height} {pen.colour} {twice}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box", "--width", "3"], "box 3x2 black False"),
        (["box", "--width", "3", "-y", "4", "--colour", "blue", "--twice"], "box 3x4 blue True"),
    ],
)
def test_every_field_is_an_option_and_the_value_has_them_all(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.output.strip()) == (0, said)


def test_a_field_without_a_default_is_needed() -> None:
    done = CliRunner().invoke(app, ["box"])
    assert done.exit_code == 2
    assert "--width" in done.output


def test_help_names_every_option_and_no_group() -> None:
    words = CliRunner().invoke(app, ["--help"]).output
    assert all(word in words for word in ("Draw something.", "--width", "--colour", "How high."))
    assert "--size" not in words
    assert "--pen" not in words
