"""`reproduce` as a process: killed in the middle of a training, it resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.evaluation.layouts import write_layouts
from tests.video.servers import wait_until

EPOCHS = 40
"""Small ones: enough that a training is caught in the middle."""


def reproduce(name: str, data: Path, directory: Path) -> list[str | Path]:
    (directory / "trial.toml").write_text(f"epochs = {EPOCHS}\nwidth = 16\n")
    words: Sequence[str | Path] = ("reproduce", name, "--data", data)
    words = (*words, "--results", directory / "results", "--table", directory / "table.csv")
    words = (*words, "--runs", "2", "--settings", directory / "trial.toml")
    return [sys.executable, "-m", "stepvad", *words]


def checkpoints(results: Path) -> list[int]:
    """When the checkpoints were written."""
    return sorted(one.stat().st_mtime_ns for one in results.glob("*.checkpoint"))


def kill_while_training(words: Sequence[str | Path], results: Path, log: Path) -> None:
    """kill -9, the command and the processes that train, once there is another checkpoint."""
    before = checkpoints(results)
    with log.open("wb") as out:
        running = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_until(lambda: checkpoints(results) > before or running.poll() is not None, 60)
        assert running.poll() is None, log.read_text()
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "directory"),
    [("ubnormal", "UBnormal"), ("shanghaitech", "ShanghaiTech"), ("msad", "MSAD")],
)
def test_killed_twice_it_ends_with_the_table_of_a_run_in_one_go(
    tmp_path: Path, name: str, directory: str
) -> None:
    write_layouts(tmp_path, seconds=8.0)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for one in (whole, broken):
        one.mkdir()
    data = tmp_path / directory
    subprocess.run(reproduce(name, data, whole), check=True, capture_output=True)
    words = reproduce(name, data, broken)
    for _ in range(2):
        kill_while_training(words, broken / "results", tmp_path / "log")
    assert checkpoints(broken / "results")
    assert not (broken / "table.csv").exists()
    subprocess.run(words, check=True, capture_output=True)
    assert (broken / "table.csv").read_text() == (whole / "table.csv").read_text()
    assert not checkpoints(broken / "results")
