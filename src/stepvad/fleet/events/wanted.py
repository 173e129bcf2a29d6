"""Filters for the events of a fleet, as SQL conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepvad.events.record import EVERY, Search

_HAS_ALL = """
(SELECT bool_and(position(term IN lower(concat_ws(' ',
    record ->> 'why', label, site || '/' || camera, record ->> 'zones'))) > 0)
FROM unnest(${}::text[]) AS term)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Filter for events; all given conditions must hold."""

    site: str | None = None
    camera: str | None = None
    """`site/camera`."""
    since: float | None = None
    """Starts at this time or later."""
    until: float | None = None
    """Starts before this time."""
    ends_after: float | None = None
    label: str | None = None
    open: bool | None = None
    ids: Sequence[str] | None = None
    search: Search = EVERY

    @staticmethod
    def parts(camera: str | None) -> tuple[str | None, str | None]:
        """Split a camera filter into site and camera: `site/` selects all cameras of a site."""
        if camera is not None and camera.endswith("/"):
            return camera[:-1], None
        return None, camera

    def where(self) -> tuple[str, list[Any]]:
        """The SQL condition and its parameters."""
        site, _, camera = (self.camera or "").partition("/")
        named = self.camera is not None
        parts: list[tuple[str, Any]] = [
            ("site = ${}", self.site),
            ("site = ${}", site if named else None),
            ("camera = ${}", camera if named else None),
            ("start_time >= to_timestamp(${})", self.since),
            ("start_time < to_timestamp(${})", self.until),
            ("coalesce(end_time, 'infinity') >= to_timestamp(${})", self.ends_after),
            ("label = ${}", self.label),
            ("(end_time IS NULL) = ${}", self.open),
            ("id = ANY(${}::text[])", None if self.ids is None else [*self.ids]),
            *_found_by(self.search),
        ]
        given = [(part, value) for part, value in parts if value is not None]
        words = [part.format(number) for number, (part, _) in enumerate(given, start=1)]
        return " AND ".join(["true", *words]), [value for _, value in given]


def _found_by(search: Search) -> list[tuple[str, Any]]:
    """The conditions of a search, and their parameters."""
    return [
        ("(reviewed IS NOT NULL) = ${}", search.is_seen),
        ("mark = ${}", search.mark),
        ("record -> 'zones' ? ${}", search.zone),
        ("top_score >= ${}", search.min_score),
        ("top_score >= ${}::float8 * (record ->> 'threshold')::float8", search.min_times),
        (_HAS_ALL, search.terms),
    ]
