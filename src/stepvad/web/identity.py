"""Who sends a request: by the token, by a session, or by the word of a trusted proxy."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from stepvad.codec import decode, encode
from stepvad.errors import ConfigError, StepvadError
from stepvad.site.accounts import TOKEN_USER, Accounts, User, is_name
from stepvad.site.settings.page import Web
from stepvad.site.stages import Repeats

logger = logging.getLogger(__name__)

KnownBy = Literal["token", "session", "proxy"]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
THREADS = 2
"""Password hashing takes 64 MiB and a core in each."""

FREE, FREE_ADDRESS = 5, 30
"""Wrong passwords of one account, and of all, that one address may try without waiting."""
FIRST_WAIT_S, LONGEST_WAIT_S = 30.0, 3600.0
"""The wait after that doubles with each wrong one."""
FORGET_S = 6 * 3600.0
"""Wrong ones are forgotten when none has followed for this time."""
MOST_GUESSERS = 2000
SHORTEST_TOKEN = 16

SESSION_S = 30 * 86400.0
"""How long a browser stays logged in."""

STATE = "proxy_user"
"""Where the guard finds the user's name in a request's state; no header can write there."""


class Owner(NamedTuple):
    """Whose session it is, and the stamp that the account had at log-in."""

    name: str
    stamp: str


TOKEN_OWNER = Owner(TOKEN_USER.name, "")


class Identities:
    """Finds out who sends a request; accounts are asked every time, so changes count at once."""

    def __init__(
        self, web: Web, token: str, accounts: Accounts, ended: EndedSessions | None = None
    ) -> None:
        """Log-outs are stored in `ended`, by default with the accounts."""
        known = Token(token)
        self.accounts, self.cookie, self._web = accounts, known.cookie_name, web
        self.background, self._token, self._lines = Background("accounts"), known, Repeats()
        self.guesses = Guesses()
        self.sessions = Sessions(token, ended or accounts)

    def is_token(self, given: str, scope: Scope) -> bool:
        """Whether this is the token; nobody guesses its 192 bits, so no wrong one delays it."""
        is_right = self._token.fits(given.strip())
        if not is_right:
            client = _client(address_of(scope))
            self._lines.log(logger.warning, client, "a wrong token from %s", client)
        return is_right

    def is_bearer(self, scope: Scope, headers: Headers) -> bool:
        """Whether a program sends the token."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given, scope)

    async def find_browser(self, scope: Scope, headers: Headers) -> Identity | None:
        """Whoever uses a browser: by its session, or by the word of the proxy."""
        id = cookie_parser(headers.get("cookie", "")).get(self.cookie)
        if id is not None:
            user = await self.find_session(id)
            if user is not None:
                return Identity(user, "session", id)
        named = scope.get("state", {}).get(STATE)
        if not isinstance(named, str):
            return None
        user = await self.find_proxy_user(named)
        return None if user is None else Identity(user, "proxy")

    async def find_session(self, id: str) -> User | None:
        """The user of a session; it ends with its account and with another password."""
        return await self.background.run(self._of_session, id)

    def _of_session(self, id: str) -> User | None:
        owner = self.sessions.owner(id)
        if owner is None:
            return None
        if owner == TOKEN_OWNER:
            return TOKEN_USER
        # another password changes the stamp, and ends the sessions begun with the old one
        account = self.accounts.find(owner.name)
        return account.user if account is not None and account.stamp == owner.stamp else None

    async def find_proxy_user(self, name: str) -> User | None:
        """The user whom the proxy names: an account here decides, then the usual role."""
        account = await self.background.run(self.accounts.find, name)
        role = self._web.sso_role if account is None else account.role
        return None if role == "none" else User(name if account is None else account.name, role)

    async def is_still(self, scope: Scope) -> bool:
        """Whether the sender of an open connection may still look."""
        state = scope.get("state", {})
        identity = state.get("identity")
        if not isinstance(identity, Identity):
            return False
        match identity.known_by:
            case "token":
                return True
            case "session":
                return await self.find_session(identity.session) is not None
            case "proxy":
                return await self.find_proxy_user(state[STATE]) is not None


class Identity(NamedTuple):
    """A user, and how we know."""

    user: User
    known_by: KnownBy
    session: str = ""


class Background:
    """A few threads of their own: routes that are busy do not delay a log-in, nor it them."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)

    async def run(
        self, work: Callable[Arguments, Result], *args: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        """The result of a function, called in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **options))


