"""The NATS client with what it lacks: sockets closed, certificates renewed, TLS insisted on."""

from __future__ import annotations

# Loaded by the bus alone.
from nats.aio.client import Client, Srv  # noqa: TID253
from nats.errors import Error as NatsError  # noqa: TID253

from stepvad.fleet.broker.login import Certificates


class CarefulClient(Client):
    """Closes the sockets of failed attempts, and sends no password if TLS is missing.

    Each connection reads the certificates that were renewed since the last one.

    nats-py opens the next socket without closing the one whose handshake failed, and waits
    without limit for a broker that has stopped reading.
    """

    certificates: Certificates | None = None

    def abort(self) -> None:
        """Cut the connection without sending what is pending."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        self.abort()
        if self.certificates is not None:
            self.options["tls"] = self.certificates.current()
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        self.abort()
        await super()._attempt_reconnect()

    def _connect_command(self) -> bytes:
        if "tls" in self.options and not self._server_info.get("tls_required"):
            raise NatsError("expected TLS as configured, got a broker without it")
        return super()._connect_command()
