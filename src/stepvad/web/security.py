"""Who may ask, from where, and for how much: the guard before every route."""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepvad.web.attempts import Attempt, Attempts
from stepvad.web.sessions import Sessions

MAX_BODY = 64 * 1024
"""Bytes of a request's body that are read."""
LONGEST_LENGTH = 19
"""Digits of a length; nothing is longer."""
OPEN = frozenset({("GET", "/login"), ("HEAD", "/login"), ("POST", "/login"), ("GET", "/healthz")})
"""What answers without the token: the form that asks for it, and whether anybody is there."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # nobody else ever learns the address; the own login form needs its Origin, which
    # no-referrer would turn into null
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets through who has the token and comes from here; all else is refused in few words."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        attempts: Attempts,
        sessions: Sessions,
        cookie: str,
        names: Iterable[str],
        public_url: str | None = None,
    ) -> None:
        """Answer for these `names` of the machine, for addresses, and for the `public_url`."""
        self.app = app
        self.attempts, self.sessions, self.cookie = attempts, sessions, cookie
        self.origin = public_url
        public = [] if public_url is None else [urlsplit(public_url).hostname or ""]
        self.names = frozenset(name.lower().rstrip(".") for name in [*names, *public])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on with its whole body."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if scope["type"] == "websocket":
            if refusal is None:
                await self.app(scope, receive, send)
            else:
                await _turn_away(receive, send)
            return
        protected = _with_headers(send)
        if refusal is None:
            refusal, receive = await _whole_body(Headers(scope=scope), receive)
        if refusal is None:
            await self.app(scope, receive, protected)
        else:
            await refusal(scope, receive, protected)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why this is not answered."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        # who knows the token is no page that another name has led here
        bearer = self._bearer(scope, headers)
        if name is None or not (bearer.right or self._is_here(name)):
            return PlainTextResponse("this is not the host's name\n", 400)
        method = scope.get("method", "WEBSOCKET")
        origin = headers.get("origin")
        if method not in SAFE and origin is not None and not self._is_own(origin, hosts[0]):
            return PlainTextResponse("asked for by another page\n", 403)
        if bearer.right or (method, scope["path"]) in OPEN:
            return None
        if self._has_session(scope, headers):
            # a browser says where a change comes from
            if method in SAFE or origin is not None:
                return None
            return PlainTextResponse("expected an Origin\n", 403)
        if bearer.wait_s > 0:
            return too_many("too many wrong tokens\n", bearer.wait_s)
        if method in SAFE and scope["path"] == "/":
            return RedirectResponse("/login", 303)
        return PlainTextResponse("the token is missing\n", 401, {"WWW-Authenticate": "Bearer"})

    def _is_here(self, name: str) -> bool:
        """Whether a browser meant this machine: names of others may lead here too."""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is the page itself, directly or behind its proxy."""
        scheme, _, rest = origin.lower().partition("://")
        is_direct = scheme in ("http", "https") and rest == host.lower()
        return is_direct or origin.lower() == self.origin

    def _bearer(self, scope: Scope, headers: Headers) -> Attempt:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return Attempt(False)
        return self.attempts.attempt(given.strip(), address_of(scope))

    def _has_session(self, scope: Scope, headers: Headers) -> bool:
        id = cookie_parser(headers.get("cookie", "")).get(self.cookie)
        if id is None or not self.sessions.holds(id):
            return False
        scope.setdefault("state", {})["session"] = id
        return True


def address_of(scope: Scope) -> str:
    """The address of a client; behind a trusted proxy the one that the proxy tells."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many(words: str, wait_s: float) -> Response:
    """429 with the time to wait."""
    return PlainTextResponse(words, 429, retry_after(wait_s))


def retry_after(wait_s: float) -> dict[str, str]:
    """The header that says when to come back."""
    return {"Retry-After": str(max(math.ceil(wait_s), 1))}


def own_names(host: str) -> set[str]:
    """What this machine is called in an address: itself, and where it listens."""
    machine = socket.gethostname()
    return {"localhost", host, machine, f"{machine.partition('.')[0]}.local"}


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


async def _turn_away(receive: Receive, send: Send) -> None:
    """Refuse a websocket before it opens."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})


async def _whole_body(headers: Headers, receive: Receive) -> tuple[Response | None, Receive]:
    """A body read to its end, to be read again; or why it is refused.

    The server closes a connection whose request does not arrive in time.
    """
    too_long = PlainTextResponse(
        f"expected at most {MAX_BODY} bytes\n", 413, {"Connection": "close"}
    )
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        return PlainTextResponse("expected a length in digits\n", 400), receive
    if len(length) > LONGEST_LENGTH or int(length) > MAX_BODY:
        return too_long, receive
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return PlainTextResponse("gone\n", 400), receive
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return too_long, receive
        if not message.get("more_body", False):
            return None, _once(bytes(body), receive)


def _once(body: bytes, receive: Receive) -> Receive:
    """A body that is there already, then whatever else comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    """Answers with the headers that protect a page; those of the page itself come first."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