class SignOn:
    """Middleware in front of all others, which still sees the address of the proxy itself."""

    def __init__(self, app: ASGIApp, *, web: Web) -> None:
        self.app, self._web = app, web
        self._networks = [ipaddress.ip_network(proxy) for proxy in web.trusted_proxies]
        self._lines = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note whom the proxy names; the header of anybody else is ignored."""
        if scope["type"] in ("http", "websocket"):
            name = self._user(scope)
            if name is not None:
                scope.setdefault("state", {})[STATE] = name
        await self.app(scope, receive, send)

    def _user(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        given = [] if self._web.user_header is None else headers.getlist(self._web.user_header)
        if not given:
            return None
        peer = str((scope.get("client") or ("",))[0])
        if not self._is_trusted(peer):
            words = "a stranger sends the header of the proxy's users: %s"
        elif len(given) != 1 or not is_name(given[0]):
            words = "the proxy sends no single valid user name: %s"
        else:
            return given[0]
        self._lines.log(logger.warning, (words, peer), words, peer)
        return None

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        # a dual-stack socket shows IPv4 peers as ::ffff:10.0.0.1
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def address_of(scope: Scope) -> str:
    """The address of a client; behind a trusted proxy, the one the proxy reports."""
    client = scope.get("client")
    return str(client[0]) if client else ""


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


class Guesses:
    """Counts wrong passwords by account and address, and lets more of them wait ever longer.

    Only the guesser waits: who has the right password is let in from any other address, and others
    from the same one until it has tried many accounts. While one waits, what is right is refused,
    too, or guessing could go on. For use in one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lines = clock, Repeats()
        self._wrong: dict[tuple[str, ...], tuple[int, float]] = {}
        """Number and time of the last by address and name; the latest is last."""

    async def check(
        self, name: str, address: str, is_right: Coroutine[None, None, bool]
    ) -> Attempt:
        """Await whether the password of a name is right.

        It counts as wrong until it is known to be right: many attempts at once are no way around
        the limit.
        """
        client = _client(address)
        counted = {(client, name.lower()): FREE, (client,): FREE_ADDRESS}
        wait_s = max(self._wait_s(key, free) for key, free in counted.items())
        if wait_s > 0:
            is_right.close()
            words = "too many wrong passwords from %s: attempts are refused for %.0f s"
            self._lines.log(logger.warning, (words, client), words, client, wait_s)
            return Attempt(False, wait_s)
        for key in counted:
            self._count(key, 1)
        if not await is_right:
            self._lines.log(logger.warning, client, "a wrong password from %s", client)
            return Attempt(False)
        # a right one forgives those of its account; the address may have guessed others
        account, whole = counted
        self._wrong.pop(account, None)
        self._count(whole, -1)
        return Attempt(True)

    def _wait_s(self, key: tuple[str, ...], free: int) -> float:
        n, at = self._wrong.get(key, (0, 0.0))
        age_s = self._clock() - at
        if n < free or age_s >= FORGET_S:
            return 0.0
        return max(min(FIRST_WAIT_S * 2.0 ** min(n - free, 10), LONGEST_WAIT_S) - age_s, 0.0)

    def _count(self, key: tuple[str, ...], n: int) -> None:
        now = self._clock()
        before, at = self._wrong.pop(key, (0, now))
        self._wrong[key] = (before if now - at < FORGET_S else 0) + n, now
        if len(self._wrong) > MOST_GUESSERS:
            del self._wrong[next(iter(self._wrong))]


class Session(NamedTuple):
    """What the cookie of a session says."""

    user: str
    stamp: str
    ends: float
    id: str


class EndedSessions(Protocol):
    """Log-outs, known to every process that serves the page."""

    def end_session(self, id: str, until: float) -> None:
        """Note that a session has ended, until it would have ended by itself."""

    def has_ended(self, id: str) -> bool:
        """Whether a session was ended."""


class Sessions:
    """Sessions as signed cookies, which every process that has the token can verify; thread-safe.

    The key is made from the token: another token ends all sessions. Only log-outs are stored. While
    the store of log-outs fails, those count that this process knows.
    """

    def __init__(
        self,
        token: str,
        ended: EndedSessions,
        *,
        longest_s: float = SESSION_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = hmac.digest(token.encode(), b"stepvad session", "sha256")
        self._ended, self._clock, self.longest_s = ended, clock, longest_s
        self._known: set[str] = set()
        self._lines = Repeats()

    def start(self, owner: Owner = TOKEN_OWNER) -> str:
        """Start a session; return the cookie for the browser."""
        ends = round(self._clock() + self.longest_s)
        session = Session(*owner, ends, secrets.token_urlsafe(16))
        body = base64.urlsafe_b64encode(encode(session)).decode()
        return f"{body}.{self._signature(body).decode()}"

    def owner(self, cookie: str) -> Owner | None:
        """Whose session it is; None if it is none or has ended."""
        session = self._verified(cookie)
        if session is None or session.id in self._known:
            return None
        try:
            if self._ended.has_ended(session.id):
                return None
        except StepvadError as error:
            self._lines.log(logger.warning, "read", "log-outs cannot be read: %s", error)
        return Owner(session.user, session.stamp)

    def end(self, cookie: str) -> None:
        """End a session; its cookie is no longer valid."""
        session = self._verified(cookie)
        if session is None:
            return
        self._known.add(session.id)
        try:
            self._ended.end_session(session.id, session.ends)
        except StepvadError as error:
            self._lines.log(
                logger.warning, "write", "a log-out will not survive a restart: %s", error
            )

    def _verified(self, cookie: str) -> Session | None:
        """What a cookie says, if we signed it and its time has not come."""
        body, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._signature(body)):
            return None
        session = decode(Session, base64.urlsafe_b64decode(body), "session")
        return session if self._clock() < session.ends else None

    def _signature(self, body: str) -> bytes:
        made = hmac.new(self._key, body.encode(errors="replace"), hashlib.sha256)
        return made.hexdigest().encode()


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
