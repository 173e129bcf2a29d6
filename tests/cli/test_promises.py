"""Promises put to the test from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.evaluation.walkers import write_dataset
from tests.cli.conftest import Command


@pytest.mark.slow
def test_the_command_shows_promises_and_what_they_find(stepvad: Command, tmp_path: Path) -> None:
    write_dataset(tmp_path, seed=3, train_clips=60, test_clips=6, seconds=8.0)
    words = ("benchmark", "promises", tmp_path, "--width", "16", "--max-steps", "20", "--K", "12")
    run = stepvad(*words, "--fps", "25", "--rates", "60,0.001", "--splits", "5", "--share", "0.5")
    assert run.code == 0, run.err
    assert "hours of normal footage, 50 % to calibrate, 5 splits" in run.out
    assert "highest score in training" in run.out
    assert "99 % of frames" in run.out


def test_rates_that_are_no_numbers_are_refused(stepvad: Command, tmp_path: Path) -> None:
    for rates in ("1,often", "1,,2", "0", "inf"):
        run = stepvad("benchmark", "promises", tmp_path, "--rates", rates)
        assert run.code == 1
        assert f"--rates: expected numbers above 0, got {rates}" in run.err
