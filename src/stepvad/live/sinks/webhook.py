"""Events posted to a web address as CloudEvents 1.0, signed."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepvad.live.sinks import DeliveryError, RefusedError
from stepvad.secrets import secret
from stepvad.video.url import HIDDEN, redact

if TYPE_CHECKING:
    from stepvad.events import Kind
    from stepvad.live.settings import Webhook as WebhookSettings

TYPE = "dev.stepvad.event"
TIMESTAMP = "Stepvad-Timestamp"
SIGNATURE = "Stepvad-Signature"
NOT_NOW = frozenset({408, 425, 429})
"""Answers of the 400s that ask to come again."""


class Webhook:
    """Posts each message and takes 2xx as its arrival; redirects are not followed."""

    def __init__(
        self, settings: WebhookSettings, *, site: str, clock: Callable[[], float] = time.time
    ) -> None:
        parts = urlsplit(settings.url)
        self.name = f"webhook:{settings.name}"
        self._site = site
        self._clock = clock
        self._timeout_s = settings.timeout_s
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._key = secret(settings.secret) if settings.secret else None
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """All of the address that an error may show: the rest may be a secret."""

    def send(self, kind: Kind, message: dict[str, Any]) -> None:
        """Post one message."""
        body = json.dumps(cloud_event(kind, message, self._site)).encode()
        try:
            status, after_s = self._post(body)
        except (OSError, http.client.HTTPException) as error:
            # What a server says may repeat what it was told: none of it is shown.
            words = self._hide(str(error)) if isinstance(error, OSError) else "something else"
            raise DeliveryError(
                f"{self._place}: expected an answer, got: {words}",
                hint="check the address and that somebody listens there",
            ) from None
        if 200 <= status < 300:
            return
        problem = f"{self._place}: expected 2xx, got {status}"
        if 300 <= status < 400:
            raise DeliveryError(problem, hint="redirects are not followed: name the final address")
        if 400 <= status < 500 and status not in NOT_NOW:
            raise RefusedError(problem, hint="the receiver takes no message like this one")
        raise DeliveryError(problem, after_s=after_s)

    def close(self) -> None:
        """No connection stays open."""

    def _post(self, body: bytes) -> tuple[int, float]:
        """The status of the answer, and the seconds that it asks to wait."""
        connection = self._connection()
        try:
            connection.request("POST", self._target, body, self._headers(body))
            answer = connection.getresponse()
            answer.read(1 << 16)
            asked = answer.headers.get("Retry-After", "")
            return answer.status, float(asked) if asked.isdecimal() else 0.0
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=context
        )

    def _headers(self, body: bytes) -> dict[str, str]:
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "User-Agent": "stepvad",
        }
        if self._key is not None:
            timestamp = str(int(self._clock()))
            headers[TIMESTAMP] = timestamp
            headers[SIGNATURE] = f"v1={signature(self._key, timestamp, body)}"
        return headers

    def _hide(self, text: str) -> str:
        """The text without the key and without what follows the host in the address."""
        for word in (self._key, self._target if len(self._target) > 1 else None):
            text = text.replace(word, HIDDEN) if word else text
        return redact(text)


def signature(key: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over the time of sending, a full stop and the body, in hex."""
    return hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def cloud_event(kind: Kind, message: dict[str, Any], site: str) -> dict[str, Any]:
    """A message in its envelope; the id is the same each time the message is sent."""
    after = message["after"]
    digest = hashlib.sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()[:12]
    envelope = {
        "specversion": "1.0",
        "id": f"{after['id']}-{kind}-{digest}",
        "source": f"/stepvad/{site}/{after['camera']}",
        "type": f"{TYPE}.{kind}",
        "subject": after["id"],
        "datacontenttype": "application/json",
        "data": message,
    }
    moment = {"new": after["start_time"], "end": after["end_time"]}.get(kind)
    if moment is not None:
        envelope["time"] = datetime.fromtimestamp(moment, UTC).isoformat()
    return envelope
