"""Many fits: each result once, whole, the same however it was made, and read back as written."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad import executors
from stepvad.config import Compute, Config, Runtime
from stepvad.errors import ConfigError, DataError, Progress
from stepvad.evaluation import comparison, protocol, walkers
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.protocol import FrameView, ScoredClip
from stepvad.evaluation.runs import (
    AGAIN,
    FACTS_KEY,
    ExperimentRun,
    SweepPlace,
    SweepTask,
    digest_of,
    read_run,
    run_fit,
    sweep,
    write_run,
)
from stepvad.evaluation.walkers import write_dataset
from stepvad.files import LEFTOVER_S, remove_leftovers
from tests.conftest import Command
from tests.pages import ROOT
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


def sweep_here(experiments: list[Experiment], place: SweepPlace) -> list[ExperimentRun]:
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
    place = SweepPlace(data=people, results=tmp_path / "many", jobs=2)
    reports: list[Progress] = []
    many = sweep(experiments, place, report=reports.append)
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
        read_run(file, [*place.open().test_clips()][:2])
    with pytest.raises(ConfigError, match="jobs: expected at least 1, got 0"):
        sweep([experiment], replace(place, jobs=0))


def test_every_method_of_the_list_says_what_sets_it_apart() -> None:
    chosen = comparison.experiments(
        [*comparison.VARIANTS], Config(T=5), comparison.Trials(seeds=[3])
    )
    keys = {several[0].key("") for several in chosen.values()}
    titles = {title for _, title in comparison.VARIANTS.values()}
    assert len(keys) == len(chosen) == len(comparison.VARIANTS) == len(titles)
    assert {several[0].config.T for several in chosen.values()} == {5}
    assert not chosen["knn-unweighted"][0].config.confidence
    assert chosen["step-unwhitened"][0].config.reference.whitening == 0
    with pytest.raises(ConfigError, match=r"method: expected one of step, .*, got 'unknown'"):
        comparison.experiments(["unknown"], Config())


def test_half_files_are_no_results_and_go_when_they_are_old(people: Path, tmp_path: Path) -> None:
    experiment = Experiment(method="mahalanobis", config=TINY)
    half = tmp_path / f".{'0a' * 8}.tmp"
    half.write_bytes(b"PAR1")
    assert len(sweep_here([experiment], SweepPlace(data=people, results=tmp_path))) == 1
    assert half.exists()  # somebody may be at it
    os.utime(half, (0, 0))
    sweep([experiment], SweepPlace(data=people, results=tmp_path))
    assert not half.exists()


TINY = Config(K=12, width=16, max_steps=4, ema_warmup=True)
QUICK = Experiment(method="mahalanobis", config=TINY)
BY_CLOCK = replace(QUICK, config=replace(TINY, clock=True))
SEVERAL = Experiment(method="usual", config=TINY, views=("pose", "place"))


@pytest.fixture(scope="module")
def street() -> Dataset:
    """Clips of 25 frames a second to fit on, of 25 and 50 to score."""
    made = walkers.make(seed=2, train_clips=12, test_clips=4, seconds=6.0)
    test = [replace(clip, fps=25.0 * (1 + n % 2)) for n, clip in enumerate(made.test())]
    return replace(made, test=lambda: test)


def written(experiment: Experiment, street: Dataset, path: Path) -> list[ScoredClip]:
    """The test clips as scored in memory, and in a file."""
    fitted = experiment.fit(street)
    clips = protocol.score_clips(fitted, street)
    write_run(clips, {"config": asdict(fitted.config)}, path)
    return clips


def assert_equal(found: Sequence[ScoredClip], expected: Sequence[ScoredClip]) -> None:
    for now, then in zip(found, expected, strict=True):
        assert now.scores.T == then.scores.T
        for name in ("track_id", "frame", "c", "A", "E", "lacking"):
            np.testing.assert_array_equal(
                getattr(now.scores.windows, name), getattr(then.scores.windows, name)
            )


@pytest.mark.parametrize("experiment", [QUICK, BY_CLOCK, SEVERAL])
def test_every_placement_is_the_same_from_a_file(
    street: Dataset, tmp_path: Path, experiment: Experiment
) -> None:
    path = tmp_path / "result.parquet"
    clips = written(experiment, street, path)
    run = read_run(path, [*street.test_clips()])
    assert_equal(run.clips, clips)
    assert {*run.facts} == {"config"}
    spans = {clip.scores.T for clip in run.clips}
    assert spans == {QUICK: {12}, BY_CLOCK: {12, 23}, SEVERAL: {25}}[experiment]
    for placement in ("latest", "center", "backtrack"):
        view = FrameView(placement, smoothed=False)
        found, expected = (protocol.frame_scores(c, street, view) for c in (run.clips, clips))
        np.testing.assert_array_equal(found.score, expected.score)
    shown = protocol.scored_by(protocol.with_motion(run.clips, street))
    assert shown == protocol.scored_by(protocol.with_motion(clips, street))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: data[:500] + bytes(900) + data[1400:], id="zeros at its start"),
        pytest.param(lambda data: _zeros(data, 0.5), id="zeros in the middle"),
        pytest.param(lambda data: data[:-200] + bytes(200), id="zeros at its end"),
        pytest.param(lambda data: _parquet(None), id="without metadata"),
        pytest.param(lambda data: _parquet(b"{"), id="cut metadata"),
        pytest.param(lambda data: _parquet(b"[]"), id="metadata of others"),
        pytest.param(lambda data: _parquet(b'{"clips": [], "spans": []}'), id="columns of others"),
        pytest.param(
            lambda data: _parquet(b'{"clips": [1], "spans": []}'), id="clips without span"
        ),
    ],
)
def test_a_damaged_result_is_refused_with_its_path_and_what_to_do(
    street: Dataset, tmp_path: Path, content: Any
) -> None:
    path = tmp_path / "result.parquet"
    written(QUICK, street, path)
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(DataError, match="expected the result of an experiment") as refused:
        read_run(path, [*street.test_clips()])
    assert (str(path) in refused.value.problem, refused.value.hint) == (True, AGAIN)


def _zeros(data: bytes, at: float) -> bytes:
    first = int(at * len(data))
    return data[:first] + bytes(64) + data[first + 64 :]


def _parquet(metadata: bytes | None) -> bytes:
    """A file with a column of its own."""
    table = pa.table({"x": [1, 2]})
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata and {FACTS_KEY: metadata}), sink)
    return bytes(sink.getvalue())


def test_a_missing_result_is_not_called_damaged(street: Dataset, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path / "none.parquet", [*street.test_clips()])


EXPERIMENTS = 10 if os.environ.get("STEPVAD_LONG_TESTS") else 4
KILLS = 10 if os.environ.get("STEPVAD_LONG_TESTS") else 3


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("durability") / "footage"
    write_dataset(root, seed=1, train_clips=2, test_clips=2, seconds=4.0)
    return root


def start(footage: Path, results: Path) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own, the first of its group."""
    words = [footage, results, EXPERIMENTS]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.evaluation.durable", *map(str, words)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


