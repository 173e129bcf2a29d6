"""A sweep that is killed again and again loses nothing that was finished, and repeats nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from stepvad import executors
from stepvad.config import Config
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.runs import KEY
from stepvad.evaluation.sweep import SweepPlace, sweep
from stepvad.evaluation.walkers import write_dataset
from stepvad.files.atomic import LEFTOVER_S, remove_leftovers
from tests.pages import ROOT
from tests.processes import wait_until_nobody_is_left

EXPERIMENTS = 10 if os.environ.get("STEPVAD_LONG_TESTS") else 4
KILLS = 10 if os.environ.get("STEPVAD_LONG_TESTS") else 3


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("durability") / "people"
    write_dataset(root, seed=1, train_clips=2, test_clips=2, seconds=4.0)
    return root


def start(people: Path, results: Path) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own, the first of its group."""
    words = [people, results, EXPERIMENTS]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.evaluation.durable", *map(str, words)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


def finish(people: Path, results: Path) -> None:
    assert start(people, results).wait(timeout=300) == 0


def kept(results: Path) -> dict[str, tuple[int, bytes]]:
    """Every finished result: when it was written, and its bytes."""
    return {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in results.glob("*.parquet")}


def content(file: Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What a result tells, but for the times, and its scores."""
    table = pq.read_table(file)
    facts = json.loads(table.schema.metadata[KEY])
    del facts["fit_s"], facts["finished"]
    return facts, table.to_pydict()


def wait_for_more(process: subprocess.Popen[bytes], results: Path) -> None:
    """Until there is a result more than now, or nothing is left to do."""
    before = len(kept(results))
    while process.poll() is None and len([*results.glob("*.parquet")]) == before:
        time.sleep(0.01)


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_repeat_nothing(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    undisturbed, results = tmp_path / "undisturbed", tmp_path / "results"
    finish(people, undisturbed)
    rng = random.Random(5)
    before: dict[str, tuple[int, bytes]] = {}
    until_more_s = 0.0
    told = []
    for attempt in range(KILLS):
        started = time.monotonic()
        process = start(people, results)
        if attempt % 2:  # any time up to then
            time.sleep(rng.uniform(0, min(0.6 * until_more_s, 10)))
        else:  # about when results are written
            wait_for_more(process, results)
            until_more_s = time.monotonic() - started
            time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        wait_until_nobody_is_left(process.pid)
        after = kept(results)
        assert before.items() <= after.items()
        assert all(pq.read_table(results / name).num_rows for name in after)
        told.append((killed, len(after)))
        before = after
    assert sum(killed and n < EXPERIMENTS for killed, n in told) >= 2
    assert before
    finish(people, results)
    assert before.items() <= kept(results).items()
    names = {file.name for file in undisturbed.iterdir()}
    assert kept(results).keys() == names
    assert len(names) == EXPERIMENTS
    for name in names:
        assert content(results / name) == content(undisturbed / name)
    with capsys.disabled():
        sys.stdout.write(f"\nkilled, results after it: {told}\n")


def test_one_more_seed_is_the_only_one_that_runs(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "run", lambda work, tasks, **_: map(work, tasks))
    place = SweepPlace(data=people, results=tmp_path)
    seeds = [Experiment(method="mahalanobis", config=Config(K=12, seed=seed)) for seed in range(3)]
    sweep(seeds[:2], place)
    before = kept(tmp_path)
    sweep(seeds[:2], place)
    assert kept(tmp_path) == before
    sweep(seeds, place)
    after = kept(tmp_path)
    assert before.items() <= after.items()
    assert len(after) == 3


def test_leftovers_of_killed_writers_go_and_nothing_else_does(tmp_path: Path) -> None:
    old, young = tmp_path / f".{'0a' * 8}.tmp", tmp_path / f".{'1b' * 8}.tmp"
    log = tmp_path / f"{old.name}-wal"
    others = [tmp_path / name for name in ("result.parquet", ".mine.tmp", f"{'0a' * 8}.tmp")]
    for file in (old, log, young, *others):
        file.write_bytes(b"half")
    long_ago = time.time() - LEFTOVER_S - 60
    for file in (old, log, *others):
        os.utime(file, (long_ago, long_ago))
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([young, *others])
