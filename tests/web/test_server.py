"""The server: the live wall, limits on connections, and TLS."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from stepvad.errors import ConfigError
from stepvad.site.settings.page import server_tls
from stepvad.site.stages import Health, Stage, StageHealth, Supervisor
from stepvad.site.status import ScoredFrame
from stepvad.web import Server, bind
from stepvad.web import server as connections
from stepvad.web.live import people_of
from tests.processes import raise_file_limit
from tests.video.servers import SLOWER, wait_until
from tests.web.sites import (
    BEARER,
    HERE,
    SIZE,
    TOKEN,
    Certificate,
    ServerThread,
    Site,
    happen,
    make_certificate,
    person,
    serve,
)


@pytest.fixture
def server(mill: Site) -> Iterator[ServerThread]:
    running = serve(mill.app(), "127.0.0.1", 0)
    yield running
    running.stop()


def say(server: ServerThread, words: bytes, *, patience_s: float = 10.0) -> bytes:
    """What a server answers to these bytes until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience_s) as line:
        line.sendall(words)
        heard = b""
        try:
            while piece := line.recv(65536):
                heard += piece
                if b"\r\n\r\n" in heard:
                    break
        except ConnectionResetError:
            pass
    return heard


def get(server: ServerThread, path: str) -> int:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    line.request("GET", path, headers=BEARER)
    status = line.getresponse().status
    line.close()
    return status


def live(server: ServerThread) -> str:
    return f"ws://127.0.0.1:{server.port}/ws/live"


def test_it_answers_until_it_is_stopped(mill: Site) -> None:
    server = serve(mill.app(), "127.0.0.1", 0)
    assert server.url == f"http://127.0.0.1:{server.port}/"
    assert get(server, "/api/site") == 200
    assert server.is_running
    server.stop()
    assert not server.is_running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_a_port_that_is_taken_is_said(mill: Site, server: ServerThread) -> None:
    with pytest.raises(ConfigError, match=f"port {server.port}, got: Address already in use"):
        serve(mill.app(), "127.0.0.1", server.port)
    with pytest.raises(ConfigError, match="expected to listen on no-such-host"):
        serve(mill.app(), "no-such-host.invalid", 0)


def test_frames_and_health_are_pushed(mill: Site, server: ServerThread) -> None:
    mill.status.frame("yard", 1, 50.0, SIZE, [person(1), person(2)], {1: 4.5})
    with connect(live(server), additional_headers=BEARER) as line:
        health = json.loads(line.recv(timeout=10))
        assert [one["name"] for one in health["cameras"]] == ["yard", "gate"]
        assert health["events"]
        frame = json.loads(line.recv(timeout=10))["frames"]["yard"]
        assert (frame["n"], frame["size"]) == (1, [640, 360])
        first, second = frame["people"]
        assert (first["id"], first["score"], first["of"]) == (1, 4.5, 1.5)
        assert (second["id"], second["score"], second["of"]) == (2, None, None)
        assert len(first["xy"]) == 34
        happen(mill, 1)
        while "events" not in (told := json.loads(line.recv(timeout=10))):
            pass
        assert told["events"] != health["events"]


def test_a_score_of_interpolated_poses_says_that_it_does_not_count() -> None:
    scores = {1: 4.5, 2: 9.0}
    frame = ScoredFrame(1, 50.0, SIZE, (person(1), person(2), person(3)), scores, {2: 0.3})
    sent: dict[str, Any] = json.loads(json.dumps(people_of(frame, 3.0)))
    first, second, third = sent["people"]
    assert "doubt" not in first
    assert "doubt" not in third
    assert second["doubt"] == "not judged: seen in 3 of 10 frames"
    assert (second["score"], second["of"]) == (9.0, 3.0)


@pytest.mark.slow
def test_a_reader_that_sleeps_gets_the_latest_and_nothing_piles_up_for_it(
    mill: Site, server: ServerThread
) -> None:
    crowd = [person(track) for track in range(300)]
    server.server.listening.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, 65536
    )  # holds one frame
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    line.connect(("127.0.0.1", server.port))
    with connect(
        live(server), sock=line, additional_headers=BEARER, max_queue=1, max_size=None,
        compression=None,
    ) as asleep:  # fmt: skip
        last = 300
        for number in range(last + 1):
            mill.status.frame("yard", number, float(number), SIZE, crowd, {})
            time.sleep(0.01)
        heard = [-1]
        while heard[-1] != last:
            told = json.loads(asleep.recv(timeout=20))
            if "frames" in told:
                heard.append(told["frames"]["yard"]["n"])
    assert heard == sorted(heard)
    assert len(heard) < 20  # of some 75 that somebody awake would have heard


