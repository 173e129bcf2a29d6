"""The guard in front of every route: role, host, origin, size of a body, and the audit log."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Literal, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepvad.errors import StepvadError
from stepvad.site.accounts import TOKEN_USER, Accounts, Role, User
from stepvad.site.stages import Repeats
from stepvad.web.identity import STATE, Background, Identities, Identity, address_of

logger = logging.getLogger(__name__)
MAX_BODY = 64 * 1024
"""Maximum size of a request body in bytes."""
MOST_DIGITS = 19
"""Maximum digits of a Content-Length header."""
PAGES = frozenset({"/", "/settings", "/users", "/password", "/notifications"})
"""Pages that lead a browser to the login form."""
MAY: dict[Role, str] = {
    "look": "look at this site",
    "judge": "judge its events",
    "administer": "administer it",
}
"""What a role may do, in words."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # the URL is never sent to other sites; no-referrer would turn the Origin of the login form
    # into null
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}

RouteKey = tuple[str, str]

MOST_EACH, MOST_AT_ONCE = 2, 4
"""Maximum number of requests in progress, of one user and in all."""
WAIT_S = 10.0
"""How long a request waits for its turn."""
BUSY = "You ask for more than this site can answer beside its cameras. Wait a little.\n"
OPERATIONS = frozenset({"/readyz", "/metrics"})

LOOK_S = 600.0
"""A look that is repeated before this time has passed is the same look."""
MOST_LOOKS = 4096


class Guard:
    """Middleware that passes same-origin requests of users with the role that the route needs.

    `RULES` below names the role of each route; `User.may` compares it with the user's. What a
    request refuses later, because the settings forbid it, becomes 403 in `web/app.py`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        identities: Identities,
        rules: Rules,
        trail: AuditTrail,
        host: str,
        public_url: str | None = None,
    ) -> None:
        """Accept as hosts: names of the machine, IP addresses and the `public_url`."""
        self.app = app
        self.identities, self.rules, self.trail = identities, rules, trail
        self.origin, self._lines, self.turns = public_url, Repeats(), Turns()
        machine, public = socket.gethostname(), urlsplit(public_url or "").hostname or ""
        names = ("localhost", host, machine, f"{machine.partition('.')[0]}.local", public)
        self.names = frozenset(name.lower().rstrip(".") for name in names if name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        # who asks, for what, and from where
        rule, child = self.rules.find(scope)
        try:
            refusal = await self._refusal(scope, rule)
        except StepvadError as error:
            self._lines.log(logger.error, str(error), "%s", error)
            refusal = PlainTextResponse("the accounts cannot be read now\n", 503)
        if scope["type"] == "websocket":
            if refusal is None:
                await self._audit(scope, rule, child)
                await self.app(scope, receive, send)
            else:
                # reject it before it is accepted
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        protected, statuses = _with_headers(send)
        refusal = refusal or _refuse_body(Headers(scope=scope))
        turn = None
        if refusal is None and rule.needs in ("look", "judge"):
            turn = await self.turns.take(_worker(scope))
            refusal = None if turn else PlainTextResponse(BUSY, 429, retry_after(WAIT_S))
        if refusal is not None:
            await refusal(scope, receive, protected)
            return
        ended = turn or (lambda: None)
        try:
            # a client that reads its answer slowly keeps nobody waiting
            await self.app(scope, receive, _first(ended, protected))
        finally:
            ended()
        if statuses and (statuses[0] < 400 or "audit_refused" in scope.get("state", {})):
            await self._audit(scope, rule, child)

    async def _audit(self, scope: Scope, rule: Rule, child: Scope) -> None:
        """Write a request into the audit log, if its route asks for it."""
        state = scope.get("state", {})
        user = state.get("user")
        if not rule.audit or not isinstance(user, User):
            return
        action = rule.audit
        subject = state.get("audit_subject", " ".join(child.get("path_params", {}).values()))
        if "audit_refused" in state:
            action, subject = "was refused", state["audit_refused"]
        note = self.trail.record_look if rule.is_look else self.trail.record
        await note(user.name, action, subject, address_of(scope))

    async def _refusal(self, scope: Scope, rule: Rule) -> Response | None:
        """The response that rejects a request; None if it may pass."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        # a client with the token is not a page led here by DNS rebinding
        is_program = self.identities.is_bearer(scope, headers)
        if name is None or not (is_program or self._is_here(name)):
            return PlainTextResponse("this is not the host's name\n", 400)
        # a page of another origin may read, as far as browsers let it, but change nothing
        method = scope.get("method", "WEBSOCKET")
        origin = headers.get("origin")
        is_own = origin is None or self._is_own(origin, hosts[0], scope["scheme"])
        if method not in SAFE and not is_own:
            return PlainTextResponse("asked for by another page\n", 403)
        if rule.needs == "nobody":
            return None
        if is_program:
            return await self._admit(scope, rule.needs, Identity(TOKEN_USER, "token"))
        identity = await self.identities.find_browser(scope, headers)
        if identity is not None:
            # browsers send an Origin with unsafe methods
            if method not in SAFE and origin is None:
                return PlainTextResponse("expected an Origin\n", 403)
            return await self._admit(scope, rule.needs, identity)
        return _unknown(method, scope)

    async def _admit(self, scope: Scope, needs: Role, identity: Identity) -> Response | None:
        """Pass a user with the role; routes find them in the request's state."""
        user = identity.user
        scope.setdefault("state", {}).update(user=user, identity=identity)
        if identity.known_by == "proxy":
            await self.trail.record_look(user.name, "came through the proxy", "", address_of(scope))
        if user.may(needs):
            return None
        asked = f"{scope.get('method', 'WEBSOCKET')} {scope['path']}"
        await self.trail.record_look(user.name, "was refused", asked, address_of(scope))
        words = f"You may {MAY[user.role]}. This is for those who may {MAY[needs]}.\n"
        return PlainTextResponse(words, 403)

    def _is_here(self, name: str) -> bool:
        """Whether a host name is ours or an IP address: foreign names may resolve to us too."""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True

    def _is_own(self, origin: str, host: str, scheme: str) -> bool:
        """Whether an origin is this page, directly or through its proxy."""
        own = [self.origin, f"https://{host.lower()}"]
        # whoever can answer for a name in clear is no page that is served with TLS
        if scheme in ("http", "ws") and own[0] != own[1]:
            own.append(f"http://{host.lower()}")
        return origin.lower() in own


