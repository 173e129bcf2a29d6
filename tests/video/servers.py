"""Servers on the loopback interface that play a camera, and whether they gave away a password."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CANARY = "canary-Zq7"
SYSTEM_PYTHON = "/usr/bin/python3"
SLOWER = float(os.environ.get("STEPVAD_TEST_SLOWER", "4"))
"""By how much a machine that runs other tests as well may be slower than the targets."""


@contextmanager
def web_server(body: bytes, *, status: int = 200) -> Iterator[str]:
    """The address of a server that answers every request with the same bytes and hangs up."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://viewer:{CANARY}@127.0.0.1:{server.server_port}/a.ts"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that accepts every client and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"rtsp://viewer:{CANARY}@127.0.0.1:{listener.getsockname()[1]}/a"


def shows_nothing(*texts: object) -> bool:
    return not any(CANARY in f"{text!s} {text!r}" for text in texts)


def wait_until(happened: Callable[[], bool], limit_s: float = 20 * SLOWER) -> float:
    """Seconds until something happens; the longer that takes, the less often it looks."""
    started = time.monotonic()
    while not happened():
        waited_s = time.monotonic() - started
        assert waited_s < limit_s, "waited in vain"
        time.sleep(min(0.02 + waited_s / 20, 0.2))
    return time.monotonic() - started


def free_port() -> int:
    """A port that stays free while its server is down: the system hands out none below 32768.

    Processes of pytest that run beside each other choose from ranges of their own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    ports = range(20_000, 32_000)
    if worker.isdecimal():
        ports = ports[int(worker) % 8 * 1500 :][:1500]
    while True:
        port = random.SystemRandom().choice(ports)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


def has_rtsp_server() -> bool:
    """Whether the system's Python has GStreamer's RTSP server."""
    code = "import gi; gi.require_version('GstRtspServer', '1.0')"
    return bool(shutil.which(SYSTEM_PYTHON)) and not subprocess.call(
        [SYSTEM_PYTHON, "-c", code], stderr=subprocess.DEVNULL
    )


class RtspServer:
    """A real RTSP server in a process of its own, over TLS if it has a certificate."""

    def __init__(self, clip: Path, log: Path, certificate: Path | None = None) -> None:
        self.port = free_port()
        scheme = "rtsp" if certificate is None else "rtsps"
        self.address = f"{scheme}://viewer:{CANARY}@127.0.0.1:{self.port}/camera"
        script = Path(__file__).with_name("rtsp_server.py")
        self._command = [SYSTEM_PYTHON, str(script), str(clip), str(self.port), "viewer", CANARY]
        if certificate is not None:
            self._command += [str(certificate), str(certificate.with_suffix(".key"))]
        self._log = log

    def start(self) -> None:
        """Start it and wait until it listens."""
        self._log.write_bytes(b"")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        # No probe: GStreamer may hang for all after a client that gives up within the handshake.
        wait_until(lambda: b"listening" in self._log.read_bytes())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
