"""What a site stores, told to whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stepvad.live.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One kind of thing that is stored."""

    what: str
    holds: str
    """What is in it, in words."""
    count: int
    first: float | None
    """Start of the oldest event that it belongs to, in unix seconds."""
    last: float | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that is stored, and the files that it is in."""

    kept: tuple[Kept, ...]
    files: dict[Path, int]
    """With their sizes in bytes."""
    cameras: dict[str, int]
    """Events of each camera."""


_EVENTS = "camera, times, scores, track numbers, a box, names of zones, words"
KINDS = {
    "events": _EVENTS,
    "poses": "joint coordinates of the people in an event, frame by frame",
    "explanations": "joint coordinates of the windows explained, what each joint contributes",
    "outbox": f"messages that wait for a sink: {_EVENTS}",
    "dead_letters": f"messages that a sink refused: {_EVENTS}",
}
"""The tables, and what is in them."""


def take(database: Database) -> Inventory:
    """Count everything."""
    kept = []
    with database.read() as connection:
        for table, holds in KINDS.items():
            key = "event_id" if table in ("outbox", "dead_letters") else "id"
            count, first, last, size = connection.execute(
                "SELECT count(*), min(e.start_time), max(e.start_time), "  # noqa: S608  tables of KINDS
                "coalesce(sum(length(CAST(t.body AS BLOB))), 0) "
                f"FROM {table} t JOIN events e ON e.id = t.{key}"
            ).fetchone()
            what = table.replace("_", " ")
            kept.append(
                Kept(what=what, holds=holds, count=count, first=first, last=last, bytes=size)
            )
        cameras = connection.execute("SELECT camera, count(*) FROM events GROUP BY camera")
        return Inventory(
            kept=tuple(kept),
            files={path: path.stat().st_size for path in database.files()},
            cameras=dict(cameras.fetchall()),
        )
