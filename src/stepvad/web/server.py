"""A web server, run as a stage of a site, with a limit on slow clients."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from stepvad.errors import ConfigError, os_reason
from stepvad.site.settings.page import server_tls
from stepvad.site.stages import Heartbeat, Repeats

logger = logging.getLogger(__name__)
MAX_MESSAGE = 4096
"""Maximum bytes of a websocket message from a browser; its messages are ignored."""
MOST_CONNECTIONS = 512
BACKLOG = 1024
"""Pending connections, and how many the event loop accepts at once."""
STOP_S = 5.0
"""Grace period for open requests when the server stops."""
BEAT_S = 1.0
HANG_S = 30.0
"""Heartbeat deadline of the event loop."""

REQUEST_S = 10.0
"""Deadline for a whole request."""
RESPONSE_S = 300.0
"""Deadline for its response, which the client has to read."""


def bind(
    app: ASGIApp, host: str, port: int, *, certificate: Path | None = None, key: Path | None = None
) -> Server:
    """Create a server that is already listening and serves once run; port 0 picks a free port."""
    tls = server_tls(certificate, key) if certificate and key else None
    return Server(app, _listen(host, port), tls)


class Server:
    """The stage `web`: a server that runs until stopped."""

    name = "web"

    def __init__(
        self, app: ASGIApp, listening: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        self.host, self.port = listening.getsockname()[:2]
        self.heartbeat = Heartbeat(HANG_S)
        self.listening = listening
        self._scheme = "http" if tls is None else "https"
        # half of the files that the process may open are for others: cameras, the store, sinks
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = max(min(MOST_CONNECTIONS, files // 2), 1)
        connection = partial(HttpConnection, most=most, lines=Repeats())
        config = _config(app, connection, min(BACKLOG, files // 4))
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The URL for a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self) -> None:
        """Serve until stopped."""
        asyncio.run(self._serve())
        self.listening.close()
        if not self._server.should_exit:
            raise RuntimeError("the server exited unexpectedly")

    def stop(self, deadline: float) -> None:
        """Stop accepting requests; open ones may finish until shortly before the deadline."""
        left_s = deadline - time.monotonic() - 1.0
        self._server.config.timeout_graceful_shutdown = max(int(left_s), 0)
        self._server.should_exit = True

    async def _serve(self) -> None:
        # the heartbeat stops if a callback blocks the event loop
        beating = asyncio.create_task(self._beat())
        try:
            await self._server.serve(sockets=[self.listening])
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            self.heartbeat.beat()
            await asyncio.sleep(BEAT_S)


class HttpConnection(H11Protocol):
    """An HTTP connection with a deadline for each request and each response."""

    def __init__(self, *args: Any, most: int, lines: Repeats, **options: Any) -> None:
        super().__init__(*args, **options)
        self._most, self._lines = most, lines
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, unless too many connections are open."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            words = "more than %d connections are open, new ones are closed"
            self._lines.log(logger.warning, "close", words, self._most)
            transport.abort()
            return
        self._set_deadline(REQUEST_S)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request; the deadline runs from the first one."""
        was_waiting = not self._has_request()
        super().data_received(data)
        if self.transport.is_closing() or self not in self.connections:
            return
        if self._has_request():
            if was_waiting:
                self._set_deadline(RESPONSE_S)
        elif self._deadline is None:
            self._set_deadline(REQUEST_S)

    def on_response_complete(self) -> None:
        """Go idle after a response, unless the next request has already arrived."""
        super().on_response_complete()
        if not self.transport.is_closing():  # else the client has yet to read the rest
            self._set_deadline(RESPONSE_S if self._has_request() else None)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Stay open: the guard closes unauthenticated websockets at once."""
        self._set_deadline(None)
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._set_deadline(None)
        super().connection_lost(exc)

    def _has_request(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        later = self.loop.call_later
        # past the deadline the connection is reset, without waiting for the client
        self._deadline = None if seconds is None else later(seconds, self.transport.abort)


class WebsocketConnection(WebSocketsSansIOProtocol):
    """A websocket, with backpressure for slow readers."""

    def shutdown(self) -> None:
        """Send a close frame, unless the connection is closing already: then uvicorn would fail."""
        if not self.transport.is_closing():
            super().shutdown()


def _config(app: ASGIApp, connection: Any, backlog: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=connection,
        ws=WebsocketConnection,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="error",  # clients can provoke warnings, such as those on malformed requests
        access_log=False,
        server_header=False,
        proxy_headers=False,  # handled by the app, which knows the trusted proxies
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,  # many small frames
        backlog=backlog,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(STOP_S),
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dual = family == socket.AF_INET6
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    except (OSError, UnicodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"web: expected to listen on {host} port {port}, got: {reason}",
            hint="another program may use it: choose another host or port under [web]",
        ) from None
