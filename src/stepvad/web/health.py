"""Whether the stages behind a page make progress."""

from __future__ import annotations

from typing import Protocol

from stepvad.supervision.stages import Health


class HealthSource(Protocol):
    """Knows how the stages of a process are doing."""

    def health(self) -> Health:
        """How they are doing now."""
        ...


class AlwaysHealthy:
    """A process without stages, such as the page of a fleet."""

    def health(self) -> Health:
        """No stage, so none that hangs."""
        return Health()
