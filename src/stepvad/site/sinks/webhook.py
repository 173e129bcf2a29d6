"""Sinks for machines: webhooks that get CloudEvents, and a file that gets lines of JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepvad.codec import encode, to_plain
from stepvad.errors import MissingExtraError, os_reason
from stepvad.events.record import DeliveryError, RefusedError
from stepvad.files import HIDDEN, redact, secret

if TYPE_CHECKING:
    from httpx import AsyncClient

    from stepvad.codec import JsonObject
    from stepvad.events.record import SinkMessage
    from stepvad.events.rules import ChangeKind
    from stepvad.site.settings.sections import WebhookSettings


TYPE = "dev.stepvad.event"
TIMESTAMP = "Stepvad-Timestamp"
SIGNATURE = "Stepvad-Signature"
MOST_BYTES = 1 << 16
"""Maximum size of a response, which is discarded; beyond it the connection is closed."""
REFUSED = frozenset({400, 406, 411, 413, 414, 415, 417, 422, 431})
"""Statuses about the message itself: it would be refused again. All others may end."""

LONGEST_LINE = 1 << 20
"""Upper bound for the bytes of a line."""


class Webhook:
    """Posts each message; a 2xx status acknowledges it. Redirects are not followed.

    The connection is kept alive between messages, proxies come from the environment, and the
    timeout applies to the whole request, however slowly the receiver responds.
    """

    def __init__(
        self, settings: WebhookSettings, *, site: str, clock: Callable[[], float] = time.time
    ) -> None:
        # the path may hold a key: errors show scheme and host only
        parts = urlsplit(settings.url)
        self.name = f"webhook:{settings.name}"
        self._site = site
        self._clock = clock
        self.timeout_s = settings.timeout_s
        """Longest time for one request."""
        self._url = settings.url
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._key = secret(settings.secret) if settings.secret else None
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """The part of the URL that errors may show; the rest may be a secret."""
        self._client = self._make()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Event loop of the sending thread, needed for a timeout of the whole request."""

    def _make(self) -> AsyncClient:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("webhooks", "live") from None
        return httpx.AsyncClient(
            timeout=self.timeout_s,
            verify=ssl.create_default_context(),
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            headers={"User-Agent": "stepvad"},
        )

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Post one message."""
        # taken, refused for good, or to be sent again
        body = json.dumps(cloud_event(kind, message, self._site)).encode()
        status, after_s = self._within_time(body)
        if 200 <= status < 300:
            return
        problem = f"{self._place}: expected 2xx, got {status}"
        if status in REFUSED:
            raise RefusedError(problem, hint="the receiver refuses messages like this one")
        hint = "check the address and the receiver" if status < 500 else ""
        if 300 <= status < 400:
            hint = "redirects are not followed: name the final address"
        raise DeliveryError(problem, hint=hint, after_s=after_s)

    def close(self) -> None:
        """Close the connection."""
        if self._loop is not None:
            self._loop.run_until_complete(self._client.aclose())
            self._loop.close()
            self._loop, self._client = None, self._make()

    def _within_time(self, body: bytes) -> tuple[int, float]:
        """Post within the timeout; return the status and the Retry-After seconds."""
        import httpx

        # asyncio, since only there a time-out covers the whole request
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(asyncio.wait_for(self._post(body), self.timeout_s))
        except (TimeoutError, httpx.TimeoutException):
            words = f"nothing in {self.timeout_s:g} s: timed out"
        except httpx.ProxyError:
            words = "a proxy that refuses"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            words = self._hide(_reason(error))
        raise DeliveryError(
            f"{self._place}: expected an answer, got: {words}",
            hint="check the address and that a server is listening there",
        )

    async def _post(self, body: bytes) -> tuple[int, float]:
        headers = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
        if self._key is not None:
            # signed with its time: whoever records a request cannot send it again later
            timestamp = str(int(self._clock()))
            headers[TIMESTAMP] = timestamp
            headers[SIGNATURE] = f"v1={signature(self._key, timestamp, body)}"
        async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
            # read a short answer to its end, so that the connection is used again
            size = 0
            async for part in answer.aiter_raw():
                size += len(part)
                if size > MOST_BYTES:
                    break
            asked = answer.headers.get("Retry-After", "")
            return answer.status_code, float(asked) if asked.isdecimal() else 0.0

    def _hide(self, text: str) -> str:
        """Hide the key, and the path and query of the URL, in a text."""
        for word in (self._key, self._target if len(self._target) > 1 else None):
            text = text.replace(word, HIDDEN) if word else text
        return redact(text)


def signature(key: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 of the timestamp, a full stop and the body, in hex."""
    return hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def cloud_event(kind: ChangeKind, message: SinkMessage, site: str) -> JsonObject:
    """A message in its envelope; the id is the same each time the message is sent."""
    after = message.after
    envelope: JsonObject = {
        "specversion": "1.0",
        "id": f"{after.id}-{kind}-{after.version}",
        "source": f"/stepvad/{site}/{after.camera}",
        "type": f"{TYPE}.{kind}",
        "subject": after.id,
        "datacontenttype": "application/json",
        "data": to_plain(message),
    }
    moment = {"new": after.start_time, "end": after.end_time}.get(kind)
    if moment is not None:
        envelope["time"] = datetime.fromtimestamp(moment, UTC).isoformat()
    return envelope


class JsonLines:
    """Appends one line of JSON per event change; it is on disk when `send` returns.

    The file is opened for each line, so it can be moved at any time. A line that a crash cut off is
    removed before the next one: its message is sent again.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, "file"

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Append one line."""
        line = encode(message) + b"\n"
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                # a line is there as a whole or not at all
                size = file.seek(0, os.SEEK_END)
                tail = os.pread(descriptor, LONGEST_LINE, max(size - LONGEST_LINE, 0))
                torn = tail.rpartition(b"\n")[2]
                size = file.truncate(size - len(torn) * torn.startswith(b"{"))
                try:
                    if (n := os.write(descriptor, line)) < len(line):
                        raise OSError(f"{n} of {len(line)} bytes were written")
                    os.fsync(descriptor)
                except OSError:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise DeliveryError(
                f"{self.path}: expected a file that can be written, got: {os_reason(error)}",
                hint="check the directory, its permissions and the free space",
            ) from error

    def close(self) -> None:
        """Do nothing: the file is not kept open."""


def _reason(error: BaseException) -> str:
    """The system's reason for a failed connection; server messages could echo the request."""
    words, cause = "something else", error
    while True:
        if isinstance(cause, ssl.SSLError | socket.gaierror):
            words = cause.strerror or words
        elif isinstance(cause, OSError) and cause.errno:
            words = os.strerror(cause.errno)
        following = cause.__cause__ or cause.__context__
        if isinstance(cause, BaseExceptionGroup):
            following = cause.exceptions[0]
        if following is None:
            return words
        cause = following
