"""Messages to browsers by Web Push: their subscriptions, their keys and the requests."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from stepvad.errors import ConfigError, DataError, MissingExtraError
from stepvad.events.record import DeliveryError
from stepvad.files import read_state, replacing, write_state
from stepvad.site.accounts import FILE_NAME as ACCOUNTS
from stepvad.site.accounts import Accounts
from stepvad.site.notify.people import SendingProcess
from stepvad.site.notify.plan import DIRECTORY
from stepvad.site.notify.sending_child import Answer, PushRequest, Task
from stepvad.site.notify.words import Notice

if TYPE_CHECKING:
    from apprise.utils.pem import ApprisePEMController
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey


logger = logging.getLogger(__name__)
MOST_PLAIN = 3993
"""Longest text that fits into the one record of 4,096 bytes that push services must take."""
TOKEN_S = 12 * 3600
"""Life of a signature; services accept a day at most."""
LIFETIME_S = 4 * 3600
"""Time for which a push service keeps a message for a browser that is off."""
MOST_TRIES = 5
"""Attempts for one browser once another has the message; then the others do not wait any longer."""
GONE = frozenset({401, 403, 404, 410})
"""The subscription has ended, or belongs to another key: the person must press the button again."""
Outcome = Literal["taken", "gone", "refused", "failed"]

MOST_EACH = 10
"""Maximum number of browsers of one user; a new one replaces the oldest."""
MOST_BROWSERS = 250
"""Maximum number of browsers of a site; nobody's new one replaces another user's."""
SERVICES = re.compile(
    r"https://(fcm\.googleapis\.com|updates\.push\.services\.mozilla\.com"
    r"|[a-z0-9-]+\.(notify\.windows|push\.apple)\.com)/[!-~]*"
)
"""Push services of the makers of browsers; Brave, Opera, Samsung and Vivaldi use Google's."""
LONGEST_ENDPOINT = 1024
MAX_BYTES = 1 << 19


def outcome(status: int) -> Outcome:
    """Meaning of a push service's answer."""
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

    def __init__(self, subscriptions: PushSubscriptions, *, contact: str = "") -> None:
        """`contact`: an https address that tells push services who sends; may be empty."""
        if find_spec("apprise") is None:
            raise MissingExtraError("notify", "notify")
        self._subscriptions = subscriptions
        self._contact = contact if contact.startswith("https://") else ""
        self._process = SendingProcess()
        self._sending: Notice | None = None
        self._has_reached = False
        """True if any browser has the message `_sending`."""
        self._tries: dict[str, int] = {}
        """Attempts by browser for the message `_sending`; taken ones have `MOST_TRIES`."""

    @property
    def has_people(self) -> bool:
        """True if any browser is subscribed."""
        return bool(self._subscriptions.all())

    def describe(self) -> str:
        """Count the browsers; no key is made yet."""
        self._subscriptions.check_key()
        n = len(self._subscriptions.all())
        return {0: "none yet", 1: "1 browser"}.get(n, f"{n} browsers")

    def deliver(self, notice: Notice) -> str:
        """Send one message to all browsers that do not have it yet."""
        # a new message begins with all browsers, a repeated one goes on with those that lack it
        if notice != self._sending:
            self._sending, self._has_reached, self._tries = notice, False, {}
        known = self._subscriptions.all()
        waiting = [one for one in known if self._tries.get(one.endpoint, 0) < MOST_TRIES]
        if not known:
            return "no browser has asked for notifications yet"
        found, reason = self._post(notice, waiting) if waiting else ([], "")
        # all or nothing for the caller, who sends again; those that have it are left out then
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
        """The outcome at each browser, and the first reason for a failure."""
        key = self._subscriptions.key()
        requests = tuple(self._request(key, notice, one) for one in to)
        said = self._process.run(Task("post", requests=requests))
        answers = {answer.request: answer for answer in said}
        # what each service answered, (browsers,); none in time counts as a failure
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
        # count the attempts; what fails too often is refused
        most = MOST_TRIES if self._has_reached else MOST_TRIES - 1
        for n, one in enumerate(to):
            has_failed = found[n] == "failed"
            tries = min(self._tries.get(one.endpoint, 0) + 1, most) if has_failed else MOST_TRIES
            self._tries[one.endpoint] = tries
            if has_failed and tries == MOST_TRIES:
                found[n] = "refused"
        return found, next(iter(reasons), "")

    def _request(
        self, key: ApprisePEMController, notice: Notice, to: PushSubscription
    ) -> PushRequest:
        """A post to a push service.

        Apprise encrypts and signs. Its own post keeps a message for a minute at most, states no
        urgency and gives one answer for all browsers.
        """
        # RFC 8291 and RFC 8188; the headers are those of RFC 8030
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
    # a signed token of a few hours, for this service alone
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + TOKEN_S}
    if contact:
        claims["sub"] = contact
    head = {"typ": "JWT", "alg": "ES256"}
    signed = ".".join(_base64(json.dumps(one).encode()) for one in (head, claims))
    return f"vapid t={signed}.{_base64(key.sign(signed.encode()) or b'')}, k={key.x962_str}"


