"""Servers that do everything but answer: each connection to them ends, and the next is tried."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stepvad.video.camera import Camera, StateChange
from stepvad.video.url import CameraTls, Url
from tests.video.clips import write_video
from tests.video.servers import SLOWER, RtspServer, has_rtsp_server, wait_until
from tests.video.tls_servers import make_certificates, wrapped

pytest.importorskip("av")
pytestmark = pytest.mark.slow

STALL_S = 0.4
TRICKLE_S = 0.1
LIMIT_S = 6 * SLOWER
"""For a connection that may last `PATIENCE` times `STALL_S`, on a busy machine."""

EMPTY = b"\x47\x1f\xff\x10" + 184 * b"\xff"
"""A packet of a transport stream that belongs to nobody."""

Talk = Callable[[socket.socket, threading.Event], None]


@contextmanager
def bad_server(talk: Talk, certificate: Path | None = None) -> Iterator[int]:
    """The port of a server that treats every client badly until the end."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client:
            client.settimeout(60)
            secure = wrapped(client, () if certificate is None else (certificate,))
            with secure:
                talk(secure, over)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threads.append(threading.Thread(target=serve, args=listener.accept()[:1]))
                    threads[-1].start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(10)


def trickle(client: socket.socket, data: bytes, over: threading.Event) -> None:
    """Send byte after byte, for ever."""
    while not over.wait(TRICKLE_S):
        client.sendall(data[:1])
        data = data[1:] + data[:1]


def silent(client: socket.socket, over: threading.Event) -> None:
    """Take whatever comes, and say nothing."""
    over.wait(60)


def trickling_header(client: socket.socket, over: threading.Event) -> None:
    """Begin an answer, and never come to its end."""
    client.recv(4096)
    trickle(client, b"X-Header: value\r\n", over)


def deaf_after_options(client: socket.socket, over: threading.Event) -> None:
    """Answer the first request and read nothing from then on."""
    client.recv(4096)
    client.sendall(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nPublic: DESCRIBE\r\n\r\n")
    over.wait(60)


def endless_header(client: socket.socket, over: threading.Event) -> None:
    """Send header lines as fast as they are taken."""
    client.recv(4096)
    client.sendall(b"RTSP/1.0 200 OK\r\n")
    while not over.is_set():
        client.sendall(b"X-Header: value\r\n" * 100)


def retries(url: str, tls: CameraTls | None = None, stall_s: float = STALL_S) -> list[StateChange]:
    """Watch a camera through two connections that must not last, and stop it in the third."""
    changes: list[StateChange] = []
    camera = Camera("door", Url(url, tls=tls), on_state=changes.append, stall_s=stall_s)
    reader = threading.Thread(target=lambda: list(camera), daemon=True)
    reader.start()
    for attempt in (1, 2):
        wait_until(lambda n=attempt: camera._epoch >= n, LIMIT_S)  # type: ignore[misc]
    camera.stop()
    assert camera._thread is not None
    camera._thread.join(LIMIT_S)
    assert not camera._thread.is_alive()
    assert camera.state == "offline"
    return changes


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
@pytest.mark.parametrize("talk", [silent, trickling_header, deaf_after_options, endless_header])
def test_a_server_that_never_answers_is_given_up(scheme: str, talk: Talk) -> None:
    with bad_server(talk) as port:
        changes = retries(f"{scheme}://viewer:x@127.0.0.1:{port}/a")
    assert [change.state for change in changes] == ["offline"]


@pytest.mark.parametrize("scheme", ["rtsps", "https"])
@pytest.mark.parametrize("talk", [silent, trickling_header])
def test_a_server_over_tls_that_never_answers_is_given_up(
    tmp_path: Path, scheme: str, talk: Talk
) -> None:
    certs = make_certificates(tmp_path)
    with bad_server(talk, certs / "good.pem") as port:
        retries(f"{scheme}://viewer:x@127.0.0.1:{port}/a", CameraTls(certs / "ca.pem"))


@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("scheme", ["rtsps", "https"])
def test_a_handshake_that_never_ends_is_given_up(scheme: str, insecure: bool) -> None:
    with bad_server(silent) as port:
        retries(f"{scheme}://viewer:x@127.0.0.1:{port}/a", CameraTls(insecure=insecure))


def test_a_server_that_accepts_nobody_is_given_up() -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):  # from now on nobody gets as far as the queue
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        retries(f"rtsp://127.0.0.1:{listener.getsockname()[1]}/a")


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("how", ["silent", "trickle", "nothing to see"])
def test_a_stream_that_stops_midway_is_given_up(tmp_path: Path, how: str, secure: bool) -> None:
    body = write_video(tmp_path / "a.ts", codec="mpeg2video").read_bytes()

    def stop_midway(client: socket.socket, over: threading.Event) -> None:
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\n\r\n" + body)
        if how == "trickle":
            trickle(client, body, over)
        while how == "nothing to see" and not over.is_set():
            client.sendall(EMPTY * 50)
        over.wait(60)

    certs = make_certificates(tmp_path) if secure else None
    scheme, tls = ("http", None) if certs is None else ("https", CameraTls(certs / "ca.pem"))
    with bad_server(stop_midway, None if certs is None else certs / "good.pem") as port:
        changes = retries(f"{scheme}://127.0.0.1:{port}/a", tls)
    assert [change.state for change in changes[:2]] == ["online", "offline"]
    assert changes[1].reason.startswith("no ")


def test_a_camera_over_tls_that_freezes_is_noticed_and_let_go(tmp_path: Path) -> None:
    if not has_rtsp_server():
        pytest.skip("GStreamer's RTSP server is not installed")
    certs = make_certificates(tmp_path)
    clip = write_video(tmp_path / "a.mkv", codec="libx264")
    server = RtspServer(clip, tmp_path / "server.log", certs / "good.pem")
    server.start()
    try:
        changes: list[StateChange] = []
        url = Url(server.address, tls=CameraTls(certs / "ca.pem"))
        camera = Camera("door", url, on_state=changes.append)
        threading.Thread(target=lambda: list(camera), daemon=True).start()
        wait_until(lambda: camera.counts.decoded >= 10)
        server.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        wait_until(lambda: camera.state == "offline", 5 * SLOWER)
        epoch = camera._epoch
        wait_until(lambda: camera._epoch > epoch, 5 * SLOWER)
        assert time.monotonic() - started < 10 * SLOWER
        camera.stop()
        assert camera._thread is not None
        camera._thread.join(10 * SLOWER)
        assert not camera._thread.is_alive()
    finally:
        server.kill()
