"""Whatever ends a run, the same command goes on, and its output is that of a run left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad.evaluation import walkers
from stepvad.formats import write_clip
from stepvad.poses import Clip, Track
from tests.archive.archives import (
    contents,
    finish,
    start_scoring,
    write_archive,
    write_model,
)
from tests.video.servers import SLOWER


def end(run: subprocess.Popen[str], by: signal.Signals, *, all_at_once: bool) -> None:
    """End a run and, if it does not do so itself, its processes."""
    if all_at_once:
        os.killpg(run.pid, by)
    else:
        os.kill(run.pid, by)
    run.communicate(timeout=60 * SLOWER)
    deadline = time.monotonic() + 10 * SLOWER
    while group_lives(run.pid):  # workers notice that their parent is gone
        assert time.monotonic() < deadline
        time.sleep(0.02)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Poses, a model that takes its time, and the scores of a run that nobody disturbed."""
    root = tmp_path_factory.mktemp("killed")
    clips = [clip for clip, _ in walkers.make_clips(12, seed=6, seconds=10.0)]
    poses = write_archive(root / "poses", clips)
    model = write_model(root / "model.safetensors", width=1024)
    finish(start_scoring(poses, root / "quiet", model, "--jobs", "2"))
    assert len(contents(root / "quiet")) == 13
    return poses, model, root / "quiet"


@pytest.mark.slow
def test_killed_again_and_again_the_output_is_that_of_a_quiet_run(
    archive: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    poses, model, quiet = archive
    scores = tmp_path / "scores"
    expected = contents(quiet)
    rng = random.Random(0)
    stopped_at = []
    for n_done, by, all_at_once in (
        (0, signal.SIGKILL, True),
        (3, signal.SIGKILL, False),
        (6, signal.SIGINT, True),
        (8, signal.SIGKILL, True),
    ):
        run = start_scoring(poses, scores, model, "--jobs", "2")
        while run.poll() is None and len([*scores.rglob("*.parquet")]) < n_done + 1:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))  # in the middle of the next
        assert run.poll() is None
        end(run, by, all_at_once=all_at_once)
        there = contents(scores)
        stopped_at.append(len(there) - 1)
        for name, data in there.items():  # whatever is there is whole
            assert name == "_manifest.json" or data == expected[name], name
    assert 0 < stopped_at[0] < 12
    assert stopped_at == sorted(stopped_at)
    assert stopped_at[-1] < 12
    finish(start_scoring(poses, scores, model, "--jobs", "1"))
    assert contents(scores) == expected


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_run_in_words(
    archive: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    poses, model, quiet = archive
    scores = tmp_path / "scores"
    run = start_scoring(poses, scores, model, "--jobs", "2")
    while run.poll() is None and not [*scores.rglob("*.parquet")]:
        time.sleep(0.005)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    workers = [
        pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(int(workers[0]), signal.SIGKILL)
    errors, _ = run.communicate(timeout=60 * SLOWER)
    assert run.returncode == 1
    assert "got one that was killed" in errors
    assert "Traceback" not in errors
    finish(start_scoring(poses, scores, model, "--jobs", "2"))
    assert contents(scores) == contents(quiet)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the ray extra")
def test_ray_gives_the_bytes_of_local_processes(
    archive: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    poses, model, quiet = archive
    finish(start_scoring(poses, tmp_path / "scores", model, "--jobs", "2", "--executor", "ray"))
    assert contents(tmp_path / "scores") == contents(quiet)


MEASURED = (
    "import sys; from pathlib import Path; from stepvad.archive.scoring import *; "
    "from stepvad.archive.storage import Directory, group_shards; "
    "from stepvad.model import modelfile; "
    "poses, scores, model = sys.argv[1:]; "
    "job = Job(poses=Directory.at(poses), scores=Directory.at(scores), model=Path(model), "
    "model_sha256=modelfile.sha256(Path(model)), engine='onnxruntime'); "
    "(shard,) = group_shards(job.poses.files('.parquet')); "
    "outcome = score_shard(ShardTask(job, shard)); "
    "status = Path('/proc/self/status').read_text(); "  # getrusage tells the parent's peak, too
    "print(outcome.facts.windows, status.partition('VmHWM:')[2].split()[0])"
)


def long_clip(n_poses: int) -> Clip:
    """One person who is seen for a long time."""
    rng = np.random.default_rng(0)
    walk = rng.standard_normal((n_poses, 17, 2), dtype=np.float32).cumsum(axis=0) % 900
    track = Track(1, np.arange(n_poses), walk, np.full((n_poses, 17), 0.9, np.float32))
    return Clip("long", 10.0, n_poses, (track,))


@pytest.mark.slow
def test_memory_does_not_grow_with_a_file(model: Path, tmp_path: Path) -> None:
    """One track over the whole file, in one row group: more than twice as long, the same memory."""
    peaks = []
    for n_poses in (300_000, 800_000):
        root = tmp_path / str(n_poses)
        root.mkdir()
        write_clip(long_clip(n_poses), root / "a.parquet")
        table = pq.read_table(root / "a.parquet")
        pq.write_table(
            table, root / "a.parquet", row_group_size=n_poses, compression="none"
        )  # 163 MB the large one
        del table
        pa.default_memory_pool().release_unused()
        command = [sys.executable, "-c", MEASURED, root, tmp_path / f"s{n_poses}", model]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=True, env=environment
        )
        windows, kilobytes = map(int, done.stdout.split())
        assert windows == n_poses - 11
        peaks.append(kilobytes / 1024)
    assert peaks[1] - peaks[0] < 40, peaks  # megabytes; the file grew by 102
