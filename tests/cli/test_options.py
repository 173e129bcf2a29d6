"""Settings of a model from a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.cli.options import configured
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
        ("learning-rate = 1e-3", "learning-rate: expected a setting of a model, got an unknown"),
        ("views = []", "views: expected a setting of a model"),
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
