"""Many fits: each result once, whole, and the same however it was made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from stepvad.config import Compute, Config, Runtime
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import comparison, protocol, runs
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.sweep import SweepPlace, SweepTask, digest_of, run_fit, sweep
from stepvad.evaluation.walkers import write_dataset
from stepvad.progress import Progress
from tests.cli.conftest import Command
from tests.cli.conftest import stepvad as stepvad
from tests.processes import wait_until_nobody_is_left

TINY = Config(K=12, width=16, max_steps=6, ema_warmup=True)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweep") / "people"
    write_dataset(root, seed=1, train_clips=3, test_clips=4, seconds=4.0)
    return root


def test_a_result_reads_back_as_it_was_scored(people: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=people, results=tmp_path)
    dataset = place.open()
    experiment = Experiment(config=TINY)
    (run,) = sweep_here([experiment], place)
    clips = protocol.score_clips(experiment.fit(dataset), dataset)
    for now, then in zip(run.clips, clips, strict=True):
        assert now.scores.clip == then.scores.clip
        for name in ("track_id", "frame", "c", "A"):
            np.testing.assert_array_equal(
                getattr(now.scores.windows, name), getattr(then.scores.windows, name)
            )
        np.testing.assert_array_equal(now.labels.abnormal, then.labels.abnormal)
    assert run.facts["experiment"]["config"]["width"] == 16
    assert run.facts["data"] == digest_of(dataset)


def test_the_runtime_of_a_place_computes_fit_and_scores_and_changes_little(
    people: Path, tmp_path: Path
) -> None:
    experiment = Experiment(config=TINY)
    runtimes: tuple[Runtime, ...] = ("numpy", "openvino")
    places = [
        SweepPlace(data=people, results=tmp_path / runtime, compute=Compute(runtime=runtime))
        for runtime in runtimes
    ]
    ours = [sweep_here([experiment], place)[0] for place in places]
    assert [run.facts["runtime"] for run in ours] == [*runtimes]
    for one, other in zip(ours[0].clips, ours[1].clips, strict=True):
        np.testing.assert_allclose(one.scores.windows.A, other.scores.windows.A, atol=1e-3)


def test_missing_validation_clips_are_refused_before_the_first_fit(
    people: Path, tmp_path: Path
) -> None:
    place = SweepPlace(data=people, results=tmp_path / "results")
    with pytest.raises(DataError, match="expected a data set with validation clips"):
        sweep([Experiment(config=TINY), Experiment(config=TINY, best_on_validation=True)], place)
    assert not place.results.exists()


def sweep_here(experiments: list[Experiment], place: SweepPlace) -> list[runs.ExperimentRun]:
    """The same as `sweep`, in this process."""
    dataset = place.open()
    place.results.mkdir(exist_ok=True)
    for experiment in experiments:
        run_fit(SweepTask((experiment,), place, digest_of(dataset)))
    return sweep(experiments, place)


@pytest.mark.slow
def test_processes_give_the_results_of_one_and_nothing_is_run_twice(
    people: Path, tmp_path: Path
) -> None:
    experiments = [
        Experiment(config=replace(TINY, seed=seed), jitter=jitter)
        for seed in (0, 1)
        for jitter in (0.0, 0.2)
    ]
    place = SweepPlace(data=people, results=tmp_path / "many")
    reports: list[Progress] = []
    many = sweep(experiments, place, jobs=2, report=reports.append)
    assert [(r.done, r.total) for r in reports] == [(0, 4), (2, 4), (4, 4)]
    one = sweep_here(experiments, SweepPlace(data=people, results=tmp_path / "one"))
    for a, b in zip(many, one, strict=True):
        for left, right in zip(a.clips, b.clips, strict=True):
            np.testing.assert_array_equal(left.scores.A, right.scores.A)
    before = {file.name: file.stat().st_mtime_ns for file in place.results.iterdir()}
    added = [*experiments, Experiment(method="mahalanobis", config=TINY)]
    sweep(added, place)
    after = {file.name: file.stat().st_mtime_ns for file in place.results.iterdir()}
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_leaves_nobody_behind_and_goes_on_where_it_was(
    stepvad: Command, people: Path, tmp_path: Path, end: signal.Signals
) -> None:
    program = (
        "import sys; from stepvad.cli import main; "
        "sys.argv = ['stepvad', 'compare', *sys.argv[1:]]; main()"
    )
    words = [people, tmp_path / "r", "--methods", "step", "--seeds", "4"]
    words += ["--width", "16", "--max-steps", "200"]
    first = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not [*tmp_path.glob("r/*.parquet")]:
        assert first.poll() is None
        time.sleep(0.05)
    if end == signal.SIGINT:  # as a terminal does
        os.killpg(first.pid, end)
    else:
        first.send_signal(end)
    said = first.communicate(timeout=60)[1].decode()
    assert "Traceback" not in said
    wait_until_nobody_is_left(first.pid)
    kept = {file: file.stat().st_mtime_ns for file in tmp_path.glob("r/*.parquet")}
    assert 1 <= len(kept) < 4
    assert all(pq.read_table(file).num_rows for file in kept)
    assert stepvad("compare", *words).code == 0
    assert len([*tmp_path.glob("r/*.parquet")]) == 4
    assert all(file.stat().st_mtime_ns == when for file, when in kept.items())


def test_what_an_experiment_is_decides_its_name(people: Path) -> None:
    dataset = SweepPlace(data=people, results=people).open()
    digest = digest_of(dataset)
    some = Experiment(config=TINY)
    others = [
        replace(some, method="raw"),
        replace(some, jitter=0.1),
        replace(some, k=2),
        replace(some, drop_below=0.1),
        replace(some, config=replace(TINY, seed=1)),
        replace(some, config=replace(TINY, aggregation="sum")),
    ]
    keys = {experiment.key(digest) for experiment in (some, *others)}
    assert len(keys | {some.key("other data")}) == 8
    assert some.key(digest) == Experiment(config=TINY).key(digest)


def test_results_of_other_clips_are_refused(people: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=people, results=tmp_path)
    experiment = Experiment(method="mahalanobis", config=TINY)
    sweep_here([experiment], place)
    (file,) = tmp_path.glob("*.parquet")
    with pytest.raises(DataError, match="expected scores of the clips of this data set"):
        runs.read(file, [*place.open().test_clips()][:2])
    with pytest.raises(ConfigError, match="jobs: expected at least 1, got 0"):
        sweep([experiment], place, jobs=0)


def test_every_method_of_the_list_says_what_sets_it_apart() -> None:
    chosen = comparison.experiments([*comparison.VARIANTS], Config(T=5), [3])
    keys = {several[0].key("") for several in chosen.values()}
    titles = {title for _, title in comparison.VARIANTS.values()}
    assert len(keys) == len(chosen) == len(comparison.VARIANTS) == len(titles)
    assert {several[0].config.T for several in chosen.values()} == {5}
    assert not chosen["knn-unweighted"][0].config.confidence
    assert not chosen["step-unwhitened"][0].config.whiten
    with pytest.raises(ConfigError, match=r"method: expected one of step, .*, got 'unknown'"):
        comparison.experiments(["unknown"], Config(), [0])


def test_half_files_are_no_results_and_go_when_they_are_old(people: Path, tmp_path: Path) -> None:
    experiment = Experiment(method="mahalanobis", config=TINY)
    half = tmp_path / f".{'0a' * 8}.tmp"
    half.write_bytes(b"PAR1")
    assert len(sweep_here([experiment], SweepPlace(data=people, results=tmp_path))) == 1
    assert half.exists()  # somebody may be at it
    os.utime(half, (0, 0))
    sweep([experiment], SweepPlace(data=people, results=tmp_path))
    assert not half.exists()
