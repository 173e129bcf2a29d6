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
from importlib.util import find_spec
from pathlib import Path

import pytest

from stepvad.evaluation import walkers
from tests.archive.archives import contents, write_archive, write_model
from tests.video.servers import SLOWER, free_port, wait_until

needs_s3 = pytest.mark.skipif(
    not all(map(find_spec, ("moto", "flask", "flask_cors", "s3fs"))),
    reason="needs an S3 server: pip install 'moto[s3]' flask flask-cors s3fs",
)
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
        from s3fs import S3FileSystem  # type: ignore[import-not-found]

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
        wait_until(answers, 60)
        yield S3Server(address)
    finally:
        process.kill()
        process.wait()


pytestmark = [needs_s3, pytest.mark.slow]
POSES, SCORES = f"s3://{BUCKET}/poses", f"s3://{BUCKET}/scores"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3.log") as made:
        yield made


def start(
    poses: object, scores: object, model: Path, server: S3Server, *words: str
) -> subprocess.Popen[str]:
    """A run in a session of its own, which can be ended as a whole."""
    command = [sys.executable, "-m", "stepvad", "archive", "score", poses, "-o", scores]
    command += ["--model", model, "--energies", *words]
    return subprocess.Popen(
        [*map(str, command)],
        env={**os.environ, **server.environment},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(run: subprocess.Popen[str]) -> None:
    words, _ = run.communicate(timeout=120 * SLOWER)
    assert run.returncode == 0, words


def test_scores_in_an_object_store_are_those_on_a_disk_whatever_is_killed(
    server: S3Server, tmp_path: Path
) -> None:
    clips = [clip for clip, _ in walkers.make_clips(6, seed=6, seconds=6.0)]
    poses = write_archive(tmp_path / "poses", clips)
    model = write_model(tmp_path / "model.safetensors", width=1024)
    finish(start(poses, tmp_path / "quiet", model, server, "--jobs", "2"))
    expected = contents(tmp_path / "quiet")
    server.files.put(f"{poses}/", f"{BUCKET}/poses/", recursive=True)
    stopped_at = []
    for n_done in (1, 3):
        run = start(POSES, SCORES, model, server, "--jobs", "2")
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
    finish(start(POSES, SCORES, model, server, "--jobs", "1"))
    assert scored(server) == {name: d for name, d in expected.items() if name != "manifest.json"}
    assert {*server.contents("scores")} == {*expected}
    # once more: nothing is scored again
    stamps = {path: server.files.info(path)["LastModified"] for path in paths(server)}
    finish(start(POSES, SCORES, model, server))
    assert stamps == {path: server.files.info(path)["LastModified"] for path in paths(server)}


def scored(server: S3Server) -> dict[str, bytes]:
    found = server.contents("scores")
    return {name: data for name, data in found.items() if name != "manifest.json"}


def paths(server: S3Server) -> list[str]:
    return [path for path in server.files.find(f"{BUCKET}/scores") if path.endswith(".parquet")]
