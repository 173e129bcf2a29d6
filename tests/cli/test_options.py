"""Settings of a model from a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.cli.options import configured, configured_with
from stepvad.cli.research import CompareSettings
from stepvad.config import Config
from stepvad.errors import ConfigError


def test_options_go_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "fit.toml"
    file.write_text("K = 12\nwidth = 32\nnoise = [0.1, 0.2]\nweigh_joints = true\n")
    made = configured(Config.footage(), file, width=64, T=None)
    assert (made.K, made.width, made.noise, made.T) == (12, 64, (0.1, 0.2), 12)
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
