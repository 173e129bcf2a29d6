"""The end of tasks that wait for a broker."""

from __future__ import annotations

import asyncio
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
