"""Rate limiting of token attempts."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from stepvad.supervision.logs import Repeats, repeated
from stepvad.web.token import Token

logger = logging.getLogger(__name__)

WINDOW_S = 60.0
MOST_WRONG = 20
"""Maximum wrong tokens per minute from all clients."""
MOST_WRONG_EACH = 10
"""Maximum wrong tokens per minute from one address; a single client locks out no others."""
MOST_KNOWN = 256
"""Maximum number of addresses remembered for a correct token."""


class Attempt(NamedTuple):
    """Outcome of a token attempt."""

    right: bool
    wait_s: float = 0.0
    """Seconds until the next attempt is accepted; if not 0, the token was not compared."""


class Attempts:
    """Compares tokens and rate-limits wrong ones; for use in one event loop.

    While the limit is exceeded, a correct token is rejected too, or guessing could continue. For an
    address that has sent the correct token before, only its own limit applies: other clients cannot
    lock out Prometheus or a colleague.
    """

    def __init__(self, token: Token, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token, clock
        self._wrong: deque[tuple[float, str]] = deque()
        self._known: dict[str, None] = {}
        self._lines = Repeats(clock=clock)

    def attempt(self, given: str, address: str) -> Attempt:
        """Compare a token sent by a client at an address."""
        client = _client(address)
        wait_s = self._wait_s(client)
        if wait_s > 0:
            self._log("too many wrong tokens: attempts are refused for %.0f s", wait_s)
            return Attempt(False, wait_s)
        if self._token.fits(given):
            self._known.pop(client, None)
            self._known[client] = None
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            return Attempt(True)
        self._wrong.append((self._clock(), client))
        self._log("a wrong token from %s", client)
        return Attempt(False)

    def _wait_s(self, client: str) -> float:
        now = self._clock()
        while self._wrong and now - self._wrong[0][0] >= WINDOW_S:
            self._wrong.popleft()
        own = [at for at, who in self._wrong if who == client]
        waits = [_until_one_is_left(own, MOST_WRONG_EACH, now)]
        if client not in self._known:
            waits.append(_until_one_is_left([at for at, _ in self._wrong], MOST_WRONG, now))
        return max(waits)

    def _log(self, words: str, fact: float | str) -> None:
        held = self._lines.admit((words, fact if isinstance(fact, str) else None))
        if held is not None:
            logger.warning(words + "%s", fact, repeated(held))


def _until_one_is_left(times: list[float], most: int, now: float) -> float:
    """Seconds until fewer than `most` of these times are in the window."""
    return 0.0 if len(times) < most else times[-most] + WINDOW_S - now


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
