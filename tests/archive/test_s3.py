"""An archive in an object store: killed and gone on with, to the bytes of a run on a disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepvad.evaluation import walkers
from tests.archive.archives import (
    contents,
    finish,
    start,
    start_scoring,
    write_archive,
    write_model,
)
from tests.video.servers import SLOWER, free_port, wait_until

BUCKET = "archive"


class S3Server:
    """A server with one bucket, and its files."""

    def __init__(self, address: str) -> None:
        self.environment: Mapping[str, str] = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        from s3fs import S3FileSystem

        self.files = S3FileSystem(
            endpoint_url=address,
            key="test",
            secret="test",
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        self.files.mkdir(BUCKET)

    def contents(self, directory: str) -> dict[str, bytes]:
        """Every file by its name in a directory of the bucket."""
        root = f"{BUCKET}/{directory}"
        found = self.files.find(root)
        return {path[len(root) + 1 :]: self.files.cat_file(path) for path in found}


@contextmanager
def s3_server(log: Path) -> Iterator[S3Server]:
    """A server in a process of its own."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{address}/moto-api/", timeout=2).close()
        except (urllib.error.URLError, OSError):
            return False
        return True

    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=dict(os.environ))
    try:
        wait_until(answers, 120 * SLOWER)
        yield S3Server(address)
    finally:
        process.kill()
        process.wait()


pytestmark = pytest.mark.slow
POSES, SCORES = f"s3://{BUCKET}/poses", f"s3://{BUCKET}/scores"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3.log") as made:
        yield made


def test_scores_in_an_object_store_are_those_on_a_disk_whatever_is_killed(
    server: S3Server, tmp_path: Path
) -> None:
    clips = [clip for clip, _ in walkers.make_clips(6, seed=6, seconds=6.0)]
    poses = write_archive(tmp_path / "poses", clips)
    model = write_model(tmp_path / "model.safetensors", width=1024)
    finish(start_scoring(poses, tmp_path / "quiet", model, "--jobs", "2"))
    expected = contents(tmp_path / "quiet")
    server.files.put(f"{poses}/", f"{BUCKET}/poses/", recursive=True)
    stopped_at = []
    for n_done in (1, 3):
        run = start_scoring(POSES, SCORES, model, "--jobs", "2", environment=server.environment)
        deadline = time.monotonic() + 60 * SLOWER
        while len(paths(server)) < n_done:
            assert run.poll() is None, run.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate(timeout=60 * SLOWER)
        there = scored(server)
        stopped_at.append(len(there))
        assert all(data == expected[name] for name, data in there.items())  # each is whole
    assert 0 < stopped_at[0] <= stopped_at[1] < 6
    finish(start_scoring(POSES, SCORES, model, environment=server.environment))
    assert scored(server) == {name: d for name, d in expected.items() if name != "_manifest.json"}
    assert {*server.contents("scores")} == {*expected}
    # once more: nothing is scored again
    stamps = {path: server.files.info(path)["LastModified"] for path in paths(server)}
    finish(start_scoring(POSES, SCORES, model, environment=server.environment))
    assert stamps == {path: server.files.info(path)["LastModified"] for path in paths(server)}


def test_a_model_fitted_from_an_object_store_is_that_of_a_disk(
    server: S3Server, tmp_path: Path
) -> None:
    clips = [clip for clip, _ in walkers.make_clips(12, seed=6, seconds=6.0)]
    poses = write_archive(tmp_path / "poses", clips)
    server.files.put(f"{poses}/", f"{BUCKET}/poses/", recursive=True)
    (tmp_path / "tiny.toml").write_text("K = 12\nwidth = 16\nmax_steps = 20\n")
    made = []
    for number, (place, jobs) in enumerate(((poses, "1"), (POSES, "2"))):
        model = tmp_path / f"{number}.safetensors"
        words = ("--settings", tmp_path / "tiny.toml", "--jobs", jobs)
        run = start("fit", place, "-o", model, *words, environment=server.environment)
        assert "threshold" in finish(run)
        calibration = model.with_suffix(".calibration.json").read_text()
        made.append((model.read_bytes(), calibration))
    assert made[0] == made[1]


def scored(server: S3Server) -> dict[str, bytes]:
    found = server.contents("scores")
    return {name: data for name, data in found.items() if name != "_manifest.json"}


def paths(server: S3Server) -> list[str]:
    return [path for path in server.files.find(f"{BUCKET}/scores") if path.endswith(".parquet")]
