"""Services that messages to people are sent to, and a browser that gets them."""

from __future__ import annotations

import base64
import email
import email.policy
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.site.receivers import serving
from tests.video.servers import free_port
from tests.web.sites import make_certificate


@dataclass
class MailServer:
    """What it got, and what it answers."""

    port: int
    got: list[EmailMessage] = field(default_factory=list)
    answer: str = "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            message = email.message_from_bytes(envelope.content, policy=email.policy.default)
            self.got.append(message)
        return self.answer


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """A server that takes mail for anybody, without a password."""
    state = MailServer(free_port())
    controller = Controller(state, hostname="127.0.0.1", port=state.port)
    controller.start()
    try:
        yield state
    finally:
        controller.stop()


def text_of(message: EmailMessage) -> str:
    """The plain text of a mail."""
    body = message.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def unpadded(text: str) -> bytes:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64decode(text + "==")


def mac(key: bytes, text: bytes) -> bytes:
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(text)
    return made.finalize()


class Browser:
    """The keys of a subscription; written from the standard, step by step, with HMAC alone."""

    def __init__(self, key: str = "", auth: str = "") -> None:
        """`key`, `auth`: its secrets in base64, by default new ones."""
        number = int.from_bytes(unpadded(key) if key else os.urandom(31), "big")
        self._key = ec.derive_private_key(number, ec.SECP256R1())
        self._auth = unpadded(auth) if auth else os.urandom(16)
        self._public = self._key.public_key().public_bytes(
            Encoding.X962, PublicFormat.UncompressedPoint
        )
        self.p256dh = base64.urlsafe_b64encode(self._public).rstrip(b"=").decode()
        self.auth = base64.urlsafe_b64encode(self._auth).rstrip(b"=").decode()

    def read(self, body: bytes) -> bytes:
        """Decrypt one message."""
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, record = body[21 : 21 + length], body[21 + length :]
        assert len(body) <= size == 4096
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared = mac(self._auth, self._key.exchange(ec.ECDH(), theirs))
        material = mac(shared, b"WebPush: info\0" + self._public + sender + b"\1")
        pseudorandom = mac(salt, material)
        key = mac(pseudorandom, b"Content-Encoding: aes128gcm\0\1")[:16]
        nonce = mac(pseudorandom, b"Content-Encoding: nonce\0\1")[:12]
        plain = AESGCM(key).decrypt(nonce, record, None).rstrip(b"\0")
        assert plain[-1:] == b"\2"
        return plain[:-1]


@dataclass
class PushService:
    """What a push service got, by path, and the status that it answers, by path; else 201."""

    address: str = ""
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)


@contextmanager
def push_service(directory: Path) -> Iterator[PushService]:
    """A push service on localhost; its certificate is `chain.pem` in the directory."""
    state = PushService()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.got.append((self.path, dict(self.headers.items()), body))
            self.send_response(state.statuses.get(self.path, 201))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    certificate = make_certificate(directory, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        state.address = f"https://localhost:{server.server_port}"
        with serving(server):
            yield state
