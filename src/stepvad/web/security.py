"""Who may ask, from where, and for how much: the guard before every route."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepvad.errors import ConfigError

MAX_BODY = 64 * 1024
"""Bytes of a request's body that are read."""
LONGEST_LENGTH = 19
"""Digits of a length; nothing is longer."""
BODY_S = 10.0
"""How long a body may take to arrive."""
SHORTEST_TOKEN = 16
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


class Token:
    """The word that opens the site, as it is and as it stands in a cookie."""

    def __init__(self, token: str) -> None:
        if len(token) < SHORTEST_TOKEN:
            raise ConfigError(
                f"web.token: expected at least {SHORTEST_TOKEN} characters, got {len(token)}",
                hint="leave the setting out and one is made",
            )
        self._token = token.encode()
        self.cookie = hmac.new(self._token, b"stepvad cookie", hashlib.sha256).hexdigest()
        # browsers send the cookies of one host to all its ports: each site has a name of its own
        self.cookie_name = f"stepvad-{hashlib.sha256(self.cookie.encode()).hexdigest()[:8]}"

    def fits(self, given: str) -> bool:
        """Whether this is the token; takes as long for any other."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token)

    def fits_cookie(self, given: str) -> bool:
        """Whether this is the token as it stands in a cookie."""
        return hmac.compare_digest(given.encode(errors="replace"), self.cookie.encode())


class Guard:
    """Lets through who has the token and comes from here; all else is refused in few words."""

    def __init__(self, app: ASGIApp, *, token: Token, names: Iterable[str]) -> None:
        self.app = app
        self.token = token
        self.names = frozenset(name.lower().rstrip(".") for name in names)

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
        knows = self._has_bearer(headers)
        if name is None or not (knows or self._is_here(name)):
            return PlainTextResponse("this is not the host's name\n", 400)
        method = scope.get("method", "WEBSOCKET")
        origin = headers.get("origin")
        if method not in SAFE and origin is not None and not _is_of(origin, hosts[0]):
            return PlainTextResponse("asked for by another page\n", 403)
        if knows or (method, scope["path"]) in OPEN:
            return None
        if self._has_cookie(headers):
            # a browser says where a change comes from
            if method in SAFE or origin is not None:
                return None
            return PlainTextResponse("expected an Origin\n", 403)
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

    def _has_bearer(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.token.fits(given.strip())

    def _has_cookie(self, headers: Headers) -> bool:
        given = cookie_parser(headers.get("cookie", "")).get(self.token.cookie_name)
        return given is not None and self.token.fits_cookie(given)


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


def _is_of(origin: str, host: str) -> bool:
    """Whether an origin is the page itself."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()


async def _turn_away(receive: Receive, send: Send) -> None:
    """Refuse a websocket before it opens."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})


async def _whole_body(headers: Headers, receive: Receive) -> tuple[Response | None, Receive]:
    """A body read to its end, to be read again; or why it is refused."""
    too_long = PlainTextResponse(
        f"expected at most {MAX_BODY} bytes\n", 413, {"Connection": "close"}
    )
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        return PlainTextResponse("expected a length in digits\n", 400), receive
    if len(length) > LONGEST_LENGTH or int(length) > MAX_BODY:
        return too_long, receive
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return PlainTextResponse("gone\n", 400), receive
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    return too_long, receive
                if not message.get("more_body", False):
                    return None, _once(bytes(body), receive)
    except TimeoutError:
        return PlainTextResponse("the body did not arrive\n", 408, {"Connection": "close"}), receive


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
