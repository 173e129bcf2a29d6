"""Idle and slow connections: whoever opens them closes their own, everybody else is answered."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.sync.client import connect

from stepvad.site.service import raise_file_limit
from stepvad.web import server as connections
from stepvad.web.server import MOST_CONNECTIONS
from tests.video.servers import SLOWER, wait_until
from tests.web.served import PageProcess, page_process
from tests.web.sites import BEARER, ServerThread, Site, serve

MANY = 2000
HALF = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing, every other one with half a header."""
    raise_file_limit()
    with ExitStack() as opened:
        lines = []
        for number in range(count):
            line = opened.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=10 * SLOWER)
            )
            if number % 2:
                line.sendall(HALF)
            lines.append(line)
        yield lines


def ask(port: int, path: str) -> tuple[int, float]:
    """The status of an answer, and how long it took."""
    began = time.monotonic()
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=20 * SLOWER)
    line.request("GET", path, headers=BEARER)
    status = line.getresponse().status
    line.close()
    return status, time.monotonic() - began


def is_closed(line: socket.socket) -> bool:
    """Whether the other side has hung up."""
    line.settimeout(0.01)
    try:
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def live(port: int) -> str:
    return f"ws://127.0.0.1:{port}/ws/live"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageProcess]:
    with page_process(tmp_path_factory.mktemp("page")) as running:
        yield running


def test_2000_idle_connections_lock_nobody_out(page: PageProcess) -> None:
    with connect(live(page.port), additional_headers=BEARER) as wall:
        assert "cameras" in json.loads(wall.recv(timeout=10))
        with idle_connections(page.port, MANY) as lines:
            for path in ("/", "/healthz", "/metrics"):
                status, took_s = ask(page.port, path)
                assert status == 200
                assert took_s < 1 * SLOWER, path
            assert page.open_files < MOST_CONNECTIONS + 100
            assert all(is_closed(line) for line in lines[:100])
            assert not is_closed(lines[-1])
            for _ in range(3):  # the wall of somebody with the token is never closed
                wall.recv(timeout=10)
    log = page.log.read_text()
    assert log.count("connections are open") == 1
    assert "Traceback" not in log


@pytest.fixture
def server(mill: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """A page that is less patient."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    monkeypatch.setattr(connections, "RESPONSE_S", 0.5)
    running = serve(mill.app(), "127.0.0.1", 0)
    yield running
    running.stop()


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"GET / HT",
        HALF,
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["silent", "half a line", "half a header", "no body"],
)
def test_a_request_that_does_not_arrive_is_waited_for_no_longer(
    server: ServerThread, words: bytes
) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
        line.sendall(words)
        assert line.recv(1) == b""
    assert 0.4 < time.monotonic() - began < 2 * SLOWER
    wait_until(lambda: len(server.server.limit) == 0)


def test_a_slow_header_gets_no_more_time_by_another_byte(server: ServerThread) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
        while not is_closed(line):
            try:
                line.sendall(b"G")
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.05)
            assert time.monotonic() - began < 2 * SLOWER


def test_the_second_request_of_a_connection_has_to_arrive_as_well(server: ServerThread) -> None:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(3):
        line.request("GET", "/healthz")
        assert line.getresponse().read() == b"ok\n"
        time.sleep(0.3)  # idle between requests is not slow
    assert line.sock is not None
    line.sock.sendall(HALF)
    assert line.sock.recv(1) == b""
    line.close()


def test_a_client_that_does_not_read_is_waited_for_no_longer(server: ServerThread) -> None:
    asking = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(0.2)
        line.connect(("127.0.0.1", server.port))
        for _ in range(2000):
            try:
                line.sendall(asking * 100)
            except OSError:
                break
        wait_until(lambda: len(server.server.limit) == 0)


def test_busy_connections_stay_when_idle_ones_go(mill: Site) -> None:
    server = serve(mill.app(), "127.0.0.1", 0)
    server.server.limit.most = 8
    busy = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        with mill.store._database._lock:  # whoever writes waits
            busy.request("DELETE", "/api/events?camera=yard", headers=BEARER)
            wait_until(lambda: len(server.server.limit) == 1 and not server.server.limit._idle)
            with idle_connections(server.port, 50):
                assert ask(server.port, "/healthz")[0] == 200
                wait_until(lambda: len(server.server.limit) <= 8)
        assert busy.getresponse().status == 200
    finally:
        busy.close()
        server.stop()


@contextmanager
def small_buffers(app: ASGIApp) -> Iterator[tuple[ServerThread, socket.socket]]:
    """A server and a connection to it that hold little of what is not read."""
    running = serve(app, "127.0.0.1", 0)
    running.server.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    try:
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.settimeout(10 * SLOWER)
            line.connect(("127.0.0.1", running.port))
            yield running, line
    finally:
        running.stop()


async def sends_40_kb_and_closes(scope: Scope, receive: Receive, send: Send) -> None:
    """Less than makes the server stop writing, more than the system takes from it."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": bytes(40_000)})


def test_a_closed_connection_whose_rest_is_not_read_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "RESPONSE_S", 0.5)
    with small_buffers(sends_40_kb_and_closes) as (server, line):
        held = server.server._server.server_state.connections
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert line.recv(8) == b"HTTP/1.1"
        assert held
        wait_until(lambda: not held, 5 * SLOWER)


def test_a_response_that_takes_longer_than_a_request_may_is_answered(
    mill: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    server = serve(mill.app(), "127.0.0.1", 0)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        with mill.store._database._lock:  # whoever writes waits
            line.request("DELETE", "/api/events?camera=yard", headers=BEARER)
            time.sleep(1.0)
        assert line.getresponse().status == 200
    finally:
        line.close()
        server.stop()
