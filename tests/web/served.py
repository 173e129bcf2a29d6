"""The page of a site in a process of its own, as an operator runs it."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepvad.site.accounts import Accounts
from stepvad.site.settings.page import Web
from stepvad.site.stages import Supervisor, set_up
from stepvad.web import bind
from tests.pages import ROOT
from tests.processes import raise_file_limit
from tests.video.servers import wait_until
from tests.web.sites import site


@dataclass(frozen=True, slots=True)
class PageProcess:
    """A running page: its process, its port and its log."""

    pid: int
    port: int
    log: Path


@contextmanager
def page_process(directory: Path, **web: Any) -> Iterator[PageProcess]:
    """A page with these settings under [web]."""
    log = directory / "page.log"
    told = json.dumps({"port": 0} | web, default=str)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.web.served", str(directory), told],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=out,
        )
    with process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline()
            assert port, log.read_text()
            yield PageProcess(process.pid, int(port), log)
        finally:
            process.terminate()
            process.wait(30)


def main(directory: Path, web: Web) -> None:
    """Serve until SIGTERM."""
    set_up("text")
    logging.getLogger().setLevel(logging.INFO)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    raise_file_limit()
    supervisor = Supervisor()
    with site(directory, web=web) as mill:
        accounts = Accounts(web.accounts) if web.accounts else None
        app = mill.app(health=supervisor.health, accounts=accounts)
        server = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
        supervisor.start(server)
        wait_until(lambda: server.heartbeat.age_s < 1)
        print(server.port, flush=True)  # noqa: T201
        while not stopping.wait(0.5):
            supervisor.check_stages()
        began = time.monotonic()
        supervisor.stop([server], 5)
        logging.info("stopped in %.1f s", time.monotonic() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Web(**json.loads(sys.argv[2])))
