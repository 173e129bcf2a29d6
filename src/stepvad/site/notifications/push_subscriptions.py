"""The browsers that want notifications, and the key that a site signs with; files of their own."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from stepvad.accounts.accounts import Accounts
from stepvad.accounts.database import FILE_NAME as ACCOUNTS
from stepvad.errors import ConfigError, DataError
from stepvad.files import statefile
from stepvad.files.atomic import replacing
from stepvad.site.notifications.plan import DIRECTORY

if TYPE_CHECKING:
    from apprise.utils.pem import ApprisePEMController
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

MOST_BROWSERS = 64
"""Maximum number of browsers; a new one replaces the oldest."""
LONGEST_ENDPOINT = 1024
MAX_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class PushSubscription:
    """One browser: the address of its push service, and its keys as it sent them."""

    endpoint: str
    p256dh: str
    auth: str
    since: float
    """Unix time at which somebody asked for notifications."""
    account: str = ""
    """Whose browser it is; empty for a log-in without an account."""

    @property
    def keys(self) -> tuple[EllipticCurvePublicKey, bytes]:
        """What a message to it is encrypted with; raise `DataError` if it is none."""
        from apprise.plugins.vapid.subscription import WebPushSubscription

        read = WebPushSubscription()
        read.load({"endpoint": self.endpoint, "keys": {"p256dh": self.p256dh, "auth": self.auth}})
        if read.public_key is None or read.auth_secret is None:
            raise DataError("subscription: expected the keys of a browser, got others")
        return read.public_key, read.auth_secret


@dataclass(frozen=True, slots=True)
class _BrowsersFile:
    """The browsers of a site, the oldest first."""

    browsers: tuple[PushSubscription, ...]
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        """Check the keys of all."""
        for one in self.browsers:
            _ = one.keys


def check_endpoint(endpoint: str) -> None:
    """Raise `DataError` unless an address can be that of a public push service.

    A site posts to it: an address inside of the own network would be a way to reach others there.
    """
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    is_public = "." in host and not host.endswith((".local", ".localhost", ".internal"))
    try:
        ipaddress.ip_address(host)
        is_public = False
    except ValueError:
        pass
    if parts.scheme != "https" or not is_public or "@" in parts.netloc:
        raise DataError(
            "subscription: expected the https address of a push service, got something else",
            hint="press Notify this browser again",
        )
    if len(endpoint) > LONGEST_ENDPOINT:
        raise DataError(
            f"subscription: expected at most {LONGEST_ENDPOINT} characters, got {len(endpoint)}"
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

    def check(self) -> None:
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
        missing = self._missing({one.account for one in known if one.account})
        if missing:
            self.remove([one.endpoint for one in known if one.account in missing])
        return [one for one in known if one.account not in missing]

    def _missing(self, names: set[str]) -> set[str]:
        """Those of the names that have no account any more."""
        if not names or not self._accounts.exists():
            return names
        accounts = Accounts(self._accounts)
        try:
            return names - {one.name for one in accounts.all()}
        finally:
            accounts.close()

    def add(self, endpoint: str, p256dh: str, auth: str, account: str = "") -> None:
        """Add or renew a browser; raise `DataError` if its keys are none."""
        added = PushSubscription(endpoint, p256dh, auth, self._clock(), account)
        _ = added.keys
        with self._locked():
            others = [one for one in self._read() if one.endpoint != endpoint]
            self._write([*others, added][-MOST_BROWSERS:])

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
        found = statefile.read(self._file, _BrowsersFile, "browsers", most=MAX_BYTES, lost=lost)
        return [] if found is None else [*found.browsers]

    def _write(self, subscriptions: list[PushSubscription]) -> None:
        statefile.write(self._file, _BrowsersFile(tuple(subscriptions)))

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
