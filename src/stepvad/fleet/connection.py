"""A connection to the NATS brokers of a fleet, for event loops and for threads."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

# Loaded by the fleet alone, where a broker is spoken to.
from nats import errors as client_errors  # noqa: TID253
from nats.aio.client import Client, Srv  # noqa: TID253
from nats.aio.msg import Msg  # noqa: TID253
from nats.js import JetStreamContext, errors  # noqa: TID253

from stepvad.errors import ConfigError, StepvadError, os_reason
from stepvad.files import secret
from stepvad.retries import Backoff
from stepvad.site.settings.sections import BrokerSettings, TlsFiles
from stepvad.site.stages import Repeats

logger = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT_S, CONNECT_S = 2.0, 10.0
"""Longest wait for the answer of a broker, and for the first connection to any of them."""
CLOSE_S, STOP_S = 2.0, 0.1
"""Longest time to send what is pending, and until a caller that is stopped waits no longer."""
FIRST_S, LONGEST_S = 0.2, 3.0
"""First and longest wait between two attempts to reach the same broker."""
GROWTH = 1.25
"""Waits grow slowly: after an outage of two seconds a client is back within another one."""
PING_S = 2
"""Interval of pings; a broker that misses two of them counts as lost."""

WRONG_SEQUENCE, NO_ROOM, TOO_LARGE = (10071, 10164), (10077, 10047, 10122), 10054
"""Codes of a broker: another message came before; a stream or an account is full; too large."""


class UnavailableError(StepvadError):
    """The broker or a site does not answer, or has no room; try again later."""


class ChangedError(StepvadError):
    """Somebody else has changed the value meanwhile; read it again."""


class TooLargeError(StepvadError):
    """The broker takes no message of this size."""


class Value(NamedTuple):
    """The last message of a subject; its sequence in the stream is its revision."""

    data: bytes
    revision: int


class Connection:
    """A connection that reconnects without limit; opened by `connected`."""

    def __init__(self, client: _Client) -> None:
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=TIMEOUT_S)

    async def publish(self, subject: str, data: bytes, *, expect: int | None = None) -> int:
        """Store a message in its stream; its sequence.

        `expect`: the revision that the subject must have still, else raise `ChangedError`.
        """
        headers = {} if expect is None else {"Nats-Expected-Last-Subject-Sequence": str(expect)}
        self._check()
        with translated():
            return (await self.js.publish(subject, data, headers=headers or None)).seq

    async def last(self, stream: str, subject: str, within_s: float = TIMEOUT_S) -> Value | None:
        """The last message of a subject, by direct get; None if there is none.

        A replica may answer that is a moment behind: ignore a revision lower than the last.
        """
        self._check()
        with translated():
            told = await self.client.request(
                f"$JS.API.DIRECT.GET.{stream}.{subject}", timeout=within_s
            )
        headers = told.headers or {}
        if headers.get("Status") == "404":
            return None
        if "Nats-Sequence" not in headers:
            raise UnavailableError(f"broker: expected a message of {subject}, got another answer")
        return Value(told.data, int(headers["Nats-Sequence"]))

    async def request(self, subject: str, data: bytes, within_s: float = TIMEOUT_S) -> bytes:
        """Ask whoever answers on a subject; raise `UnavailableError` if nobody does."""
        self._check()
        with translated():
            return (await self.client.request(subject, data, timeout=within_s)).data

    async def answer(self, subject: str, handler: Callable[[Msg], Awaitable[None]]) -> None:
        """Have a handler answer the requests on a subject, also after a reconnect."""
        with translated():
            await self.client.subscribe(subject, cb=handler)

    async def close(self) -> None:
        """Close the connection."""
        try:
            with suppress(client_errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(self.client.close(), CLOSE_S)
        finally:
            self.client.abort()

    def _check(self) -> None:
        if not self.client.is_connected:  # the client would buffer it until it reconnects
            raise UnavailableError("broker: expected a connection, got none for now")


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of the client as ours."""
    try:
        yield
    except errors.APIError as error:
        words = f"broker: {error.description or type(error).__name__}"
        if error.err_code in WRONG_SEQUENCE:
            raise ChangedError(words) from None
        if error.err_code == TOO_LARGE:
            raise TooLargeError(words, hint="raise the limit of the stream, or send less") from None
        hint = "does the writer run? it takes events out" if error.err_code in NO_ROOM else ""
        raise UnavailableError(words, hint=hint) from None
    except client_errors.MaxPayloadError:
        raise TooLargeError(
            "broker: expected a smaller message", hint="raise max_payload"
        ) from None
    except client_errors.NoRespondersError:
        raise UnavailableError("broker: expected somebody who answers, got nobody") from None
    except (errors.Error, client_errors.Error, TimeoutError, OSError) as error:
        words = str(error) or type(error).__name__
        raise UnavailableError(
            f"broker: expected an answer, got: {words}",
            hint="is the broker running, and may this user do that?",
        ) from None


@asynccontextmanager
async def connected(settings: BrokerSettings, name: str) -> AsyncIterator[Connection]:
    """A connection for a block; the inbox of its replies is named by the user, else by `name`."""
    connection = await connect(settings, name)
    try:
        yield connection
    finally:
        await connection.close()


