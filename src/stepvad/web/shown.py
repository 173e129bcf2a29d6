"""Interfaces of the web page: the settings of a site or fleet, and its event store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stepvad.incidents.record import Record
from stepvad.incidents.stored import Deleted, Inventory


class Address(Protocol):
    """Listening address of a page and its public URL."""

    @property
    def host(self) -> str:
        """Host name or address to listen on."""
        ...

    @property
    def public_url(self) -> str | None:
        """The URL that browsers use, if a proxy is in front."""
        ...

    @property
    def trusted_proxies(self) -> Sequence[str]:
        """Addresses and networks whose X-Forwarded headers are trusted."""
        ...


class Deployment(Protocol):
    """The subject of a page: a site or a fleet."""

    @property
    def name(self) -> str:
        """Name of the site or fleet."""
        ...

    @property
    def web(self) -> Address:
        """Address of its page."""
        ...


class Shown(Protocol):
    """Stored events; in a fleet, cameras are `site/camera`, and `site/` matches a whole site."""

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
        """The ids of events marked as normal, with the time of marking."""
        ...

    def delete(
        self,
        *,
        camera: str | None = None,
        before: float | None = None,
        after: float | None = None,
        ids: Sequence[str] | None = None,
    ) -> Deleted:
        """Delete events that have ended."""
        ...

    def stored(self) -> Inventory:
        """Inventory of the store: counts, sizes and time ranges."""
        ...
