"""Delete expired data: events, poses, explanations, and a store replaced by a restore."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from stepvad.incidents.stored import DAY_S, Deleted
from stepvad.settings.sections import RetentionSettings
from stepvad.site.store.restore import BEFORE


def delete_old(
    connection: sqlite3.Connection, retention: RetentionSettings, time: float
) -> Deleted:
    """Delete ended events, and poses and explanations, that have expired by store time `time`."""
    old = "SELECT id FROM events WHERE stored < ? AND end_time IS NOT NULL"
    events = connection.execute(
        f"DELETE FROM events WHERE id IN ({old})",  # noqa: S608  constant parts
        (time - retention.events_days * DAY_S,),
    ).rowcount
    poses = 0
    for table in ("explanations", "poses"):
        poses = connection.execute(
            f"DELETE FROM {table} WHERE id IN ({old})",  # noqa: S608  one of two tables
            (time - retention.poses_days * DAY_S,),
        ).rowcount
    return Deleted(events=events, poses=poses, kept_open=0)


def forget_replaced(store: Path, retention: RetentionSettings, time: float) -> None:
    """Delete the store replaced by a restore once its newest row would have expired."""
    replaced = store.with_name(store.name + BEFORE)
    days = min(retention.events_days, retention.poses_days)
    with suppress(OSError):
        if replaced.stat().st_mtime < time - days * DAY_S:
            for end in ("-wal", "-shm", ""):
                replaced.with_name(replaced.name + end).unlink(missing_ok=True)
