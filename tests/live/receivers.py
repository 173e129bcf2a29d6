"""Servers on the loopback interface that receive events."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.video.servers import free_port, wait_until


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebServer:
    """What a web server got, and what it answers: a status for each request, then 204."""

    address: str = ""
    got: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A server that takes what is posted to it."""
    state = WebServer()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.got.append(Received(self.path, dict(self.headers.items()), body))
            self.send_response(state.statuses.pop(0) if state.statuses else 204)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def certificate(directory: Path) -> None:
    """A certificate for 127.0.0.1, which vouches for itself, and its key."""
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    words += " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost"
    words += " -keyout key -out certificate"
    subprocess.run(words.split(), cwd=directory, check=True, capture_output=True)


class Broker:
    """A Mosquitto of its own, which can be killed and started again."""

    def __init__(self, directory: Path, *lines: str) -> None:
        self.port = free_port()
        self._directory = directory
        self._config = directory / "mosquitto.conf"
        self._config.write_text(
            "\n".join(
                [
                    "persistence true",
                    f"persistence_location {directory}/",
                    "user root",
                    f"listener {self.port} 127.0.0.1",
                    *(lines or ["allow_anonymous true"]),
                ]
            )
            + "\n"
        )

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["mosquitto", "-c", str(self._config), "-v"], stdout=log, stderr=log
            )
        wait_until(lambda: b" running" in (self._directory / "log").read_bytes().split(b"\0")[-1])

    def stop(self) -> None:
        """Stop it as a person would; it keeps what is retained."""
        self.process.terminate()
        self.process.wait(10)
        with (self._directory / "log").open("ab") as log:
            log.write(b"\0")
