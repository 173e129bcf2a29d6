"""An event loop in its own thread, with blocking and non-blocking calls into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLateError
from contextlib import suppress
from typing import Any, TypeVar

from stepvad.fleet.tasks import end

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
