"""Cancel tasks reliably, and work or sleep until a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

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