class Turns:
    """Gives turns to requests: few are in progress at once, of one user and in all.

    The page shares a process with the cameras. For use in one event loop.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MOST_AT_ONCE)
        self._own = WeakValueDictionary[str, asyncio.Semaphore]()

    async def take(self, user: str) -> Callable[[], None] | None:
        """Wait for a turn; what ends it, or None if it does not come soon."""
        own = self._own.setdefault(user, asyncio.Semaphore(MOST_EACH))
        with ExitStack() as taken:
            try:
                async with asyncio.timeout(WAIT_S):
                    for one in (own, self._all):
                        await one.acquire()
                        taken.callback(one.release)
            except TimeoutError:
                return None
            return taken.pop_all().close


class Rules:
    """Finds the rule of a request; raises when made if a route has none."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = [*routes]
        missing = {key for route in routes for key in keys_of(route)} - {*RULES}
        if missing:
            raise LookupError(f"web/guard.py has no rule for {sorted(missing)}")

    def find(self, scope: Scope) -> tuple[Rule, Scope]:
        """The rule of a request, with the path parameters of its route."""
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return RULES[key_of(scope["type"], scope.get("method", ""), route)], child
        return UNKNOWN, {}


class AuditTrail:
    """Appends to the audit log; a log that cannot be written stops nobody from working."""

    def __init__(
        self,
        accounts: Accounts,
        background: Background,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accounts, self._background, self._clock = accounts, background, clock
        self._looks: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._lines = Repeats(clock=clock)

    async def record(self, user: str, action: str, subject: str = "", address: str = "") -> None:
        """Append a line."""
        try:
            await self._background.run(self._accounts.audit.record, user, action, subject, address)
        except StepvadError as error:
            self._lines.log(logger.error, str(error), "the audit log misses a line: %s", error)

    async def record_look(
        self, user: str, action: str, subject: str = "", address: str = ""
    ) -> None:
        """Append a line, unless it is the look that is still going on."""
        look, now = (user, action, subject, address), self._clock()
        # reinsert it at the end, so that the oldest look is evicted first
        before = self._looks.pop(look, None)
        self._looks[look] = now
        if len(self._looks) > MOST_LOOKS:
            self._looks.popitem(last=False)
        if before is None or now - before >= LOOK_S:
            await self.record(*look)


def retry_after(wait_s: float) -> dict[str, str]:
    """The Retry-After header, in whole seconds."""
    return {"Retry-After": str(max(math.ceil(wait_s), 1))}


class Rule(NamedTuple):
    """The role that a route needs, and its line in the audit log."""

    needs: Role | Literal["nobody"]
    """The lowest role; `nobody` need be logged in."""
    audit: str = ""
    """Text of the audit log for a successful request; empty: none."""
    is_look: bool = False
    """Whether the same request counts as one while it is repeated, as the page does."""


RULES: dict[RouteKey, Rule] = {
    # logging in and out
    ("GET", "/login"): Rule("nobody"),
    ("POST", "/login"): Rule("nobody"),
    ("GET", "/first"): Rule("nobody"),
    ("POST", "/first"): Rule("nobody"),
    ("POST", "/logout"): Rule("look", "logged out"),
    ("GET", "/password"): Rule("look"),
    ("POST", "/password"): Rule("look"),
    # the page
    ("GET", "/"): Rule("look"),
    ("GET", "/static/{name}"): Rule("look"),
    ("GET", "/users"): Rule("administer"),
    ("WEBSOCKET", "/ws/live"): Rule("look", "watched live", is_look=True),
    # operations: programs send the token, whose role is administer
    ("GET", "/healthz"): Rule("nobody"),
    ("GET", "/readyz"): Rule("look"),
    ("GET", "/metrics"): Rule("look"),
    ("GET", "/openapi.json"): Rule("look"),
    # the site
    ("GET", "/api/me"): Rule("look"),
    ("GET", "/api/site"): Rule("look"),
    ("GET", "/api/cameras"): Rule("look"),
    ("GET", "/api/cameras/{name}"): Rule("look"),
    ("GET", "/api/cameras/{name}/moment"): Rule("look", "looked at a moment of", is_look=True),
    ("GET", "/api/timelines"): Rule("look"),
    ("GET", "/api/sites"): Rule("look"),
    ("GET", "/api/stored"): Rule("look"),
    ("GET", "/api/sinks"): Rule("look"),
    ("GET", "/api/undelivered"): Rule("look"),
    ("POST", "/api/undelivered/resend"): Rule("administer", "sent messages again"),
    # events
    ("GET", "/api/events"): Rule("look", "looked at the list of events", is_look=True),
    ("GET", "/api/events/{id}"): Rule("look", "looked at event", is_look=True),
    ("GET", "/api/events/{id}/explanation"): Rule("look", "looked at explanation", is_look=True),
    ("GET", "/api/events/{id}/scene"): Rule("look", "looked at replay", is_look=True),
    ("PUT", "/api/events/{id}/mark"): Rule("judge", "marked event"),
    ("GET", "/api/events/{id}/mark-effect"): Rule("judge"),
    ("GET", "/api/exceptions"): Rule("look"),
    ("DELETE", "/api/exceptions/{id}"): Rule("judge", "removed exception"),
    ("PUT", "/api/events/{id}/review"): Rule("judge", "reviewed event"),
    ("DELETE", "/api/events/{id}"): Rule("administer", "deleted event"),
    ("DELETE", "/api/events"): Rule("administer", "deleted events"),
    # settings
    ("GET", "/settings"): Rule("administer"),
    ("GET", "/api/settings"): Rule("administer", "read the settings", is_look=True),
    ("PUT", "/api/settings"): Rule("administer", "changed the settings"),
    ("PATCH", "/api/settings"): Rule("administer", "changed the settings"),
    ("POST", "/api/settings/effect"): Rule("administer"),
    ("POST", "/api/settings/try-camera"): Rule("administer", "tried a camera"),
    ("POST", "/api/settings/test-sink"): Rule("administer", "tested a sink"),
    # learning
    ("GET", "/api/learning"): Rule("look"),
    ("GET", "/api/precision"): Rule("look"),
    ("POST", "/api/learning/fit"): Rule("administer", "asked for a new model"),
    ("POST", "/api/learning/use"): Rule("administer", "went back to an older model"),
    # notifications
    ("GET", "/notifications"): Rule("look"),
    ("GET", "/sw.js"): Rule("look"),
    ("GET", "/api/notifications"): Rule("look"),
    ("PUT", "/api/notifications/subscriptions"): Rule("look", "asked for notifications"),
    ("DELETE", "/api/notifications/subscriptions"): Rule("look", "ended notifications"),
    # accounts
    ("GET", "/api/users"): Rule("administer"),
    ("POST", "/api/users"): Rule("administer", "added user"),
    ("PUT", "/api/users/{name}/role"): Rule("administer", "changed role of"),
    ("POST", "/api/users/{name}/link"): Rule("administer", "made log-in link for"),
    ("DELETE", "/api/users/{name}"): Rule("administer", "removed user"),
    ("GET", "/api/audit"): Rule("administer", "read the audit log", is_look=True),
}
UNKNOWN = Rule("administer")
"""For a path or method that no route has."""


def _worker(scope: Scope) -> str:
    """Whose turn a request takes: of a user, or of a program's address; checks have their own."""
    identity: Identity = scope["state"]["identity"]
    name = address_of(scope) if identity.known_by == "token" else identity.user.name
    lane = "checks" if scope["path"] in OPERATIONS else identity.known_by
    return f"{lane} {name}"


def _first(ended: Callable[[], None], send: Send) -> Send:
    """A `send` that ends the turn of a request as soon as its answer begins."""

    async def sending(message: Message) -> None:
        ended()
        await send(message)

    return sending


def keys_of(route: BaseRoute) -> Iterator[RouteKey]:
    """Method and path of a route; HEAD counts as GET."""
    if isinstance(route, WebSocketRoute):
        yield "WEBSOCKET", route.path
    elif isinstance(route, Route):
        for method in route.methods or ():
            yield key_of("http", method, route)
    else:
        raise TypeError(f"expected a route with a path, got {type(route).__name__}")


def key_of(kind: str, method: str, route: BaseRoute) -> RouteKey:
    """The key of a route in the table, for one of its methods."""
    path = str(getattr(route, "path", ""))
    if kind == "websocket":
        return "WEBSOCKET", path
    return "GET" if method == "HEAD" else method, path


def _unknown(method: str, scope: Scope) -> Response:
    """The response to somebody who is not logged in."""
    if STATE in scope.get("state", {}):
        return PlainTextResponse("you have no account here\n", 403)
    if method in SAFE and scope["path"] in PAGES:
        return RedirectResponse("/login", 303)
    return PlainTextResponse("the token is missing\n", 401, {"WWW-Authenticate": "Bearer"})


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port."""
    try:
        parts = urlsplit(f"//{host}")
        if parts.username is not None or parts.path or parts.query or parts.fragment:
            return None
        _ = parts.port
        return None if parts.hostname is None else parts.hostname.lower().rstrip(".")
    except ValueError:
        return None


def _refuse_body(headers: Headers) -> Response | None:
    """The rejection of a body that is too long, or whose length is not stated."""
    length, close = headers.get("content-length", "0"), {"Connection": "close"}
    if "transfer-encoding" in headers:
        return PlainTextResponse("expected a Content-Length\n", 411, close)
    if not length.isdecimal() or len(length) > MOST_DIGITS or int(length) > MAX_BODY:
        return PlainTextResponse(f"expected at most {MAX_BODY} bytes\n", 413, close)
    return None


def _with_headers(send: Send) -> tuple[Send, list[int]]:
    """Add the security headers to responses, unless they are set; the status is noted."""
    statuses: list[int] = []

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending, statuses
