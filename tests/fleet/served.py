"""The centre of a fleet in processes of its own, as an operator runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepvad.fleet import database, streams
from tests.fleet.servers import Broker, set_up
from tests.pages import ROOT
from tests.video.servers import free_port, wait_until
from tests.web.sites import TOKEN

Put = Callable[..., None]
"""Stores events of a site, as the writer does."""


@dataclass(frozen=True, slots=True)
class ServeProcess:
    """A running `stepvad fleet serve`, the port of its page and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


async def put_bodies(dsn: str, site: str, bodies: list[bytes]) -> None:
    async with database.connected(dsn) as connection:
        subjects = [streams.events(site)] * len(bodies)
        texts = [body.decode() for body in bodies]
        done = await connection.fetchrow(
            "SELECT * FROM stepvad.put($1::text[], $2::text[])", subjects, texts
        )
        assert done["refused"] == 0


@contextmanager
def serving(
    directory: Path, server: Broker, dsn: str, *words: str, web: str = ""
) -> Iterator[ServeProcess]:
    """A centre that has started; `web`: more lines under [web]."""
    asyncio.run(database.set_up(dsn, 90.0))
    asyncio.run(set_up([server]))
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    for name, text in (("token", TOKEN), ("dsn", dsn)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o600)
    settings, log = directory / "fleet.toml", directory / "log.txt"
    settings.write_text(
        f'[broker]\nservers = ["{server.address}"]\n[events]\ndsn = "file:dsn"\n'
        f'[web]\nport = {port}\ntoken = "file:token"\n{web}'
    )
    command = [sys.executable, "-m", "stepvad", "fleet", "serve", str(settings), *words]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=out, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
    expected = "the writer stores events" if "writer" in words else "the page is at"
    try:
        wait_until(lambda: expected in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield ServeProcess(process, port, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
