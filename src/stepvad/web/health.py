"""Whether the stages behind a page make progress."""

from __future__ import annotations

from typing import Protocol

from stepvad.supervision.stages import Health


class HealthSource(Protocol):
    """Provides the health of a process's stages."""

    def health(self) -> Health:
        """Current health of the stages."""
        ...


class AlwaysHealthy:
    """A process without stages, such as the page of a fleet."""

    def health(self) -> Health:
        """Always healthy, since there are no stages."""
        return Health()
