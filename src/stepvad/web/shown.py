"""Interfaces of the web page: the settings of a site or fleet, and its event store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from stepvad.accounts.users import Role
from stepvad.incidents.record import Record
from stepvad.incidents.review import Review
from stepvad.incidents.search import EVERY, Search
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

    @property
    def idle_hours(self) -> float:
        """After how long without a request a log-in ends."""
        ...

    @property
    def login_days(self) -> float:
        """After how long a log-in ends at the latest."""
        ...

    @property
    def user_header(self) -> str | None:
        """Header in which a trusted proxy names the user."""
        ...

    @property
    def group_header(self) -> str | None:
        """Header in which it names the groups of the user."""
        ...

    @property
    def judge_groups(self) -> Sequence[str]:
        """Groups whose members may judge."""
        ...

    @property
    def admin_groups(self) -> Sequence[str]:
        """Groups whose members may administer."""
        ...

    @property
    def sso_role(self) -> Role | Literal["none"]:
        """Role of other users of the proxy."""
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