def payload(notice: Notice) -> bytes:
    """The JSON that the service worker reads; long texts are cut to fit a push message."""
    body = notice.body
    while True:
        facts = {"title": notice.title, "body": body, "link": notice.link, "tag": notice.tag}
        raw = json.dumps(facts, ensure_ascii=False).encode()
        if len(raw) <= MOST_PLAIN or not body:
            return raw
        body = body[: len(body) - max((len(raw) - MOST_PLAIN) // 4, 1)]


@dataclass(frozen=True, slots=True)
class PushSubscription:
    """One browser: the address of its push service, and its keys as it sent them."""

    endpoint: str
    p256dh: str
    auth: str
    since: float
    """Unix time at which somebody asked for notifications."""
    account: str = ""
    """Account that the browser is logged in to; empty for a log-in without one."""
    user: str = ""
    """Who asked: the account, the user that a proxy named, or `token`."""

    @property
    def keys(self) -> tuple[EllipticCurvePublicKey, bytes]:
        """The keys that encrypt a message to it; raise `DataError` if they are none."""
        from apprise.plugins.vapid.subscription import WebPushSubscription

        read = WebPushSubscription()
        read.load({"endpoint": self.endpoint, "keys": {"p256dh": self.p256dh, "auth": self.auth}})
        if read.public_key is None or read.auth_secret is None:
            raise DataError("subscription: expected the keys of a browser, got others")
        return read.public_key, read.auth_secret


def check_endpoint(endpoint: str) -> None:
    """Raise `DataError` unless an address is one of a push service that browsers use.

    A site posts to it: any other address would be a way to reach others through the site.
    """
    if len(endpoint) > LONGEST_ENDPOINT or not SERVICES.fullmatch(endpoint):
        raise DataError(
            "subscription: expected an address at the push service of a browser's maker, "
            "got something else",
            hint="use a current Chrome, Edge, Firefox or Safari",
        )


class PushSubscriptions:
    """The subscriptions of a site in a file, which is read each time.

    Threads and processes may share it: the page adds browsers, deliveries remove them. A browser
    whose account is gone gets nothing more. While the file cannot be read, all methods that need
    it raise `OSError`, or `NewerVersionError` if it is of a newer version: no browsers and unknown
    browsers are not the same.
    """

    def __init__(
        self,
        data: Path,
        accounts: Path | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`accounts`: the file of accounts, by default that of the data directory."""
        self._file = data / DIRECTORY / "browsers.json"
        self._key_file = data / DIRECTORY / "browser-key.pem"
        self._accounts = accounts or data / ACCOUNTS
        self._clock = clock

    def check_key(self) -> None:
        """Raise if the key cannot be used; makes none."""
        if self._key_file.exists():
            self.key()

    def key(self) -> ApprisePEMController:
        """The key that the site signs with; made at first use."""
        from apprise import AppriseAsset
        from apprise.utils.pem import ApprisePEMController

        with self._locked():
            if not self._key_file.exists():
                with replacing(self._key_file) as temporary:
                    temporary.write_bytes(_new_key())
        asset = AppriseAsset(storage_mode="memory", pem_autogen=False)
        key = ApprisePEMController("", prv_keyfile=str(self._key_file), asset=asset)
        if not key.private_key(autogen=False):
            raise ConfigError(
                f"{self._key_file}: expected a private key, got something else",
                hint="delete the file: a new one is made, and every browser must subscribe again",
            )
        return key

    def all(self) -> list[PushSubscription]:
        """All browsers whose account is still there, the oldest first."""
        if not self._file.parent.exists():
            return []
        with self._locked():
            known = self._read()
        # browsers of accounts that were removed meanwhile
        missing = self._missing({one.account for one in known if one.account})
        if missing:
            self.remove([one.endpoint for one in known if one.account in missing])
        return [one for one in known if one.account not in missing]

    def _missing(self, names: set[str]) -> set[str]:
        """Those of the names that have no account any more."""
        if not names or not self._accounts.exists():
            return names
        with closing(Accounts(self._accounts)) as accounts:
            return names - {one.name for one in accounts.all()}

    def subscribe(
        self, endpoint: str, p256dh: str, auth: str, account: str = "", user: str = ""
    ) -> None:
        """Add or renew a browser; raise `DataError` if its keys are none, or there are too many."""
        added = PushSubscription(endpoint, p256dh, auth, self._clock(), account, user or account)
        _ = added.keys
        with self._locked():
            # the newest is last; beyond the limit of a user the oldest of that user goes
            kept = [one for one in self._read() if one.endpoint != endpoint]
            own = [one for one in kept if one.user == added.user]
            if len(own) >= MOST_EACH:
                kept.remove(own[0])
                logger.info("browsers: a new one of %s replaces the oldest", added.user or "nobody")
            if len(kept) >= MOST_BROWSERS:
                raise DataError(
                    f"subscription: expected at most {MOST_BROWSERS} browsers, got one more",
                    hint="end the notifications of another browser first",
                )
            self._write([*kept, added])

    def remove(self, endpoints: Collection[str]) -> int:
        """Remove browsers; return how many there were."""
        with self._locked():
            known = self._read()
            kept = [one for one in known if one.endpoint not in endpoints]
            if len(kept) < len(known):
                self._write(kept)
            return len(known) - len(kept)

    def _read(self) -> list[PushSubscription]:
        """The browsers in the file; call it with the lock held, as a damaged file is set aside."""
        lost = "every browser must subscribe again"
        found = read_state(self._file, _BrowsersFile, "browsers", most=MAX_BYTES, lost=lost)
        return [] if found is None else [*found.browsers]

    def _write(self, subscriptions: list[PushSubscription]) -> None:
        write_state(self._file, _BrowsersFile(tuple(subscriptions)))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads and processes from writing."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.open(self._file.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)


def _base64(raw: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _reason(one: PushSubscription, answer: Answer | None) -> str:
    """The reason for a push service's refusal; of its address the host only."""
    host = urlsplit(one.endpoint).hostname
    if answer is None:
        return f"{host} did not answer in time"
    if answer.words:
        return f"{host} did not answer ({answer.words})"
    return f"{host} answered {answer.status}"


@dataclass(frozen=True, slots=True)
class _BrowsersFile:
    """The browsers of a site, the oldest first."""

    browsers: tuple[PushSubscription, ...]
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        """Check the keys of all."""
        for one in self.browsers:
            _ = one.keys


def _new_key() -> bytes:
    """A new private key on P-256 as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
