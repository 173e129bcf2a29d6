"""Inventory of a site's store."""

from __future__ import annotations

from stepvad.incidents.stored import KINDS, Inventory, Kept
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
            kept=tuple(kept),
            files={path: path.stat().st_size for path in database.files()},
            cameras=dict(cameras.fetchall()),
        )
