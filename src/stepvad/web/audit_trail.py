"""Writes the audit log of a page: once per look, always for a change."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from stepvad.accounts.accounts import Accounts
from stepvad.errors import StepvadError
from stepvad.supervision.logs import Repeats, repeated
from stepvad.web.identity import Background

logger = logging.getLogger(__name__)

LOOK_S = 600.0
"""A look that is repeated before this time has passed is the same look."""
MOST_LOOKS = 4096


class AuditTrail:
    """Appends to the audit log; a log that cannot be written stops nobody from working."""

    def __init__(
        self,
        accounts: Accounts,
        background: Background,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accounts, self._background, self._clock = accounts, background, clock
        self._looks: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._lines = Repeats(clock=clock)

    async def add(self, user: str, action: str, subject: str = "", address: str = "") -> None:
        """Append a line."""
        try:
            await self._background.run(self._accounts.audit.add, user, action, subject, address)
        except StepvadError as error:
            held = self._lines.admit(str(error))
            if held is not None:
                logger.error("the audit log misses a line: %s%s", error, repeated(held))

    async def look(self, user: str, action: str, subject: str = "", address: str = "") -> None:
        """Append a line, unless it is the look that is still going on."""
        look, now = (user, action, subject, address), self._clock()
        before = self._looks.pop(look, None)
        self._looks[look] = now
        if len(self._looks) > MOST_LOOKS:
            self._looks.popitem(last=False)
        if before is None or now - before >= LOOK_S:
            await self.add(*look)
