"""What is in PostgreSQL after a run, beside what a quiet run would have left there."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stepvad.codec import to_plain
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.broker.nats_errors import answers
from stepvad.fleet.events.writer import READER
from stepvad.fleet.settings import BusSettings
from tests.fleet.quiet import Quiet

Row = Mapping[str, Any]

_ALL = """
SELECT tenant, id, site, camera, label, severity,
    extract(epoch FROM start_time)::float8 AS start_time,
    extract(epoch FROM end_time)::float8 AS end_time, top_score, record, rank
FROM stepvad.events ORDER BY id
"""
LATEST = 2
"""Rank of an event that is over."""


async def nothing_waits(settings: BusSettings, limit_s: float) -> bool:
    """Wait until writers have stored and acknowledged all events there are."""
    deadline = time.monotonic() + limit_s
    quiet = 0
    async with connected(settings, "looks") as bus:
        while time.monotonic() < deadline and quiet < 3:
            quiet = quiet + 1 if await _waiting(bus) == 0 else 0
            await asyncio.sleep(0.5)
    return quiet >= 3


async def _waiting(bus: NatsBus) -> int | None:
    """Events that were not handed out, or not acknowledged; None if nobody answers."""
    try:
        with answers():
            facts = await bus.client.jetstream().consumer_info("EVENTS", READER)
    except UnavailableError:
        return None
    return (facts.num_pending or 0) + (facts.num_ack_pending or 0)


async def stored(dsn: str) -> list[Row]:
    """The rows of the events."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetch(_ALL)
    finally:
        await connection.close()
    return [_as_said(dict(one)) for one in found]


def _as_said(row: dict[str, Any]) -> Row:
    """A row with the id that its worker gave the event: the database puts the tenant before it."""
    tenant, record = row.pop("tenant"), json.loads(row["record"])
    start = f"{tenant}." if tenant else ""
    own = {"id": row["id"].removeprefix(start), "record": record}
    record["id"] = record["id"].removeprefix(start)
    return row | own


async def last_change(dsn: str) -> float:
    """When a row was written last, in Unix seconds."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval(
            "SELECT extract(epoch FROM max(changed)) FROM stepvad.events"
        )
    finally:
        await connection.close()
    return float(found)


def wanted(expected: Quiet) -> list[Row]:
    """The rows that a quiet run leaves: every event as it was at its end."""
    found: list[Row] = []
    for kind, record in expected.changes:
        if kind == "end":
            facts = to_plain(record)
            site, _, camera = record.camera.partition("/")
            own = {"site": site, "camera": camera, "record": facts, "rank": LATEST}
            names = ("id", "label", "severity", "start_time", "end_time", "top_score")
            found.append({name: facts[name] for name in names} | own)
    return found


def compared(rows: Sequence[Row], expected: Sequence[Row]) -> dict[str, int]:
    """How many rows are not as they should be, by what is wrong."""
    theirs = {row["id"]: row for row in expected}
    beginnings = Counter(_beginning(row) for row in rows)
    return {
        "rows missing": len(set(theirs) - {row["id"] for row in rows}),
        "rows that nobody expected": sum(row["id"] not in theirs for row in rows),
        "duplicate rows": sum(n - 1 for n in beginnings.values()),
        "rows not ended": sum(row["end_time"] is None for row in rows),
        "rows that differ": sum(
            row["id"] in theirs and bool(differences(row, theirs[row["id"]])) for row in rows
        ),
    }


def differences(row: Row, other: Row) -> list[str]:
    """The columns, and the fields of the record, that are not the same; numbers to 1e-5."""
    names = [name for name in {*row, *other} if name != "record"]
    found = [name for name in names if not _same(row.get(name), other.get(name))]
    ours, theirs = row["record"], other["record"]
    return found + [
        f"record.{name}"
        for name in {*ours, *theirs}
        if not _same(ours.get(name, "none"), theirs.get(name, "none"))
    ]


def _beginning(row: Row) -> tuple[object, ...]:
    """Who began an event, where and when: the same in two rows only if they are one event."""
    record = row["record"]
    return row["site"], row["camera"], record["epoch"], record["frame_seq"], *record["tracks"][:1]


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(ours, float | int) and isinstance(theirs, float | int):
        return math.isclose(ours, theirs, rel_tol=1e-13 if ours > 1e6 else 1e-5, abs_tol=1e-5)
    return ours == theirs
