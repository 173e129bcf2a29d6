"""An S3 server on the loopback interface, by moto; credentials and address come by environment."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.video.servers import free_port, wait_until

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
