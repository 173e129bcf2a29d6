"""Web Push to all browsers of a site in which somebody asked for notifications."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from stepvad.errors import MissingExtraError
from stepvad.incidents.sink import DeliveryError
from stepvad.settings.notify import BROWSERS
from stepvad.site.notifications.push_subscriptions import PushSubscription, PushSubscriptions
from stepvad.site.notifications.sending import SendingProcess
from stepvad.site.notifications.sending_child import Answer, PushRequest, Task
from stepvad.site.notifications.words import Notice

if TYPE_CHECKING:
    from apprise.utils.pem import ApprisePEMController

MOST_PLAIN = 3993
"""Longest text that fits into the one record of 4,096 bytes that push services must take."""
TOKEN_S = 12 * 3600
"""How long a signature is valid; services accept a day at most."""
LIFETIME_S = 4 * 3600
"""How long a push service keeps a message for a browser that is off."""
MOST_TRIES = 5
"""Attempts for one browser once another has the message; then the others do not wait any longer."""
GONE = frozenset({401, 403, 404, 410})
"""The subscription has ended, or belongs to another key: the person must press the button again."""

Outcome = Literal["taken", "gone", "refused", "failed"]

logger = logging.getLogger(__name__)


def outcome(status: int) -> Outcome:
    """What the answer of a push service means."""
    if 200 <= status < 300:
        return "taken"
    if status in GONE:
        return "gone"
    return "failed" if status == 0 or status == 429 or status >= 500 else "refused"


class BrowserTarget:
    """Sends a message to every subscribed browser; ended subscriptions are removed.

    While some fail, the message is sent again to those only: `MOST_TRIES` times once one browser
    has it, and without a limit while none has, as when the site is offline.
    """

    label = BROWSERS

    def __init__(self, subscriptions: PushSubscriptions, *, contact: str = "") -> None:
        """`contact`: an https address that tells push services who sends; may be empty."""
        if find_spec("apprise") is None:
            raise MissingExtraError("notify", "notify")
        self._subscriptions = subscriptions
        self._contact = contact if contact.startswith("https://") else ""
        self._process = SendingProcess()
        self._sending: Notice | None = None
        self._has_reached = False
        """Whether any browser has the message `_sending`."""
        self._tries: dict[str, int] = {}
        """Attempts by browser for the message `_sending`; taken ones have `MOST_TRIES`."""

    @property
    def has_people(self) -> bool:
        """Whether any browser is subscribed."""
        return bool(self._subscriptions.all())

    def check(self) -> str:
        """How many browsers there are; no key is made yet."""
        self._subscriptions.check()
        n = len(self._subscriptions.all())
        return {0: "none yet", 1: "1 browser"}.get(n, f"{n} browsers")

    def send(self, notice: Notice) -> str:
        """Send one message to all browsers that do not have it yet."""
        if notice != self._sending:
            self._sending, self._has_reached, self._tries = notice, False, {}
        known = self._subscriptions.all()
        waiting = [one for one in known if self._tries.get(one.endpoint, 0) < MOST_TRIES]
        if not known:
            return "no browser has asked for notifications yet"
        found, reason = self._post(notice, waiting) if waiting else ([], "")
        counted = Counter(found)
        if counted["failed"]:
            raise DeliveryError(
                f"browsers: expected {len(waiting)} to get a message, got {counted['failed']} push "
                f"services that refused it: {reason}",
                hint="check that this machine can reach the internet",
            )
        self._sending = None
        said = [f"{counted['taken']} of {len(known)} browsers got it"]
        if counted["gone"]:
            said.append(f"{counted['gone']} had ended their subscription and are removed")
        if counted["refused"]:
            said.append(f"{counted['refused']} could not be reached: {reason}")
        return ", ".join(said)

    def cancel(self) -> None:
        """Kill a running send."""
        self._process.cancel()

    def _post(self, notice: Notice, to: Sequence[PushSubscription]) -> tuple[list[Outcome], str]:
        """What became of the message at each browser, and the first reason why not."""
        key = self._subscriptions.key()
        requests = tuple(self._request(key, notice, one) for one in to)
        said = self._process.run(Task("post", requests=requests))
        answers = {answer.request: answer for answer in said}
        found = [outcome(answers[n].status if n in answers else 0) for n in range(len(to))]
        reasons = [
            _reason(one, answers.get(n))
            for n, one in enumerate(to)
            if found[n] in ("failed", "refused")
        ]
        gone = [one.endpoint for one, what in zip(to, found, strict=True) if what == "gone"]
        if gone:
            self._subscriptions.remove(gone)
            logger.info("browsers: %d subscriptions have ended and are removed", len(gone))
        self._has_reached |= "taken" in found
        tried = [self._tried(one.endpoint, what) for one, what in zip(to, found, strict=True)]
        return tried, next(iter(reasons), "")

    def _tried(self, endpoint: str, what: Outcome) -> Outcome:
        """Count an attempt; what fails too often is refused."""
        most = MOST_TRIES if self._has_reached else MOST_TRIES - 1
        tries = min(self._tries.get(endpoint, 0) + 1, most) if what == "failed" else MOST_TRIES
        self._tries[endpoint] = tries
        return "refused" if what == "failed" and tries == MOST_TRIES else what

    def _request(
        self, key: ApprisePEMController, notice: Notice, to: PushSubscription
    ) -> PushRequest:
        """A post to a push service.

        Apprise encrypts and signs. Its own post keeps a message for a minute at most, states no
        urgency and gives one answer for all browsers.
        """
        body = key.encrypt_webpush(payload(notice), *to.keys)
        topic = hashlib.sha256(notice.tag.encode()).digest()[:24]
        headers = {
            "Authorization": authorization(to.endpoint, key, time.time(), self._contact),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(LIFETIME_S),
            "Topic": _base64(topic),  # a newer message replaces one not yet delivered
            "Urgency": "high",
        }
        return PushRequest(to.endpoint, headers, body)


def authorization(endpoint: str, key: ApprisePEMController, now: float, contact: str) -> str:
    """The header that proves to a push service which site sends (RFC 8292)."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + TOKEN_S}
    if contact:
        claims["sub"] = contact
    head = {"typ": "JWT", "alg": "ES256"}
    signed = ".".join(_base64(json.dumps(one).encode()) for one in (head, claims))
    return f"vapid t={signed}.{_base64(key.sign(signed.encode()) or b'')}, k={key.x962_str}"


def _base64(raw: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def payload(notice: Notice) -> bytes:
    """What the service worker reads; long texts are cut to what a push message holds."""
    body = notice.body
    while True:
        facts = {"title": notice.title, "body": body, "link": notice.link, "tag": notice.tag}
        raw = json.dumps(facts, ensure_ascii=False).encode()
        if len(raw) <= MOST_PLAIN or not body:
            return raw
        body = body[: len(body) - max((len(raw) - MOST_PLAIN) // 4, 1)]


def _reason(one: PushSubscription, answer: Answer | None) -> str:
    """Why a push service did not take a message; of its address the host only."""
    host = urlsplit(one.endpoint).hostname
    if answer is None:
        return f"{host} did not answer in time"
    if answer.words:
        return f"{host} did not answer ({answer.words})"
    return f"{host} answered {answer.status}"
