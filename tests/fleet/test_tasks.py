from __future__ import annotations

import asyncio
from contextlib import suppress

from stepvad.fleet import tasks


def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    async def stubborn() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def run() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(stubborn())
        await asyncio.sleep(0)
        await asyncio.wait_for(tasks.end(task), 10)
        return task

    assert asyncio.run(run()).cancelled()


def test_what_failed_is_over() -> None:
    async def fails() -> None:
        raise ValueError

    async def run() -> None:
        task = asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(0)
        await tasks.end(task)

    asyncio.run(run())
