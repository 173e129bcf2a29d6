"""Interfaces of the web page: the settings of a site or fleet, and its event store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stepvad.incidents.record import Record
from stepvad.incidents.review import Review
from stepvad.incidents.search import EVERY, Search
from stepvad.incidents.stored import Deleted, Inventory
from stepvad.settings.web import Web


class Deployment(Protocol):
    """The subject of a page: a site or a fleet."""

    @property
    def name(self) -> str:
        """Name of the site or fleet."""
        ...

    @property
    def web(self) -> Web:
        """The settings of its page."""
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
        search: Search = EVERY,
    ) -> list[Record]:
        """Events, the newest first."""
        ...

    def to_review(self) -> int:
        """Number of events that nobody has seen, 1000 at most."""
        ...

    def reviews(self, ids: Sequence[str] | None = None) -> Mapping[str, Review]:
        """What was said of events that somebody has seen; of all, or of those with these ids."""
        ...

    def see(self, id: str, now: float, by: str = "") -> None:
        """Note that somebody has seen an event."""
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
