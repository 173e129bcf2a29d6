"""Where an edge sends its cameras: asked of the broker's directory, again and again."""

from __future__ import annotations

import asyncio
import logging

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import Bus
from stepvad.fleet.places import Partition, Place, place_of
from stepvad.fleet.subjects import Subjects
from stepvad.retries import Backoff

logger = logging.getLogger(__name__)

ASK_S = 5.0
"""Between two questions; a partition that was added is used this much later at most."""
FIRST_S = 0.2


class EdgeDirectory:
    """The partitions of a site's tenant, as last heard."""

    def __init__(self, site: str, tenant: str, subjects: Subjects) -> None:
        self._site, self._tenant = site, tenant
        self._partitions: tuple[Partition, ...] = () if tenant else (subjects.first,)
        self.known = asyncio.Event()
        """Set once there is a place to send to."""
        if self._partitions:
            self.known.set()

    def place(self, camera: str) -> Place:
        """Where frames of a camera belong now."""
        return place_of(f"{self._site}/{camera}", self._partitions)

    async def follow(self, bus: Bus) -> None:
        """Keep asking."""
        backoff = Backoff(FIRST_S, ASK_S)
        while True:
            try:
                await self._ask(bus)
            except StepvadError as error:
                if not self.known.is_set() and not backoff.failures:
                    logger.warning("tenant %s: %s", self._tenant, error)
                await backoff.sleep()
            else:
                await asyncio.sleep(ASK_S if self.known.is_set() else backoff.next_s())

    async def _ask(self, bus: Bus) -> None:
        entry = await bus.tenant(self._tenant)
        if entry is None:
            if not self.known.is_set():
                logger.warning(
                    "tenant %s: unknown to the fleet; run stepvad fleet setup", self._tenant
                )
            return
        if entry.partitions != self._partitions and self.known.is_set():
            logger.info("partitions of the fleet: %d", len(entry.partitions))
        self._partitions = entry.partitions
        self.known.set()
