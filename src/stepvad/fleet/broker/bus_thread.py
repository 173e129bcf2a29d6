"""A connection to the bus in its own thread, for synchronous callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import Bus, UnavailableError
from stepvad.fleet.event_loop import CLOSE_S, EventLoopThread
from stepvad.retries import Backoff

if TYPE_CHECKING:
    from stepvad.fleet.settings import BusSettings

T = TypeVar("T")
FIRST_S, LONGEST_S = 0.2, 5.0
"""First and longest back-off between attempts to connect."""


class BusThread:
    """Starts connecting at once and retries until the broker answers."""

    def __init__(self, settings: BusSettings, name: str) -> None:
        self._settings, self._name = settings, name
        self.thread = EventLoopThread(f"bus {name}")
        self._connecting = self.thread.start(self._connect())

    async def bus(self) -> Bus:
        """The connection, for work in its thread."""
        return await asyncio.shield(asyncio.wrap_future(self._connecting))

    def ask(self, question: Callable[[Bus], Awaitable[T]], within_s: float) -> T:
        """Run a query on the bus and return its result; raise `UnavailableError` on timeout."""

        async def asked() -> T:
            return await question(await self.bus())

        try:
            return self.thread.wait(asked(), within_s)
        except TimeoutError:
            raise UnavailableError("bus: expected an answer in time, got none") from None

    def check(self) -> None:
        """Raise the error that makes connecting impossible, such as invalid settings."""
        if self._connecting.done():
            error = self._connecting.exception()
            if isinstance(error, StepvadError):
                raise error

    def close(self) -> None:
        """Close the connection and stop the thread."""
        if self._connecting.done() and not self._connecting.exception():
            with suppress(TimeoutError):
                self.thread.wait(_close(self._connecting.result()), CLOSE_S)
        self.thread.close()

    async def _connect(self) -> Bus:
        from stepvad.fleet.broker.nats import connect

        backoff = Backoff(FIRST_S, LONGEST_S)
        while True:
            try:
                return await connect(self._settings, self._name)
            except UnavailableError:
                await backoff.sleep()


async def _close(bus: Bus) -> None:
    await bus.close()
