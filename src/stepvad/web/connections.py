"""Limits for slow clients on the network: deadlines, and the longest idle connection is closed.

A reverse proxy in front of the page can do more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepvad.supervision.logs import Repeats, repeated

logger = logging.getLogger(__name__)

REQUEST_S = 10.0
"""Deadline for a whole request."""
RESPONSE_S = 300.0
"""Deadline for its response, which the client has to read."""


class ConnectionLimit:
    """Tracks open connections; closes the one idle longest when there are too many.

    A connection is idle while it has no complete request in progress. A client that opens many
    silent connections only evicts its own; other clients are still served.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, None] = {}  # longest idle first
        self._lines = Repeats()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, connection: HttpConnection) -> bool:
        return connection in self._open

    def opened(self, connection: HttpConnection) -> None:
        """Add a new connection, idle at first."""
        self._open.add(connection)
        if len(self._open) > self.most and self._idle:
            oldest = next(iter(self._idle))
            self.closed(oldest)
            oldest.transport.abort()
            held = self._lines.admit("close")
            if held is not None:
                message = "more than %d connections are open, idle ones are closed%s"
                logger.warning(message, self.most, repeated(held))
        self._idle[connection] = None

    def busy(self, connection: HttpConnection) -> bool:
        """Mark a connection as busy, as a complete request has arrived; whether it was idle."""
        return self._idle.pop(connection, self) is None

    def idle(self, connection: HttpConnection) -> None:
        """Mark a connection as idle."""
        self._idle.setdefault(connection)

    def closed(self, connection: HttpConnection) -> None:
        """Remove a connection that was closed or upgraded to a websocket."""
        self._open.discard(connection)
        self._idle.pop(connection, None)


class HttpConnection(H11Protocol):
    """An HTTP connection with a deadline for each request and each response."""

    def __init__(self, *args: Any, limit: ConnectionLimit, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit = limit
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._limit.opened(self)
        self._set_deadline(REQUEST_S)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request; the deadline runs from the first one."""
        super().data_received(data)
        if self not in self._limit or self.transport.is_closing():
            return
        if self._has_request():
            if self._limit.busy(self):
                self._set_deadline(RESPONSE_S)
        elif self._deadline is None:
            self._set_deadline(REQUEST_S)

    def on_response_complete(self) -> None:
        """Go idle after a response, unless the next request has already arrived."""
        super().on_response_complete()
        if self.transport.is_closing():
            return  # the deadline stays: the client has yet to read the rest
        self._set_deadline(RESPONSE_S if self._has_request() else None)
        if not self._has_request():
            self._limit.idle(self)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the limit: the guard closes unauthenticated websockets at once."""
        self._leave()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the limit."""
        self._leave()
        super().connection_lost(exc)

    def _has_request(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _leave(self) -> None:
        self._limit.closed(self)
        self._set_deadline(None)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        later = self.loop.call_later
        self._deadline = None if seconds is None else later(seconds, self.transport.abort)
