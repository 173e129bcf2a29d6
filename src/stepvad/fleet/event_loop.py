"""Tasks that are cancelled reliably, and an event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLateError
from contextlib import suppress
from typing import Any, TypeVar

AGAIN_S = 0.2


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks repeatedly until all are done.

    Before Python 3.12, `asyncio.wait_for` swallows a cancellation that coincides with its result.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Finish work, or cancel it when `stop` is set; return whether it was finished."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        await end(working, stopped)


async def rest(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, or return early when `stop` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


T = TypeVar("T")
CLOSE_S = 3.0


class EventLoopThread:
    """Runs until closed; accepts work from any thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule a coroutine and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Run a coroutine and block for its result; raise `TimeoutError` after `within_s`."""
        answer = self.start(work)
        try:
            return answer.result(within_s)
        except TooLateError:
            answer.cancel()
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Schedule a short callback in the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel all tasks and stop the thread."""
        if self._loop.is_closed():
            return
        with suppress(TooLateError):
            self.wait(_cancel_all(), CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await end(*tasks)
