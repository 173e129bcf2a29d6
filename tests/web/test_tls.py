"""TLS of the page itself."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect

from stepvad.errors import ConfigError
from stepvad.site.settings.page import server_tls
from tests.video.servers import SLOWER
from tests.web.certificates import Certificate, make_certificate
from tests.web.sites import BEARER, TOKEN, ServerThread, Site, serve


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"), "localhost", "127.0.0.1")


@pytest.fixture
def server(mill: Site, certificate: Certificate) -> Iterator[ServerThread]:
    files = {"certificate": certificate.chain, "key": certificate.key}
    running = serve(mill.app(), "127.0.0.1", 0, **files)
    yield running
    running.stop()


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.chain))


def asking(server: ServerThread, certificate: Certificate) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(
        "localhost", server.port, timeout=10, context=trusting(certificate)
    )


def test_the_page_speaks_tls_and_its_cookie_is_secure(
    server: ServerThread, certificate: Certificate
) -> None:
    assert server.url == f"https://127.0.0.1:{server.port}/"
    line = asking(server, certificate)
    origin = {"Origin": f"https://localhost:{server.port}"}
    for _ in range(3):
        line.request("GET", "/api/site", headers=BEARER)
        assert json.load(line.getresponse())["name"] == "mill"
    line.request("POST", "/login", f"token={TOKEN}", origin)
    answer = line.getresponse()
    assert answer.status == 303
    assert "Secure" in answer.headers["set-cookie"]
    line.close()


def test_the_wall_speaks_tls(server: ServerThread, certificate: Certificate) -> None:
    address = f"wss://localhost:{server.port}/ws/live"
    with connect(address, additional_headers=BEARER, ssl=trusting(certificate)) as wall:
        assert "cameras" in json.loads(wall.recv(timeout=10))


def test_tls_older_than_1_2_is_refused(server: ServerThread, certificate: Certificate) -> None:
    old = trusting(certificate)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    line = http.client.HTTPSConnection("localhost", server.port, timeout=10, context=old)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        line.request("GET", "/healthz")
    line.close()
    again = asking(server, certificate)
    again.request("GET", "/healthz")
    assert again.getresponse().status == 200
    again.close()


def test_idle_connections_before_their_handshake_lock_nobody_out(
    server: ServerThread, certificate: Certificate
) -> None:
    lines = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(200)]
    try:
        began = time.monotonic()
        line = asking(server, certificate)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        assert time.monotonic() - began < 1 * SLOWER
        line.close()
    finally:
        for one in lines:
            one.close()


def test_many_handshakes_at_once(server: ServerThread, certificate: Certificate) -> None:
    heard = []

    def ask() -> None:
        line = asking(server, certificate)
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
