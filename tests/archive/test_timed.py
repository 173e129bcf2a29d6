"""The clocks that archives are measured with: they change no byte and miss no shard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.archive.scoring import score
from tests.archive.archives import contents
from tests.archive.timed import Times
from tests.video.servers import SLOWER


@pytest.mark.slow
def test_clocks_in_the_processes_change_no_byte_and_miss_no_window(
    poses: Path, model: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "tests.archive.timed", tmp_path / "times", "archive", "score"]
    words += [poses, "-o", tmp_path / "timed", "--model", model, "--jobs", "2", "--json"]
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [*map(str, words)], cwd=root, capture_output=True, timeout=60 * SLOWER, check=True
    )
    score(str(poses), str(tmp_path / "scores"), model)
    assert contents(tmp_path / "timed") == contents(tmp_path / "scores")
    times = Times.read(tmp_path / "times")
    assert times.windows == json.loads(run.stdout)["windows"] > 0
    assert 0 < times.projection < times.network < times.whole - times.projection


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    whole = '{"windows": 3, "whole": 2.0, "network": 1.5, "projection": 0.25}'
    (tmp_path / "1.jsonl").write_text(f"{whole}\n{whole}\n")
    (tmp_path / "2.jsonl").write_text(f"{whole}\n{whole[:30]}")
    assert Times.read(tmp_path) == Times(9, 6.0, 4.5, 0.75)
    assert Times.read(tmp_path / "nothing") == Times()


def test_times_of_one_run_are_those_written_since_it_began(tmp_path: Path) -> None:
    line = '{"windows": 3, "whole": 2.0, "network": 1.5, "projection": 0.25}\n'
    for at, name in ((1000, "killed.jsonl"), (2000, "last.jsonl")):
        (tmp_path / name).write_text(line)
        os.utime(tmp_path / name, (at, at))
    assert Times.read(tmp_path).windows == 6
    assert Times.read(tmp_path, since=1500).windows == 3
