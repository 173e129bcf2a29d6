"""What a page shows: events from wherever they are kept, of a place that has a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stepvad.incidents.record import Record
from stepvad.incidents.stored import Deleted, Inventory


class Address(Protocol):
    """Where a page listens, and how browsers reach it."""

    @property
    def host(self) -> str:
        """Name or address."""
        ...

    @property
    def public_url(self) -> str | None:
        """The address that browsers use, if it is that of a proxy."""
        ...

    @property
    def trusted_proxies(self) -> Sequence[str]:
        """Addresses and networks whose X-Forwarded headers are believed."""
        ...


class Place(Protocol):
    """What a page is about: a site, or a fleet."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def web(self) -> Address:
        """Where its page is."""
        ...


class Shown(Protocol):
    """Events that are kept; of a fleet, cameras are `site/camera`, and `site/` is all of a site."""

    def event(self, id: str) -> Record | None:
        """The event with this id."""
        ...

    def events(
        self,
        *,
        camera: str | None = None,
        since: float | None = None,
        until: float | None = None,
        open: bool | None = None,
        limit: int | None = 100,
        before_id: str | None = None,
    ) -> list[Record]:
        """Events, the newest first."""
        ...

    def marked(self) -> Mapping[str, float]:
        """The ids of events that were normal."""
        ...

    def delete(
        self,
        *,
        camera: str | None = None,
        before: float | None = None,
        after: float | None = None,
        ids: Sequence[str] | None = None,
    ) -> Deleted:
        """Delete events that are over."""
        ...

    def stored(self) -> Inventory:
        """What is stored, how much, from when to when."""
        ...
