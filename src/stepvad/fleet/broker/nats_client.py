"""The NATS client with what it lacks: back-off, closed sockets, new certificates, TLS required."""

from __future__ import annotations

import asyncio
import time

# Loaded by the bus alone.
from nats.aio.client import Client, Srv  # noqa: TID253
from nats.errors import Error as NatsError  # noqa: TID253

from stepvad.fleet.broker.login import Certificates
from stepvad.retries import Backoff

FIRST_S, LONGEST_S = 0.2, 3.0
"""First and longest wait between two attempts to reach the same broker."""
GROWTH = 1.25
"""Waits grow slowly: after an outage of two seconds a client is back within another one."""
SHORTEST_S = FIRST_S / 2
"""Wait of the client itself, also after a connection that was lost at once."""


class CarefulClient(Client):
    """Closes the sockets of failed attempts, and sends no password if TLS is missing.

    Each connection reads the certificates that were renewed since the last one. Attempts to reach
    a broker that is away become rarer, and those of many clients do not come in step.

    nats-py waits equally long before each attempt, opens the next socket without closing the one
    whose handshake failed, and waits without limit for a broker that has stopped reading.
    """

    certificates: Certificates | None = None

    def abort(self) -> None:
        """Cut the connection without sending what is pending."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        self.abort()
        await _back_off(s)
        if self.certificates is not None:
            self.options["tls"] = self.certificates.current()
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        for server in self._server_pool:  # or one that is away would hold up the others later
            server.reconnects = 0

    async def _attempt_reconnect(self) -> None:
        self.abort()
        await super()._attempt_reconnect()

    def _connect_command(self) -> bytes:
        if "tls" in self.options and not self._server_info.get("tls_required"):
            raise NatsError("expected TLS as configured, got a broker without it")
        return super()._connect_command()


async def _back_off(server: Srv) -> None:
    """Wait until the next attempt to reach a server is due; the first one is due at once."""
    if not server.reconnects or server.last_attempt is None:
        return
    backoff = Backoff(FIRST_S, LONGEST_S, failures=server.reconnects - 1, growth=GROWTH)
    due = server.last_attempt + backoff.next_s()
    await asyncio.sleep(max(due - time.monotonic(), 0.0))