def test_a_wall_refuses_who_has_no_token(server: ServerThread) -> None:
    with pytest.raises(InvalidStatus):
        connect(live(server))
    with pytest.raises(InvalidStatus):
        connect(live(server), additional_headers=BEARER, origin=Origin("http://evil.example"))


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 10_000_000 + b"\r\n\r\n",
    ],
    ids=lambda words: str(words[:60]),
)
def test_malformed_requests_are_refused_and_others_still_answered(
    server: ServerThread, words: bytes
) -> None:
    try:
        heard = say(server, words)
    except (BrokenPipeError, ConnectionResetError):
        heard = b""  # it did not even listen to the end
    assert heard == b"" or heard.startswith(b"HTTP/1.1 4"), heard[:100]
    assert get(server, "/api/site") == 200


def test_a_body_that_is_announced_as_large_is_refused_before_it_is_sent(
    server: ServerThread,
) -> None:
    began = time.monotonic()
    heard = say(
        server, b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10485760\r\n\r\n"
    )
    assert heard.startswith(b"HTTP/1.1 413")
    assert time.monotonic() - began < 2 * SLOWER


def test_a_body_without_a_length_is_refused_before_it_is_sent(server: ServerThread) -> None:
    heard = say(
        server,
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    assert heard.startswith(b"HTTP/1.1 411")
    assert b"connection: close" in heard.lower()


def test_many_ask_at_once(mill: Site, server: ServerThread) -> None:
    happen(mill, 1)
    paths = ["/api/events", "/api/cameras", "/metrics", "/api/stored"] * 10
    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(lambda path: get(server, path), paths)} == {200}


@dataclass
class Stages:
    """Stages that do as the test says."""

    stages: list[StageHealth] = field(default_factory=list)

    def health(self) -> Health:
        return Health(tuple(self.stages))


def test_healthz_fails_when_a_stage_hangs_and_names_it_only_to_the_operator(
    mill: Site, caplog: pytest.LogCaptureFixture
) -> None:
    stages = Stages([StageHealth("scoring", 0.2, 30.0), StageHealth("web", 0.1, 30.0)])
    app = mill.app(health=stages.health)
    stranger = TestClient(app, base_url=HERE)
    assert (stranger.get("/healthz").status_code, stranger.get("/healthz").text) == (200, "ok\n")
    stages.stages[0] = StageHealth("scoring", 31.5, 30.0)
    for _ in range(3):
        answer = stranger.get("/healthz")
        assert (answer.status_code, answer.text) == (503, "hanging\n")
    said = [one.getMessage() for one in caplog.records if one.name == "stepvad.web.app"]
    assert said == ["stages hang: scoring"]
    lines = TestClient(app, base_url=HERE, headers=BEARER).get("/metrics").text.splitlines()
    assert 'stepvad_stage_heartbeat_age_seconds{stage="scoring"} 31.5' in lines
    assert 'stepvad_stage_heartbeat_deadline_seconds{stage="web"} 30.0' in lines


def test_a_page_without_stages_is_healthy(mill: Site) -> None:
    assert TestClient(mill.app(), base_url=HERE).get("/healthz").text == "ok\n"


def test_healthz_answers_while_every_thread_is_busy(mill: Site) -> None:
    happen(mill, 1)
    server, threads = running(mill), []
    with mill.store._database._lock:
        for _ in range(60):  # more than there are threads
            line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            line.request("DELETE", "/api/events?camera=gate", headers=BEARER)
            threads.append(line)
        time.sleep(0.5)
        began = time.monotonic()
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        assert time.monotonic() - began < 1 * SLOWER
        line.close()
    for line in threads:
        assert line.getresponse().status == 200
        line.close()
    end(server)


def running(mill: Site) -> Server:
    server = bind(mill.app(), "127.0.0.1", 0)
    threading.Thread(target=server.run, name="web", daemon=True).start()
    return server


def end(server: Server, within_s: float = 5.0) -> None:
    server.stop(time.monotonic() + within_s)
    thread = next(one for one in threading.enumerate() if one.name == "web")
    thread.join(within_s * SLOWER)
    assert not thread.is_alive()


