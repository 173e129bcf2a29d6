"""SQL conditions on the events of a site."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stepvad.incidents.search import EVERY, Search

_TEXT = (
    "lower(coalesce(json_extract(body, '$.why'), '') || ' ' || label || ' ' || camera || ' ' || "
    "coalesce(json_extract(body, '$.zones'), ''))"
)
Conditions = tuple[list[str], list[Any]]


def where(
    *,
    camera: str | None,
    before: float | None,
    starts_after: float | None = None,
    ends_after: float | None = None,
    ids: Sequence[str] | None = None,
    search: Search = EVERY,
) -> Conditions:
    """Conditions that all have to hold, and their values."""
    parts = [
        ("camera = ?", camera),
        ("start_time < ?", before),
        ("start_time >= ?", starts_after),
        ("coalesce(end_time, 9e99) >= ?", ends_after),
        ("id IN (SELECT value FROM json_each(?))", None if ids is None else json.dumps([*ids])),
        *_found_by(search),
    ]
    given = [(part, value) for part, value in parts if value is not None]
    return ["1", *(part for part, _ in given)], [value for _, value in given]


def _found_by(search: Search) -> list[tuple[str, Any]]:
    terms = search.terms
    return [
        ("(reviewed_at IS NOT NULL) = ?", search.is_seen),
        ("marked = ?", search.mark),
        ("EXISTS (SELECT 1 FROM json_each(body, '$.zones') WHERE value = ?)", search.zone),
        ("json_extract(body, '$.top_score') >= ?", search.min_score),
        (
            "json_extract(body, '$.top_score') >= ? * json_extract(body, '$.threshold')",
            search.min_times,
        ),
        (
            f"(SELECT min(instr({_TEXT}, value)) FROM json_each(?)) > 0",  # noqa: S608  constant
            None if terms is None else json.dumps(terms),
        ),
    ]
