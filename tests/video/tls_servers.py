"""Certificates, and servers that ask for a password over TLS and write down what they get."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.video.servers import CANARY

Answer = Callable[[bytes], bytes]

_NEW = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
PASSWORD = base64.b64encode(f"viewer:{CANARY}".encode())


def make_certificates(directory: Path) -> Path:
    """`ca.pem`, `good.pem` and `other.pem` by it, `self.pem` by itself; keys beside them."""
    made = _request("req -x509 " + _NEW, "ca", directory)
    _run([*made, "-out", "ca.pem", "-addext", "keyUsage=critical,keyCertSign"], directory)
    for name, host in (("good", "IP:127.0.0.1,DNS:localhost"), ("other", "DNS:evil.example")):
        _run([*_request("req " + _NEW, name, directory), "-out", "request"], directory)
        (directory / "extensions").write_text(f"subjectAltName={host}\n")
        signed = "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
        _run([*signed.split(), "-extfile", "extensions", "-out", f"{name}.pem"], directory)
    made = _request("req -x509 " + _NEW, "self", directory)
    _run([*made, "-out", "self.pem", "-addext", "subjectAltName=IP:127.0.0.1"], directory)
    return directory


def _request(words: str, name: str, directory: Path) -> list[str]:
    return [*words.split(), "-keyout", f"{name}.key", "-subj", f"/CN={name}"]


def _run(words: list[str], directory: Path) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def asks_for_password(request: bytes) -> bytes:
    """What a camera answers to RTSP and HTTP alike: only with a password."""
    number = re.search(rb"CSeq: (\d+)", request)
    if number and request.startswith(b"OPTIONS"):
        return b"RTSP/1.0 200 OK\r\nCSeq: %s\r\nPublic: DESCRIBE\r\n\r\n" % number[1]
    refused = b'401 Unauthorized\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n'
    if number:
        return b"RTSP/1.0 %sCSeq: %s\r\n\r\n" % (refused, number[1])
    return b"HTTP/1.1 " + refused + b"\r\n"


def redirects_to(address: str) -> Answer:
    """What a camera answers that sends everybody elsewhere."""

    def answer(request: bytes) -> bytes:
        number = re.search(rb"CSeq: (\d+)", request)
        if number and request.startswith(b"OPTIONS"):
            return asks_for_password(request)
        moved = b"302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n" % address.encode()
        if number:
            return b"RTSP/1.0 %sCSeq: %s\r\n\r\n" % (moved, number[1])
        return b"HTTP/1.1 " + moved + b"\r\n"

    return answer


class Recorded:
    """What a server was sent, and how often somebody connected."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.requests: list[bytes] = []

    @property
    def got_password(self) -> bool:
        return any(PASSWORD in request for request in self.requests)


@contextmanager
def recording_server(*certificates: Path, answer: Answer = asks_for_password) -> Iterator[Recorded]:
    """A server over TLS; its connections get the certificates in turn, the last one for ever.

    Without certificates it is a server without TLS.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        recorded = Recorded(listener.getsockname()[1])
        threads: list[threading.Thread] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    which = certificates[min(recorded.connections, len(certificates) - 1) :][:1]
                    recorded.connections += 1
                    threads.append(threading.Thread(target=_talk, args=(client, which)))
                    threads[-1].start()

        def _talk(client: socket.socket, which: tuple[Path, ...]) -> None:
            client.settimeout(5)
            with suppress(OSError), client, wrapped(client, which) as talk:
                while request := talk.recv(8192):
                    recorded.requests.append(request)
                    talk.sendall(answer(request))

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield recorded
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (server, *threads):
                thread.join(10)


def wrapped(client: socket.socket, certificate: tuple[Path, ...]) -> socket.socket:
    """The connection over TLS, if there is a certificate for it."""
    if not certificate:
        return client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[0], certificate[0].with_suffix(".key"))
    return context.wrap_socket(client, server_side=True)
