"""`stepvad fleet events` that hangs at its first fetch, in that task or with its whole loop.

python -m tests.fleet.hanging_writer FLEET.toml HUNG_S task|loop
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import NoReturn

from stepvad.cli import main
from stepvad.fleet.broker import consumers
from stepvad.fleet.events import writer


def hang_at_fetch(where: str) -> None:
    """From now on, no fetch returns."""

    async def hanging(*_: object) -> NoReturn:
        if where == "loop":
            threading.Event().wait()
        while True:
            await asyncio.sleep(3600)

    consumers.EventsConsumer.fetch = hanging  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    settings, hung_s, where = sys.argv[1:]
    writer.HUNG_S = float(hung_s)
    hang_at_fetch(where)
    sys.argv = ["stepvad", "fleet", "events", settings]
    main()
