"""Tasks that wait for a broker: their end, and waits that a stop cuts short."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

AGAIN_S = 0.2


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they are over: `asyncio.wait_for` swallows a cancellation now and then.

    It does so, before Python 3.12, where what it waits for comes in the same moment.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def rest(stop: asyncio.Event, seconds: float) -> None:
    """Wait, or until told to stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
