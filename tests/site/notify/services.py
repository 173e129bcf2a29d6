"""A mail server on the loopback interface."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.video.servers import free_port


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