def test_a_supervisor_starts_and_stops_the_server(mill: Site) -> None:
    supervisor = Supervisor()
    server: Stage = bind(mill.app(health=supervisor.health), "127.0.0.1", 0)
    assert isinstance(server, Server)
    supervisor.start(server)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    line.request("GET", "/metrics", headers=BEARER)
    assert b'stepvad_stage_heartbeat_age_seconds{stage="web"}' in line.getresponse().read()
    assert supervisor.stop([server], 5) == []
    line.close()
    with pytest.raises(ConnectionRefusedError):
        line.connect()


def test_the_heart_beats_while_the_event_loop_runs(mill: Site) -> None:
    server = running(mill)
    time.sleep(1.5)
    assert server.heartbeat.age_s < 1.2 * SLOWER
    end(server)
    stopped = server.heartbeat.age_s
    time.sleep(1.2)
    assert server.heartbeat.age_s > stopped + 1


def test_a_request_that_hangs_does_not_keep_the_server(mill: Site) -> None:
    server = running(mill)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with mill.store._database._lock:
        line.request("DELETE", "/api/events?camera=gate", headers=BEARER)
        wait_until(lambda: is_busy(server))
        began = time.monotonic()
        end(server, 2.0)
        assert time.monotonic() - began < 2.5 * SLOWER
    line.close()


def is_busy(server: Server) -> bool:
    """Whether all its connections have a request in progress."""
    return bool(found := open_connections(server)) and all(one._has_request() for one in found)


def open_connections(server: Server) -> set[Any]:
    return server._server.server_state.connections


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


def test_a_connection_too_many_is_closed_and_the_others_stay(
    mill: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "REQUEST_S", 2.0)
    small = serve(mill.app(), "127.0.0.1", 0)
    try:
        with connect(live(small), additional_headers=BEARER) as wall:
            with idle_connections(small.port, 7) as lines:
                wait_until(lambda: len(open_connections(small.server)) == 8)
                for _ in range(3):
                    with socket.create_connection(("127.0.0.1", small.port), timeout=10) as late:
                        assert late.recv(1) == b""
                assert not any(map(is_closed, lines))
                wall.recv(timeout=10)
                # those that say nothing make room before long
                wait_until(lambda: len(open_connections(small.server)) == 1)
            assert ask(small.port, "/healthz")[0] == 200
            wall.recv(timeout=10)
    finally:
        small.stop()
    assert caplog.text.count("connections are open") == 1


@pytest.fixture
def impatient(mill: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
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
    impatient: ServerThread, words: bytes
) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=10) as line:
        line.sendall(words)
        assert line.recv(1) == b""
    assert 0.4 < time.monotonic() - began < 2 * SLOWER
    wait_until(lambda: not open_connections(impatient.server))


def test_a_slow_header_gets_no_more_time_by_another_byte(impatient: ServerThread) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=10) as line:
        while not is_closed(line):
            try:
                line.sendall(b"G")
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.05)
            assert time.monotonic() - began < 2 * SLOWER


def test_the_second_request_of_a_connection_has_to_arrive_as_well(impatient: ServerThread) -> None:
    line = http.client.HTTPConnection("127.0.0.1", impatient.port, timeout=10)
    for _ in range(3):
        line.request("GET", "/healthz")
        assert line.getresponse().read() == b"ok\n"
        time.sleep(0.3)  # idle between requests is not slow
    assert line.sock is not None
    line.sock.sendall(HALF)
    assert line.sock.recv(1) == b""
    line.close()


def test_a_client_that_does_not_read_is_waited_for_no_longer(impatient: ServerThread) -> None:
    asking = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(0.2)
        line.connect(("127.0.0.1", impatient.port))
        for _ in range(2000):
            try:
                line.sendall(asking * 100)
            except OSError:
                break
        wait_until(lambda: not open_connections(impatient.server))


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
    with small_buffers(sends_40_kb_and_closes) as (impatient, line):
        held = open_connections(impatient.server)
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert line.recv(8) == b"HTTP/1.1"
        assert held
        wait_until(lambda: not held, 5 * SLOWER)


def test_a_response_that_takes_longer_than_a_request_may_is_answered(
    mill: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    impatient = serve(mill.app(), "127.0.0.1", 0)
    line = http.client.HTTPConnection("127.0.0.1", impatient.port, timeout=10)
    try:
        with mill.store._database._lock:  # whoever writes waits
            line.request("DELETE", "/api/events?camera=yard", headers=BEARER)
            time.sleep(1.0)
        assert line.getresponse().status == 200
    finally:
        line.close()
        impatient.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"), "localhost", "127.0.0.1")


@pytest.fixture
def tls_server(mill: Site, certificate: Certificate) -> Iterator[ServerThread]:
    files = {"certificate": certificate.chain, "key": certificate.key}
    running = serve(mill.app(), "127.0.0.1", 0, **files)
    yield running
    running.stop()


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.chain))


