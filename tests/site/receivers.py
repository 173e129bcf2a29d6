"""Servers on the loopback interface that receive events."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stepvad.site.stages import Supervisor
from stepvad.site.store.outbox import SinkDelivery
from tests.video.servers import free_port, wait_until


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    client: tuple[str, int] = ("", 0)


@dataclass
class WebServer:
    """What a web server got, and what it answers: a status for each request, then 204."""

    address: str = ""
    got: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    open: set[socket.socket] = field(default_factory=set)

    def hang_up(self) -> None:
        """Close all connections."""
        for one in [*self.open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(
    server: ThreadingHTTPServer, *, before_end: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """A server that answers in a thread of its own; `before_end` lets go of hanging requests."""
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        before_end()
        thread.join()


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A server that takes what is posted to it."""
    state = WebServer()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            state.open.add(self.connection)

        def finish(self) -> None:
            state.open.discard(self.connection)
            super().finish()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = dict(self.headers.items())
            state.got.append(Received(self.path, headers, body, self.client_address))
            status = state.statuses.pop(0) if state.statuses else 204
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", "0")
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        with serving(server, before_end=state.hang_up):
            yield state


PROXY = """
import sys, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

class Forward(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print("POST", self.path, file=sys.stderr, flush=True)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        headers = {name: self.headers[name] for name in ("Content-Type",)}
        answer = direct.open(urllib.request.Request(self.path, body, headers))
        self.send_response(answer.status)
        self.end_headers()
    def log_message(self, format, *args): pass

server = HTTPServer(("127.0.0.1", 0), Forward)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def proxy_process(directory: Path) -> Iterator[tuple[str, Path]]:
    """An HTTP proxy in a process of its own: its address, and what it writes of each request."""
    log = directory / "proxy.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", PROXY], stdout=subprocess.PIPE, stderr=file
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}", log
        finally:
            process.terminate()


def start(delivery: SinkDelivery) -> Supervisor:
    """Run a delivery as a site does; to be ended with `stop`."""
    supervisor = Supervisor()
    supervisor.start(delivery.stage)
    return supervisor


def stop(supervisor: Supervisor, *deliveries: SinkDelivery) -> None:
    assert supervisor.stop([one.stage for one in deliveries], 10.0) == []


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
