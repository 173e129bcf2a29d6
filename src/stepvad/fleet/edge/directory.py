"""Where an edge sends its cameras: asked of the broker's directory."""

from __future__ import annotations

import asyncio
import logging

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import Bus
from stepvad.fleet.places import Partition, Place
from stepvad.fleet.subjects import Subjects
from stepvad.retries import Backoff

logger = logging.getLogger(__name__)

LONGEST_S = 5.0
FIRST_S = 0.2


class EdgeDirectory:
    """The stream of a site's tenant."""

    def __init__(self, site: str, tenant: str, subjects: Subjects) -> None:
        self._site, self._tenant = site, tenant
        self._partition = Partition(tenant) if tenant else subjects.first
        self.known = asyncio.Event()
        """Set once there is a place to send to."""
        if not tenant:
            self.known.set()

    def place(self, camera: str) -> Place:
        """Where frames of a camera belong, once that is known."""
        return self._partition.place_of(f"{self._site}/{camera}")

    async def find(self, bus: Bus) -> None:
        """Ask until the broker knows the tenant."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while not self.known.is_set():
            try:
                entry = await bus.tenant(self._tenant)
            except StepvadError as error:
                if not backoff.failures:
                    logger.warning("tenant %s: %s", self._tenant, error)
                entry = None
            else:
                if entry is None:
                    logger.warning(
                        "tenant %s: unknown to the fleet; run stepvad fleet setup", self._tenant
                    )
            if entry is None:
                await backoff.sleep()
            else:
                self._partition = entry.partition
                self.known.set()
