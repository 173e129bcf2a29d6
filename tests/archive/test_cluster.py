"""A Ray cluster of two nodes: one dies while it scores, and the scores are those of one machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stepvad.evaluation import walkers
from tests.archive.archives import contents, finish, start_scoring, write_archive, write_model
from tests.video.servers import SLOWER

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the ray extra"),
]
SHARDS = 20


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two nodes with one core each; the second one is not the driver's."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    for left in (5, 4, 3, 2, 1, 0):  # a node has 30 s to start, whatever else runs here
        made = Cluster()
        try:
            made.add_node(**node, include_dashboard=False)
            made.add_node(**node)
            break
        except Exception:
            made.shutdown()
            if not left:
                raise
    yield made
    made.shutdown()


def workers_of(node: Any) -> list[int]:
    """Its raylet and the processes that it started, which run the tasks."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = [raylet]
    for pid in found:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            continue
        found += map(int, children)
    return found


def being_written(pids: list[int], scores: Path) -> list[Path]:
    """Unfinished files of scores that these processes hold open."""
    found = []
    for pid in pids:
        try:
            files = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
        except FileNotFoundError:
            continue
        found += [path for path in files if path.is_relative_to(scores) and path.suffix == ".tmp"]
    return found


def test_a_node_that_dies_while_it_scores_changes_no_byte(cluster: Any, tmp_path: Path) -> None:
    clips = [clip for clip, _ in walkers.make_clips(SHARDS, seed=6, seconds=40.0)]
    poses = write_archive(tmp_path / "poses", clips)
    model = write_model(tmp_path / "model.safetensors", width=1024)
    finish(start_scoring(poses, tmp_path / "quiet", model, "--jobs", "2"), within_s=600)
    (node,), scores = cluster.worker_nodes, tmp_path / "scores"
    ray = {"RAY_ADDRESS": cluster.address}
    words = ("--jobs", "2", "--executor", "ray")
    run = start_scoring(poses, scores, model, *words, environment=ray)
    # 30 % are done, and the node is in the middle of a shard
    deadline = time.monotonic() + 600 * SLOWER
    unfinished: list[Path] = []
    while len([*scores.rglob("*.parquet")]) < 0.3 * SHARDS or not unfinished:
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
        unfinished = being_written(workers_of(node), scores)
    for pid in workers_of(node):
        os.kill(pid, signal.SIGKILL)
    n_done = len([*scores.rglob("*.parquet")])
    cluster.remove_node(node, allow_graceful=False)
    assert n_done < SHARDS
    assert unfinished[0].exists()  # nobody was left to finish it, or to remove it
    finish(run, within_s=600)
    assert contents(scores) == contents(tmp_path / "quiet")
