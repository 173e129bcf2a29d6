"""Who sends a request: by the token, by a session, or by the word of a trusted proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, ParamSpec, TypeVar

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from stepvad.accounts.accounts import Accounts
from stepvad.accounts.users import TOKEN_USER, User
from stepvad.settings.web import Web
from stepvad.web.attempts import Attempt, Attempts
from stepvad.web.sessions import TOKEN_OWNER, Owner, Sessions
from stepvad.web.sign_on import STATE, ProxyUser, user_of

KnownBy = Literal["token", "session", "proxy"]


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

THREADS = 2
"""Password hashing takes 64 MiB and a core in each."""


class Background:
    """A few threads of their own: routes that are busy do not delay a log-in, nor it them."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)

    async def run(
        self,
        work: Callable[Arguments, Result],
        *args: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """The result of a function, called in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **options))


class Identity(NamedTuple):
    """A user, and how we know."""

    user: User
    known_by: KnownBy
    session: str = ""


class Identities:
    """Finds out who sends a request; accounts are asked every time, so changes count at once."""

    def __init__(
        self,
        *,
        attempts: Attempts,
        sessions: Sessions,
        accounts: Accounts,
        background: Background,
        cookie: str,
        web: Web,
    ) -> None:
        self.attempts, self.sessions, self.accounts = attempts, sessions, accounts
        self.background, self.cookie, self._web = background, cookie, web

    def bearer(self, scope: Scope, headers: Headers) -> Attempt:
        """The outcome of the token that a program sends, if it sends one."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return Attempt(False)
        return self.attempts.attempt(given.strip(), address_of(scope))

    async def of_browser(self, scope: Scope, headers: Headers) -> Identity | None:
        """Whoever uses a browser: by its session, or by the word of the proxy."""
        id = cookie_parser(headers.get("cookie", "")).get(self.cookie)
        if id is not None:
            user = await self.of_session(id)
            if user is not None:
                return Identity(user, "session", id)
        named = scope.get("state", {}).get(STATE)
        if not isinstance(named, ProxyUser):
            return None
        user = await self.of_proxy(named)
        return None if user is None else Identity(user, "proxy")

    async def of_session(self, id: str) -> User | None:
        """The user of a session; it ends with its account and with another password."""
        return await self.background.run(self._of_session, id)

    def _of_session(self, id: str) -> User | None:
        owner = self.sessions.owner(id)
        if owner is None:
            return None
        if owner == TOKEN_OWNER:
            return TOKEN_USER
        account = self.accounts.find(owner.name)
        if account is None or account.stamp != owner.stamp:
            self.sessions.end(id)
            return None
        return account.user

    async def of_proxy(self, named: ProxyUser) -> User | None:
        """The user whom the proxy names."""
        account = await self.background.run(self.accounts.find, named.name)
        return user_of(named, None if account is None else account.user, self._web)

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
                return await self.of_session(identity.session) is not None
            case "proxy":
                return await self.of_proxy(state[STATE]) is not None

    async def begin(self, owner: Owner = TOKEN_OWNER) -> str:
        """Start a session."""
        return await self.background.run(self.sessions.begin, owner)


def address_of(scope: Scope) -> str:
    """The address of a client; behind a trusted proxy, the one the proxy reports."""
    client = scope.get("client")
    return str(client[0]) if client else ""
