"""Limits on server connections: how many, how slow, and which are closed first."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from functools import partial
from itertools import islice
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)

REQUEST_S = 10.0
"""Deadline for a whole request, including the TLS handshake before it."""
SEND_S = 30.0
"""Deadline for a client to read what was sent to it."""
ROOM_S = 1.0
"""Minimum interval between two calls that make room."""


class ConnectionLimit:
    """Tracks open connections; closes the one idle longest when there are too many.

    A connection is idle while it has no complete request in progress. A client that opens many
    silent connections only evicts its own; other clients are still served.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, None] = {}  # longest idle first
        self._made_room = -ROOM_S
        self._lines = Repeats()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: HttpConnection) -> None:
        """Add a new connection, idle at first."""
        self._open.add(connection)
        if len(self._open) > self.most:
            self._close_idle(1)
        self._idle[connection] = None

    def is_busy(self, connection: HttpConnection) -> None:
        """Mark a connection as busy: a complete request has arrived."""
        self._idle.pop(connection, None)

    def is_idle(self, connection: HttpConnection) -> None:
        """Mark a connection as idle."""
        if connection in self._open:
            self._idle.setdefault(connection)

    def closed(self, connection: HttpConnection) -> None:
        """Remove a connection that was closed or upgraded to a websocket."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def make_room(self) -> None:
        """Close half of the idle connections, when the process is out of file descriptors."""
        now = time.monotonic()
        if now - self._made_room >= ROOM_S:
            self._made_room = now
            self._close_idle((len(self._idle) + 1) // 2)

    def close_all(self) -> None:
        """Close every connection now."""
        for connection in [*self._open]:
            connection.abort()

    def _close_idle(self, count: int) -> None:
        oldest = [*islice(self._idle, count)]
        for connection in oldest:
            self.closed(connection)
            connection.abort()
        held = self._lines.admit("close") if oldest else None
        if held is not None:
            logger.warning(
                "too many connections: %d are open, idle ones are closed%s",
                *(len(self._open) + len(oldest), repeated(held)),
            )


class SendTimeout:
    """Aborts a connection whose client does not read what was sent to it.

    From the moment that writing is paused the client has `SEND_S` to make room, and up to twice as
    long from the moment that the connection is closed: asyncio waits for it without a limit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, line: asyncio.Transport) -> None:
        """`line` is the connection below TLS."""
        self._loop, self._line = loop, line
        self._paused: asyncio.TimerHandle | None = None
        self._closing = loop.call_later(SEND_S, self._check_closing, False)

    def writing_paused(self) -> None:
        """Start the deadline: the write buffer is full."""
        self._paused = self._loop.call_later(SEND_S, self._line.abort)

    def writing_resumed(self) -> None:
        """Cancel the deadline: the client reads again."""
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None

    def cancel(self) -> None:
        """Cancel the timers of a connection that is lost."""
        self.writing_resumed()
        self._closing.cancel()

    def _check_closing(self, was_closing: bool) -> None:
        if was_closing:
            self._line.abort()
            return
        is_closing = self._line.is_closing()
        self._closing = self._loop.call_later(SEND_S, self._check_closing, is_closing)


class HttpConnection(H11Protocol):
    """An HTTP connection with deadlines for sending requests and reading responses."""

    def __init__(
        self, *args: Any, limit: ConnectionLimit, tls: ssl.SSLContext | None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._limit, self._tls = limit, tls
        self._line: asyncio.Transport | None = None
        self._early = b""
        self._handshake: asyncio.Task[None] | None = None
        self._too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, after the TLS handshake if TLS is enabled."""
        self._line = transport
        self._send_timeout = SendTimeout(self.loop, transport)
        self._limit.opened(self)
        self._expect_request()
        if self._tls is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._secure(transport, self._tls))

    async def _secure(self, line: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Start TLS here, since handshakes in asyncio's server would bypass the limit."""
        try:
            transport = await self.loop.start_tls(
                line, self, tls, server_side=True, ssl_handshake_timeout=REQUEST_S
            )
        except OSError:  # no TLS, a failed handshake, or a client that disconnected
            transport = None
        if transport is None or transport.is_closing():
            self._forget()
            return
        super().connection_made(transport)
        if self._early:
            self.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request."""
        if self.transport is None:  # arrived with the end of the handshake
            self._early += data
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Go idle after a response, unless the next request has already arrived."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._cancel_late()
            self._limit.is_idle(self)
        else:
            self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the limit: the guard closes unauthenticated websockets at once."""
        self._leave_limit()
        self._line = None
        websocket: Any = self.ws_protocol_class
        limited = partial(websocket, send_timeout=self._send_timeout)
        self.ws_protocol_class = limited  # type: ignore[assignment]  # uvicorn only calls it
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers and remove the connection from the limit."""
        self._forget()
        if self.transport is not None:
            super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._send_timeout.writing_paused()

    def resume_writing(self) -> None:
        """Cancel the deadline: the client reads again."""
        super().resume_writing()
        self._send_timeout.writing_resumed()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection after the keep-alive timeout, even if its response was not read."""
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.abort()

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._line is not None:
            self._line.abort()

    def _look(self) -> None:
        """Update the busy or idle state and the request deadline."""
        if self._line is None or self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._cancel_late()
            self._limit.is_busy(self)
        else:
            self._expect_request()
            self._limit.is_idle(self)

    def _expect_request(self) -> None:
        if self._too_late is None:
            self._too_late = self.loop.call_later(REQUEST_S, self.abort)

    def _cancel_late(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None

    def _leave_limit(self) -> None:
        self._cancel_late()
        self._limit.closed(self)

    def _forget(self) -> None:
        self._leave_limit()
        self._send_timeout.cancel()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A websocket with the deadline of its HTTP connection for reading what was sent."""

    def __init__(self, *args: Any, send_timeout: SendTimeout, **options: Any) -> None:
        super().__init__(*args, **options)
        self._send_timeout = send_timeout

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._send_timeout.writing_paused()

    def resume_writing(self) -> None:
        """Cancel the deadline: the client reads again."""
        super().resume_writing()
        self._send_timeout.writing_resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._send_timeout.cancel()
        super().connection_lost(exc)