def asking(tls_server: ServerThread, certificate: Certificate) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(
        "localhost", tls_server.port, timeout=10, context=trusting(certificate)
    )


def test_the_page_speaks_tls_and_its_cookie_is_secure(
    tls_server: ServerThread, certificate: Certificate
) -> None:
    assert tls_server.url == f"https://127.0.0.1:{tls_server.port}/"
    line = asking(tls_server, certificate)
    origin = {"Origin": f"https://localhost:{tls_server.port}"}
    for _ in range(3):
        line.request("GET", "/api/site", headers=BEARER)
        assert json.load(line.getresponse())["name"] == "mill"
    line.request("POST", "/login", f"token={TOKEN}", origin)
    answer = line.getresponse()
    assert answer.status == 303
    assert "Secure" in answer.headers["set-cookie"]
    line.close()


def test_the_wall_speaks_tls(tls_server: ServerThread, certificate: Certificate) -> None:
    address = f"wss://localhost:{tls_server.port}/ws/live"
    with connect(address, additional_headers=BEARER, ssl=trusting(certificate)) as wall:
        assert "cameras" in json.loads(wall.recv(timeout=10))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_wall_that_is_closing_stops_no_server_badly(mill: Site, certificate: Certificate) -> None:
    server = bind(mill.app(), "127.0.0.1", 0, certificate=certificate.chain, key=certificate.key)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(server.run)
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        line = trusting(certificate).wrap_socket(raw, server_hostname="localhost")
        with line, line.makefile("rb") as reader:
            asked = {
                "Host": "localhost",
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
                **BEARER,
            }
            head = "".join(f"{name}: {value}\r\n" for name, value in asked.items())
            line.sendall(f"GET /ws/live HTTP/1.1\r\n{head}\r\n".encode())
            assert reader.readline().startswith(b"HTTP/1.1 101")
            line.sendall(b"\x88\x80\0\0\0\0")  # a close frame, masked
            while b"\x88" not in reader.read1():  # which is answered, as the last frame
                pass
            server.stop(time.monotonic() + 10 * SLOWER)  # while TLS is open on this side
            wait_until(lambda: not listens(server.port))
        assert running.result(10 * SLOWER) is None


def test_tls_older_than_1_2_is_refused(tls_server: ServerThread, certificate: Certificate) -> None:
    old = trusting(certificate)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    line = http.client.HTTPSConnection("localhost", tls_server.port, timeout=10, context=old)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        line.request("GET", "/healthz")
    line.close()
    again = asking(tls_server, certificate)
    again.request("GET", "/healthz")
    assert again.getresponse().status == 200
    again.close()


def test_idle_connections_before_their_handshake_lock_nobody_out(
    tls_server: ServerThread, certificate: Certificate
) -> None:
    lines = [
        socket.create_connection(("127.0.0.1", tls_server.port), timeout=10) for _ in range(200)
    ]
    try:
        began = time.monotonic()
        line = asking(tls_server, certificate)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        assert time.monotonic() - began < 1 * SLOWER
        line.close()
    finally:
        for one in lines:
            one.close()


def test_many_handshakes_at_once(tls_server: ServerThread, certificate: Certificate) -> None:
    heard = []

    def ask() -> None:
        line = asking(tls_server, certificate)
        line.request("GET", "/api/site", headers=BEARER)
        heard.append(line.getresponse().status)
        line.close()

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert heard == [200] * 20


def test_files_that_are_no_certificate_are_refused(
    tmp_path: Path, certificate: Certificate
) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    other = make_certificate(tmp_path, "other.example")
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "ec", "-in", other.key, "-out", locked, "-aes128", "-passout", "pass:secret"],
        check=True,
        capture_output=True,
    )
    for chain, key, reason in (
        (junk, certificate.key, "no PEM that opens"),
        (certificate.chain, junk, "no PEM that opens"),
        (certificate.chain, other.key, "key values mismatch"),
        (certificate.chain, tmp_path / "nothing", "no file"),
        (other.chain, locked, "no PEM that opens"),
    ):
        with pytest.raises(ConfigError, match=rf"web\.certificate: expected .*, got: {reason}"):
            server_tls(chain, key)
