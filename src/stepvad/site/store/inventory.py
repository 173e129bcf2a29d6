"""Inventory of a site's store."""

from __future__ import annotations

from pathlib import Path

from stepvad.incidents.stored import DRAWINGS, KINDS, Inventory, Kept
from stepvad.intake.place_drawings import PLACES
from stepvad.site.store.database import Database


def take(database: Database) -> Inventory:
    """Count rows, sizes and time ranges by kind."""
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
            kept=(*kept, *_drawings(database.path.parent / PLACES)),
            files={path: path.stat().st_size for path in database.files()},
            cameras=dict(cameras.fetchall()),
        )


def _drawings(directory: Path) -> list[Kept]:
    """The drawings of places beside the store, if there are any."""
    files = [path.stat() for path in directory.glob("*.png")]
    times = [file.st_mtime for file in files]
    if not files:
        return []
    return [
        Kept(
            what=DRAWINGS,
            holds="edges in the picture of a camera when nobody was in view",
            count=len(files),
            first=min(times),
            last=max(times),
            bytes=sum(file.st_size for file in files),
        )
    ]