async def connect(settings: BrokerSettings, name: str) -> Connection:
    """Connect to the brokers; raise `UnavailableError` if none answers."""
    client, repeats = _Client(), Repeats()

    async def came_back() -> None:
        logger.info("broker: reconnected")

    async def went_away() -> None:
        if not client.is_closed:
            logger.warning("broker unreachable: connection lost")

    async def failed(error: Exception) -> None:
        words = str(error) or type(error).__name__  # such as missing permissions
        repeats.log(logger.warning, words, "broker: %s", words)

    facts: dict[str, Any] = {}
    if settings.user is not None and settings.password is not None:
        facts |= {"user": settings.user, "password": secret(settings.password)}
    if any(server.startswith("tls://") for server in settings.servers):
        facts["tls"] = ssl.create_default_context()
    if settings.tls is not None:
        client.files, facts["tls"] = settings.tls, tls_context(settings.tls)
    try:
        with translated():
            opened = client.connect(
                servers=settings.servers,
                name=name,
                reconnected_cb=came_back,
                disconnected_cb=went_away,
                error_cb=failed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=FIRST_S / 2,  # type: ignore[arg-type] # fractions work
                connect_timeout=2,
                ping_interval=PING_S,
                max_outstanding_pings=2,
                inbox_prefix=f"_INBOX.{settings.user or name}",
                **facts,
            )
            # a broker that refuses a certificate is tried again and again, without a word
            await asyncio.wait_for(opened, CONNECT_S)
    except BaseException:
        client.abort()
        raise
    return Connection(client)


class _Client(Client):
    """The NATS client with what it lacks: back-off, closed sockets, renewed certificates.

    nats-py waits equally long before each attempt, opens the next socket without closing the one
    whose handshake failed, and sends a password although the broker dropped TLS.
    """

    files: TlsFiles | None = None

    def abort(self) -> None:
        """Cut the connection without sending what is pending."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        self.abort()
        if s.reconnects and s.last_attempt is not None:
            backoff = Backoff(FIRST_S, LONGEST_S, failures=s.reconnects - 1, growth=GROWTH)
            await asyncio.sleep(max(s.last_attempt + backoff.next_s() - time.monotonic(), 0.0))
        if self.files is not None:
            with suppress(ConfigError):  # half renewed: what was read before may still do
                self.options["tls"] = tls_context(self.files)
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
            raise client_errors.Error("expected TLS as configured, got a broker without it")
        return super()._connect_command()


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """The context of certificate files as they are now."""
    for name, path in (("ca", files.ca), ("cert", files.cert), ("key", files.key)):
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise ConfigError(
                f"tls.{name}: expected a file that can be read, got {path}: {os_reason(error)}",
                hint="paths are relative to the settings file",
            ) from None
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.cert is not None:
            context.load_cert_chain(files.cert, files.key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tls: expected ca, cert and key in PEM, got: {error}",
            hint="a key belongs to its certificate and has no password",
        ) from None
    return context


class LoopThread:
    """An event loop in a thread, for callers in others."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Schedule a coroutine; its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(
        self, work: Coroutine[Any, Any, T], within_s: float, stopping: threading.Event | None = None
    ) -> T:
        """Run a coroutine and wait for its result, unless stopped; else raise `TimeoutError`."""
        answer, ends = self.start(work), time.monotonic() + within_s
        while not futures.wait([answer], STOP_S if stopping else within_s).done:
            if time.monotonic() >= ends or (stopping and stopping.is_set()):
                answer.cancel()
                raise TimeoutError
        return answer.result()

    def close(self) -> None:
        """Cancel what runs, and end the thread."""
        if self._loop.is_closed():
            return
        with suppress(TimeoutError):
            self.wait(_cancel_all(), CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()


class ConnectionThread:
    """A connection in a thread of its own: it connects at once, and retries until that works."""

    def __init__(self, settings: BrokerSettings, name: str) -> None:
        self._settings, self._name = settings, name
        self.thread = LoopThread(f"broker {name}"[:15])
        self._connecting = self.thread.start(self._connect())

    async def connection(self) -> Connection:
        """The connection, for work in its thread; waits for the first one."""
        return await asyncio.shield(asyncio.wrap_future(self._connecting))

    def ask(
        self,
        work: Callable[[Connection], Awaitable[T]],
        within_s: float,
        stopping: threading.Event | None = None,
    ) -> T:
        """Do something with the connection; raise `UnavailableError` if it takes too long."""

        async def asked() -> T:
            return await work(await self.connection())

        if self._connecting.done() and (error := self._connecting.exception()) is not None:
            raise error  # of the settings: connecting is not tried again
        try:
            return self.thread.wait(asked(), within_s, stopping)
        except TimeoutError:
            raise UnavailableError("broker: expected an answer in time, got none") from None

    def close(self) -> None:
        """Close the connection and end the thread."""
        if self._connecting.done() and not self._connecting.exception():
            with suppress(TimeoutError):
                self.thread.wait(self._connecting.result().close(), CLOSE_S)
        self.thread.close()

    async def _connect(self) -> Connection:
        backoff, warned = Backoff(FIRST_S, LONGEST_S), False
        while True:
            try:
                return await connect(self._settings, self._name)
            except UnavailableError as error:
                if not warned:
                    logger.warning("%s; retrying", error.problem)
                    warned = True
                await backoff.sleep()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    # before Python 3.12, wait_for swallows a cancellation that coincides with its result
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.2)
