"""The token of a page, and rate limiting of wrong tokens and passwords."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import NamedTuple

from stepvad.errors import ConfigError
from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)

WINDOW_S = 60.0
MOST_WRONG_EACH = 10
"""Maximum wrong tokens and passwords per minute from one address; it locks out no other."""
SHORTEST_TOKEN = 16


class Token:
    """The access token of the page."""

    def __init__(self, token: str) -> None:
        if len(token) < SHORTEST_TOKEN:
            raise ConfigError(
                f"web.token: expected at least {SHORTEST_TOKEN} characters, got {len(token)}",
                hint="remove the setting to have one generated",
            )
        self._token = token.encode()
        # browsers send a host's cookies to all its ports, so each site needs its own cookie name
        name = hmac.new(self._token, b"stepvad cookie name", hashlib.sha256).hexdigest()
        self.cookie_name = f"stepvad-{name[:8]}"

    def fits(self, given: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token)


class Attempt(NamedTuple):
    """Outcome of an attempt."""

    right: bool
    wait_s: float = 0.0
    """Seconds until the next attempt is accepted; if not 0, nothing was compared."""


class Attempts:
    """Compares tokens and rate-limits wrong ones and passwords; for use in one event loop.

    The limit is of one address: guessing keeps nobody else out. While it is exceeded, what is
    right is rejected, too, or guessing could continue.
    """

    def __init__(self, token: Token, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token, clock
        self._wrong: deque[tuple[float, str]] = deque()
        self._lines = Repeats(clock=clock)

    def attempt(self, given: str, address: str) -> Attempt:
        """Compare a token sent by a client at an address."""
        client = _client(address)
        wait_s = self._wait_s(client)
        if wait_s > 0:
            return self._refuse("tokens", wait_s)
        if self._token.fits(given):
            return Attempt(True)
        self._wrong.append((self._clock(), client))
        self._log("a wrong token from %s", client)
        return Attempt(False)

    async def check(self, address: str, is_right: Coroutine[None, None, bool]) -> Attempt:
        """Await whether a password is right.

        It counts as wrong until it is known to be right: many attempts at once are no way around
        the limit.
        """
        client = _client(address)
        wait_s = self._wait_s(client)
        if wait_s > 0:
            is_right.close()
            return self._refuse("passwords", wait_s)
        undecided = self._clock(), client
        self._wrong.append(undecided)
        if not await is_right:
            self._log("a wrong password from %s", client)
            return Attempt(False)
        if undecided in self._wrong:
            self._wrong.remove(undecided)
        return Attempt(True)

    def _refuse(self, what: str, wait_s: float) -> Attempt:
        self._log(f"too many wrong {what}: attempts are refused for %.0f s", wait_s)
        return Attempt(False, wait_s)

    def _wait_s(self, client: str) -> float:
        now = self._clock()
        while self._wrong and now - self._wrong[0][0] >= WINDOW_S:
            self._wrong.popleft()
        own = [at for at, by in self._wrong if by == client]
        return 0.0 if len(own) < MOST_WRONG_EACH else own[-MOST_WRONG_EACH] + WINDOW_S - now

    def _log(self, words: str, fact: float | str) -> None:
        held = self._lines.admit((words, fact if isinstance(fact, str) else None))
        if held is not None:
            logger.warning(words + "%s", fact, repeated(held))


def _client(address: str) -> str:
    """The key of a client: its IPv4 address, or its IPv6 /64 network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
