"""What hears of a site: a webhook, a subscriber of Mosquitto, a mailbox, a file."""

from __future__ import annotations

import email
import email.policy
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from paho.mqtt.client import CallbackAPIVersion, Client

from tests.site.receivers import Broker
from tests.video.servers import free_port

SINKS = ("webhook", "mqtt", "mail", "file")
SEVERAL = re.compile(r": \d+ events\b")
WORDLESS = re.compile(r"moving unusually(\.|$)")
"""A first message that the words of its event still follow."""
CLOCK = re.compile(r"\b(\d\d):(\d\d):(\d\d)\b")


@dataclass(frozen=True, slots=True)
class Heard:
    """One message about one event, as a receiver got it."""

    sink: str
    at: float
    kind: str
    id: str
    camera: str
    epoch: int
    frame: int
    start: float
    key: str
    """What tells it from others: id and version, or a digest where messages have no version."""


@dataclass(frozen=True, slots=True)
class Mail:
    """One message to people."""

    at: float
    subject: str
    body: str

    @property
    def is_alert(self) -> bool:
        """Whether it is about events, not about the site."""
        return not self.subject.startswith("test: ") or bool(SEVERAL.search(self.subject))

    @property
    def says(self) -> str:
        """What it says of the site, in a few words."""
        said = self.subject.partition(": ")[2]
        several = "messages about the site" in said
        lines = [line.partition(". ")[0] for line in self.body.splitlines() if ". " in line]
        return ", ".join(lines) if several else said

    def mentions(self) -> Iterator[tuple[str, float, bool]]:
        """Cameras, the seconds of the day of their events, and whether it has their words."""
        for line in self.body.splitlines():
            if found := CLOCK.search(line):
                rest = line[found.end() :].strip() or self.subject
                hours, minutes, seconds = map(int, found.groups())
                second = 3600.0 * hours + 60 * minutes + seconds
                yield re.split(r"\W", rest)[0].lower(), second, not WORDLESS.search(line)

    def counts(self) -> dict[str, int]:
        """Events by camera of a message that lists the latest of them only."""
        first = self.body.partition("\n")[0]
        if "The latest" not in first:
            return {}
        return {name.lower(): int(n) for name, n in re.findall(r"(\w+) (\d+)", first)[:-1]}


@dataclass
class Messages:
    """Everything that was heard, in the order in which it came."""

    events: list[Heard] = field(default_factory=list)
    mails: list[Mail] = field(default_factory=list)

    def add(self, sink: str, message: dict[str, Any]) -> None:
        """Take down a message about an event."""
        one = message["after"]
        text = json.dumps(message, sort_keys=True)
        mark = one.get("version") or hashlib.sha256(text.encode()).hexdigest()[:12]
        self.events.append(
            Heard(
                sink, time.time(), message["type"], one["id"], one["camera"], one["epoch"],
                one["frame_seq"], one["start_time"], f"{one['id']} {mark}",
            )
        )  # fmt: skip


class Webhook:
    """A receiver of webhooks that can go away and come back, or take requests and say nothing."""

    def __init__(self, messages: Messages) -> None:
        self.port, self._messages = free_port(), messages
        self._server: ThreadingHTTPServer | None = None
        self.answers = threading.Event()
        self.answers.set()

    def start(self) -> None:
        messages, answers = self._messages, self.answers

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not answers.is_set():
                    answers.wait()  # the client is long gone
                    return
                messages.add("webhook", body["data"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Answer)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=[0.1], daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class Mailbox:
    """An SMTP server that takes mail for anybody."""

    def __init__(self, messages: Messages) -> None:
        self.port, self._messages = free_port(), messages
        self._controller: Controller | None = None

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        body = mail.get_body(("plain",))
        text = "" if body is None else str(body.get_content())
        self._messages.mails.append(Mail(time.time(), str(mail["Subject"]), text))
        return "250 OK"

    def start(self) -> None:
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    def stop(self) -> None:
        if self._controller is not None:
            self._controller.stop()
            self._controller = None


class Subscriber:
    """Mosquitto and one who has subscribed to all events; the broker can be killed."""

    def __init__(self, directory: Path, messages: Messages) -> None:
        directory.mkdir()
        self.broker, self._messages = Broker(directory), messages
        self._client = Client(CallbackAPIVersion.VERSION2, "subscriber", clean_session=False)
        self._client.on_connect = lambda client, *_: client.subscribe("stepvad/events", 1)
        self._client.on_message = self._heard
        self._client.reconnect_delay_set(0.1, 0.2)  # before the site, which waits for a second

    def _heard(self, client: object, userdata: object, message: Any) -> None:
        self._messages.add("mqtt", json.loads(message.payload))

    def start(self) -> None:
        self.broker.start()
        self._client.connect("127.0.0.1", self.broker.port)
        self._client.loop_start()

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        with suppress(AttributeError):  # it never began
            self.broker.stop()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill the broker; it comes back at the end."""
        self.broker.process.kill()
        self.broker.process.wait()
        try:
            yield
        finally:
            self.broker.stop()  # which notes where its next log begins
            self.broker.start()


def follow(path: Path, messages: Messages, stopping: threading.Event) -> None:
    """Read the lines of the file sink as they come."""
    at = 0
    while not stopping.wait(0.1):
        if not path.exists():
            continue
        with path.open("rb") as file:
            file.seek(at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                at += len(line)
                messages.add("file", json.loads(line))
