"""Connections to a server: how many, how slow they may be, and which one goes first."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from itertools import islice
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)

REQUEST_S = 10.0
"""A whole request, and the TLS handshake before it, arrives in this time."""
SEND_S = 30.0
"""A client reads what was sent to it in this time."""
ROOM_S = 1.0
"""Room is made at most once in this time."""


class ConnectionLimit:
    """The open connections: the oldest idle one makes room when there are too many.

    A connection is idle while no whole request of it is under way. So whoever opens connections
    and says nothing closes connections of their own, and everybody else is answered.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the one that is idle longest comes first
        self._made_room = -ROOM_S
        self._lines = Repeats()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Connection) -> None:
        """A new connection, idle as yet."""
        self._open.add(connection)
        if len(self._open) > self.most:
            self._close_idle(1)
        self._idle[connection] = None

    def is_busy(self, connection: Connection) -> None:
        """A whole request has arrived."""
        self._idle.pop(connection, None)

    def is_idle(self, connection: Connection) -> None:
        """Nothing is under way."""
        if connection in self._open:
            self._idle.setdefault(connection)

    def closed(self, connection: Connection) -> None:
        """It is gone, or has become a websocket."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def make_room(self) -> None:
        """Close half of the idle ones: the process has no file left to open."""
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


class Connection(H11Protocol):
    """An HTTP connection that has to send its requests, and read its answers, in time."""

    def __init__(
        self, *args: Any, limit: ConnectionLimit, tls: ssl.SSLContext | None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._limit, self._tls = limit, tls
        self._line: asyncio.Transport | None = None
        self._early = b""
        self._handshake: asyncio.Task[None] | None = None
        self._too_late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, after a TLS handshake if there is to be one."""
        self._line = transport
        self._limit.opened(self)
        self._expect_request()
        if self._tls is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._secure(transport, self._tls))

    async def _secure(self, line: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Make the line a secure one; asyncio's server would do so out of the limit's sight."""
        try:
            transport = await self.loop.start_tls(
                line, self, tls, server_side=True, ssl_handshake_timeout=REQUEST_S
            )
        except OSError:  # no TLS, a handshake that failed, or a client that left
            transport = None
        if transport is None or transport.is_closing():
            self._forget()
            return
        super().connection_made(transport)
        if self._early:
            self.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self.transport is None:  # they came with the end of the handshake
            self._early += data
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """An answer is sent: the next request may come, or has come already."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._cancel_late()
            self._limit.is_idle(self)
        else:
            self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the limit: the guard closes websockets of strangers at once."""
        self._forget()
        self._line = None
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers and of the place among the open connections."""
        self._forget()
        if self.transport is not None:
            super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read: wait a while."""
        super().pause_writing()
        self._unread = self.loop.call_later(SEND_S, self.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._cancel_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for long, whether its answer was read or not."""
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.abort()

    def abort(self) -> None:
        """Close it now."""
        if self._line is not None:
            self._line.abort()

    def _look(self) -> None:
        """Whether a whole request is under way, or one has begun to arrive."""
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

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _forget(self) -> None:
        self._cancel_late()
        self._cancel_unread()
        self._limit.closed(self)
