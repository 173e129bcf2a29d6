"""What a terminal shows, and options that several commands have."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from stepvad.cli import terminal
from stepvad.cli.options import configured, configured_with, grouped
from stepvad.cli.research import CompareSettings
from stepvad.cli.terminal import _Stage
from stepvad.config import Config, Reference
from stepvad.errors import ConfigError, Progress
from tests.conftest import Command


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the bars believe in: the last of these."""
    times = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: times[-1])
    return times


def test_time_left_is_by_what_was_done_here_and_not_by_what_was_there(clock: list[float]) -> None:
    stage = _Stage(0)
    assert stage.pace(90, 100) == ""  # 90 results were there already
    clock.append(100.0 + 600)
    assert stage.pace(92, 100) == "300.0 s each, 0:40:00 left"
    clock.append(100.0 + 1600)
    assert stage.pace(98, 100) == "200.0 s each, 0:06:40 left"
    clock.append(100.0 + 2000)
    assert stage.pace(100, 100) == "200.0 s each"


def test_quick_stages_tell_a_rate_and_an_unknown_total_no_time_left(clock: list[float]) -> None:
    stage = _Stage(0)
    stage.pace(0, 0)
    clock.append(102.0)
    assert stage.pace(5000, 0) == "2,500/s"
    assert stage.pace(5000, 9000) == "2,500/s, 0:00:02 left"


def test_a_stage_that_starts_over_counts_anew(clock: list[float]) -> None:
    stage = _Stage(0)
    stage.pace(0, 10)
    clock.append(110.0)
    stage.pace(10, 10)
    clock.append(200.0)
    assert stage.pace(0, 10) == ""
    clock.append(206.0)
    assert stage.pace(2, 10) == "3.0 s each, 0:00:24 left"


def test_a_bar_shows_how_many_are_done_the_time_taken_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    with terminal.progress_bars() as report:
        report(Progress("experiments", 3, 9))
        clock.append(100.0 + 3 * 3600)
        report(Progress("experiments", 6, 9))
    shown = capsys.readouterr().err
    for words in ("experiments", "6/9", "3600.0 s each, 3:00:00 left"):
        assert words in shown


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frames = 'some'", "frames: expected all, covered, one-person, got 'some'"),
        ("jitter = 'much'", "jitter: expected float, got 'much'"),
        ("precision = 'auto'", "precision: expected a known setting, got an unknown name"),
    ],
)
def test_the_rare_settings_of_a_command_are_checked_like_those_of_a_model(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "compare.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        configured_with(Config(), file, CompareSettings())
    assert caught.value.problem == f"{file}: {message}"


def test_a_file_has_settings_of_the_model_and_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "compare.toml"
    file.write_text("K = 12\njitter = 1\nsmoothed = true\nfps = 25\n")
    config, rare = configured_with(Config(), file, CompareSettings(), width=8)
    assert (config.K, config.width, config.fps) == (12, 8, None)
    assert rare == CompareSettings(jitter=1.0, fps=25.0, smoothed=True)


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
