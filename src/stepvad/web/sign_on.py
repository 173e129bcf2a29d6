"""Single sign-on: a trusted proxy says who has logged in there."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from stepvad.accounts.users import Role, User, is_name
from stepvad.settings.web import Web
from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)

STATE = "proxy_user"
"""Where the guard finds the user in a request's state; no header can write there."""


class ProxyUser(NamedTuple):
    """A user whom a trusted proxy names."""

    name: str
    groups: frozenset[str] = frozenset()


class SignOn:
    """Middleware in front of all others, which still sees the address of the proxy itself."""

    def __init__(self, app: ASGIApp, *, web: Web) -> None:
        self.app, self._web = app, web
        self._networks = [ipaddress.ip_network(proxy) for proxy in web.trusted_proxies]
        self._lines = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note whom the proxy names; the header of anybody else is ignored."""
        if scope["type"] in ("http", "websocket"):
            user = self._user(scope)
            if user is not None:
                scope.setdefault("state", {})[STATE] = user
        await self.app(scope, receive, send)

    def _user(self, scope: Scope) -> ProxyUser | None:
        headers = Headers(scope=scope)
        given = [] if self._web.user_header is None else headers.getlist(self._web.user_header)
        if not given:
            return None
        peer = str((scope.get("client") or ("",))[0])
        if not self._is_trusted(peer):
            self._log("a stranger sends the header of the proxy's users", peer)
            return None
        if len(given) != 1 or not is_name(given[0]):
            self._log("the proxy sends no single valid user name", peer)
            return None
        named = headers.get(self._web.group_header, "") if self._web.group_header else ""
        groups = frozenset(group.strip() for group in named.split(","))
        return ProxyUser(given[0], groups - {""})

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)

    def _log(self, words: str, peer: str) -> None:
        held = self._lines.admit((words, peer))
        if held is not None:
            logger.warning("%s: %s%s", words, peer, repeated(held))


def role_of_groups(groups: frozenset[str], web: Web) -> Role | None:
    """The highest role that a user has by the groups of the proxy."""
    of_roles: Sequence[tuple[Role, Sequence[str]]] = (
        ("administer", web.admin_groups),
        ("judge", web.judge_groups),
    )
    return next((role for role, some in of_roles if not groups.isdisjoint(some)), None)


def user_of(named: ProxyUser, own: User | None, web: Web) -> User | None:
    """The user: an account here decides, then the groups, then the usual role; None: refused."""
    if own is not None:
        return own
    role = role_of_groups(named.groups, web) or web.sso_role
    return None if role == "none" else User(named.name, role)
