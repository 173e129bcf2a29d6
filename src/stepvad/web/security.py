"""Request guard in front of every route: authentication, host and origin checks, body size."""

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
"""Maximum size of a request body in bytes."""
LONGEST_LENGTH = 19
"""Maximum digits of a Content-Length header."""
OPEN = frozenset({("GET", "/login"), ("HEAD", "/login"), ("POST", "/login"), ("GET", "/healthz")})
"""Routes that need no token: the login form and the liveness check."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
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


class Guard:
    """Middleware that passes authenticated same-origin requests; others get a short error."""

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
        """Accept `names` of the machine, IP addresses and the `public_url` as hosts."""
        self.app = app
        self.attempts, self.sessions, self.cookie = attempts, sessions, cookie
        self.origin = public_url
        public = [] if public_url is None else [urlsplit(public_url).hostname or ""]
        self.names = frozenset(name.lower().rstrip(".") for name in [*names, *public])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on with its whole body."""
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
        """The response that rejects a request; None if it may pass."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        # a client with the token is not a page led here by DNS rebinding
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
            # browsers send an Origin with unsafe methods
            if method in SAFE or origin is not None:
                return None
            return PlainTextResponse("expected an Origin\n", 403)
        if bearer.wait_s > 0:
            return too_many("too many wrong tokens\n", bearer.wait_s)
        if method in SAFE and scope["path"] == "/":
            return RedirectResponse("/login", 303)
        return PlainTextResponse("the token is missing\n", 401, {"WWW-Authenticate": "Bearer"})

    def _is_here(self, name: str) -> bool:
        """Whether a host name is ours or an IP address: foreign names may resolve to us too."""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is this page, directly or through its proxy."""
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
    """The address of a client; behind a trusted proxy, the one the proxy reports."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many(words: str, wait_s: float) -> Response:
    """A 429 response with a Retry-After header."""
    return PlainTextResponse(words, 429, retry_after(wait_s))


def retry_after(wait_s: float) -> dict[str, str]:
    """The Retry-After header, in whole seconds."""
    return {"Retry-After": str(max(math.ceil(wait_s), 1))}


def own_names(host: str) -> set[str]:
    """Host names of this machine, including the one it listens on."""
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
    """Reject a websocket before it is accepted."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})


async def _whole_body(headers: Headers, receive: Receive) -> tuple[Response | None, Receive]:
    """Read the whole body; return a rejection, or a `receive` that replays the body.

    The server closes a connection whose request does not arrive before the deadline.
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
    """A `receive` that returns the body first, then the following messages."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    """Add the security headers to responses; headers already set take precedence."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