def finish(footage: Path, results: Path) -> None:
    assert start(footage, results).wait(timeout=300) == 0


def kept(results: Path) -> dict[str, tuple[int, bytes]]:
    """Every finished result: when it was written, and its bytes."""
    return {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in results.glob("*.parquet")}


def content(file: Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What a result tells, but for the times, and its scores."""
    table = pq.read_table(file)
    facts = json.loads(table.schema.metadata[FACTS_KEY])
    del facts["fit_s"], facts["finished"]
    return facts, table.to_pydict()


def wait_for_more(process: subprocess.Popen[bytes], results: Path) -> None:
    """Until there is a result more than now, or nothing is left to do."""
    before = len(kept(results))
    while process.poll() is None and len([*results.glob("*.parquet")]) == before:
        time.sleep(0.01)


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_repeat_nothing(
    footage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    undisturbed, results = tmp_path / "undisturbed", tmp_path / "results"
    finish(footage, undisturbed)
    rng = random.Random(5)
    before: dict[str, tuple[int, bytes]] = {}
    until_more_s = 0.0
    told = []
    for attempt in range(KILLS):
        started = time.monotonic()
        process = start(footage, results)
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
    finish(footage, results)
    assert before.items() <= kept(results).items()
    names = {file.name for file in undisturbed.iterdir()}
    assert kept(results).keys() == names
    assert len(names) == EXPERIMENTS
    for name in names:
        assert content(results / name) == content(undisturbed / name)
    with capsys.disabled():
        sys.stdout.write(f"\nkilled, results after it: {told}\n")


def test_one_more_seed_is_the_only_one_that_runs(
    footage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "run", lambda work, tasks, **_: map(work, tasks))
    place = SweepPlace(data=footage, results=tmp_path)
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
