"""Events of a fleet: made for tests, expected of a quiet site, stored by brokers and databases."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from stepvad.codec import to_plain
from stepvad.events.camera import CameraEvents, CameraProfile, RecordChange
from stepvad.events.record import Record, message
from stepvad.events.rules import ChangeKind, Rules
from stepvad.fleet.broker.bus import Delivery, Published, UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.broker.nats_errors import answers
from stepvad.fleet.event_message import ID, FleetChange, change_of
from stepvad.fleet.events.writer import READER
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.wire import EventMessage
from stepvad.fleet.worker.owned_shard import WORKER
from stepvad.site import demo
from stepvad.site.models import Loaded, Models
from stepvad.stream import Stream
from stepvad.windows.views import Windows
from tests.fleet.fleets import RATE, THRESHOLD, Heard, Player, Script, WorkerProcess, settled
from tests.fleet.servers import Broker, bus_settings
from tests.site.records import record

CAMERA = "north/yard"


def event(number: int = 0, camera: str = CAMERA, **more: Any) -> Record:
    """The start of an event of a fleet."""
    return record(camera, number, **more)


def body(kind: ChangeKind, one: Record, /, *, site: str = "north", **more: Any) -> bytes:
    """A message as a worker writes it."""
    return json.dumps(asdict(message(kind, None, one)) | {"site": site} | more).encode()


def delivery(data: bytes, sequence: int = 1, id: str = "") -> Delivery:
    return Delivery("stepvad.events.1", data, sequence, 0.0, headers={ID: id})


def change(kind: ChangeKind, after: Record, sequence: int = 1, turn: int = 0) -> FleetChange:
    data = body(kind, after, site=after.camera.partition("/")[0])
    found = change_of(delivery(data, sequence, f"{after.id}:{kind}:{turn}"))
    assert found is not None
    return found


def over(one: Record, lasts_s: float = 5.0) -> Record:
    return one.ended("calm", one.start_time + lasts_s)


def worse(one: Record, top_score: float) -> Record:
    return replace(one, top_score=top_score, score=top_score)


def digests(windows: Windows) -> list[str]:
    """Each window's bits, in all views; their digest comes last, so that a line cut off is told."""
    bits = [windows.x[i].tobytes() for i in range(len(windows))]
    for number, view in enumerate(windows.views):
        for row, x in zip(view.rows.tolist(), view.windows.x, strict=True):
            bits[row] += b"%d" % number + x.tobytes()
    return [
        f"{windows.track_id[i]} {windows.frame[i]} {windows.seen[i]} {_sha1(bits[i])}"
        for i in range(len(windows))
    ]


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@dataclass(slots=True)
class Quiet:
    """A run that nothing happened to."""

    changes: list[RecordChange] = field(default_factory=list)
    windows: set[str] = field(default_factory=set)

    def heard(self) -> Heard:
        return Heard(
            [
                EventMessage(site="", kind=kind, before=after, after=after)
                for kind, after in self.changes
            ]
        )


def quiet(
    scripts: Sequence[Script],
    *,
    without: Iterable[tuple[str, int]] = (),
    model: Path = demo.MODEL,
    threshold: float = THRESHOLD,
) -> Quiet:
    """Every camera by itself, frame by frame; some slots may be left out."""
    loaded = Models().load(model)
    gone = set(without)
    run = Quiet()
    for one in scripts:
        name = f"{one.site}/{one.camera}"
        batches = [batch for _, batch in one.messages]
        batches.sort(key=lambda batch: (batch.connection.epoch, batch.seq, batch.lost is not None))
        watcher, epoch = None, -1
        for batch in batches:
            of = batch.connection
            if of.epoch != epoch:
                if watcher is not None:
                    run.changes += watcher.end_open("camera lost")
                epoch = of.epoch
                watcher = _watcher(name, of.rate, loaded, Rules(threshold=threshold), epoch)
                watcher.start_connection(of.wall0)
                stream, seen = Stream(loaded.detector, fps=of.rate), -1
            assert watcher is not None
            for i, slot in enumerate(batch.slots):
                if (name, slot) in gone or slot <= seen:
                    continue
                seen = slot
                windows = stream.push(slot, batch.poses(i))
                run.windows.update(digests(windows))
                scores = loaded.detector.score_windows(windows)
                run.changes += watcher.observe(slot, of.size, batch.poses(i), scores)
        assert watcher is not None
        run.changes += watcher.end_open("camera lost")
    return run


def joined(runs: Iterable[Quiet]) -> Quiet:
    """The quiet runs of some cameras as one."""
    whole = Quiet()
    for one in runs:
        whole.changes += one.changes
        whole.windows |= one.windows
    return whole


def _watcher(name: str, rate: float, loaded: Loaded, rules: Rules, epoch: int) -> CameraEvents:
    profile = CameraProfile(
        camera=name,
        rate=rate,
        rules=rules,
        detector=loaded.detector,
        model_id=loaded.name,
        model_sha256=loaded.sha256,
        zones={},
    )
    return CameraEvents(profile, lambda: epoch)


def assert_same(heard: Heard, expected: Quiet) -> None:
    """The same events, changes and times; scores to 1e-5."""
    wanted = expected.heard()
    ours, theirs = Counter(heard.facts()), Counter(wanted.facts())
    if ours != theirs:
        pytest.fail(f"said more: {[*ours - theirs]}, and less: {[*theirs - ours]}")
    assert np.allclose(heard.scores(), wanted.scores(), rtol=1e-5, atol=1e-5)
    assert set(heard.ids("new")) == set(heard.ids("end"))
    assert len(heard.ids("new")) == len(set(heard.ids("new"))), "an id began twice"
    if not heard.told:
        pytest.fail("nothing happened")


Row = Mapping[str, Any]

_ALL = """
SELECT id, site, camera, label, severity,
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
    return [dict(one) | {"record": json.loads(one["record"])} for one in found]


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
    for kind, event in expected.changes:
        if kind == "end":
            facts = to_plain(event)
            site, _, camera = event.camera.partition("/")
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


NO_ID = "-"


class Acknowledged(NamedTuple):
    """A message that the broker said it stored."""

    time: float
    subject: str
    id: str
    sequence: int
    is_duplicate: bool
    data: bytes


def record_publishing(path: Path, *, bodies: bool = False) -> None:
    """From now on, acknowledgements leave a line each, with what was sent if `bodies`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    publish = NatsBus.publish

    async def recording(
        self: NatsBus,
        subject: str,
        data: bytes,
        *,
        id: str | None = None,
        expect: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Published:
        done = await publish(self, subject, data, id=id, expect=expect, headers=headers)
        kept = base64.b64encode(data).decode() if bodies else ""
        facts = time.time(), subject, id or NO_ID, done.sequence, int(done.is_duplicate), kept
        os.write(file, ("\t".join(map(str, facts)) + "\n").encode())
        return done

    NatsBus.publish = recording  # type: ignore[method-assign]  # as it was, and written down


def acknowledged(paths: Iterable[Path]) -> list[Acknowledged]:
    """What was written down; a last line may be cut by a kill."""
    found = []
    for path in paths:
        for line in path.read_text().split("\n")[:-1] if path.exists() else []:
            at, subject, id, sequence, duplicate, data = line.split("\t")
            facts = float(at), subject, id, int(sequence), duplicate == "1"
            found.append(Acknowledged(*facts, base64.b64decode(data)))
    return found


async def stored_events(bus: NatsBus, name: str = "auditor") -> list[Delivery]:
    """The whole stream of events."""
    consumer = await bus.events(name)
    found: list[Delivery] = []
    while some := await consumer.fetch(500, 1.0):
        found += some
        await consumer.ack(some)
    await consumer.close()
    return sorted({one.sequence: one for one in found}.values(), key=lambda one: one.sequence)


def lost(acknowledged: Iterable[Acknowledged], stored: Iterable[Delivery]) -> list[Acknowledged]:
    """Events that a worker was told are stored, and that are not."""
    ids = {one.sequence: _id(one) for one in stored}
    return [one for one in acknowledged if ids.get(one.sequence) != one.id]


def twice(stored: Iterable[Delivery]) -> list[str]:
    """Ids of events that are stored more than once."""
    return [id for id, n in Counter(map(_id, stored)).items() if id and n > 1]


def of_others(stored: Sequence[Delivery]) -> list[Delivery]:
    """Events of a worker that was not the last to claim their subject, in the stream's order."""
    owners: dict[str, str] = {}
    found = []
    for one in stored:
        told = json.loads(one.data)
        if told["type"] == "claim":
            owners[one.subject] = told["worker"]
        elif (one.headers or {}).get(WORKER) != owners.get(one.subject):
            found.append(one)
    return found


def forgotten(acknowledged: Iterable[Acknowledged]) -> dict[str, list[int]]:
    """Messages that a broker stored anew after it had acknowledged them, by id: it lost them."""
    sequences: dict[str, list[int]] = defaultdict(list)
    for one in acknowledged:
        if not one.is_duplicate and one.sequence not in sequences[one.id]:
            sequences[one.id].append(one.sequence)
    return {id: found for id, found in sequences.items() if len(found) > 1}


def _id(one: Delivery) -> str:
    return (one.headers or {}).get(ID, "")


@dataclass(frozen=True, slots=True)
class Run:
    heard: Heard
    player: Player
    windows: set[str]
    logs: str

    def latencies(self) -> list[float]:
        """From the frame that made an event new to its place in the stream."""
        found = []
        for told, at in zip(self.heard.told, self.heard.at, strict=True):
            if told.kind == "new":
                slot = told.after.frame_seq + round(0.4 * RATE)
                sent = self.player.sent_at.get((told.after.camera, told.after.epoch, slot))
                if sent is not None:
                    found.append(at - sent)
        return found


async def run(
    brokers: Sequence[Broker],
    workers: Sequence[WorkerProcess],
    scripts: Sequence[Script],
    expected: Quiet,
    fault: Callable[[], Awaitable[None]],
    **bus: object,
) -> Run:
    """Play scripts while a fault happens; what came of it."""
    settings = bus_settings(brokers, **bus)
    async with connected(settings, "player") as bus_:
        player = Player(bus_)
        await asyncio.gather(player.play(scripts), fault())
    ended = sum(kind == "end" for kind, _ in expected.changes)
    heard = await settled(settings, ended)
    windows = {
        line
        for one in workers
        if one.windows.exists()
        for line in one.windows.read_text().split("\n")
    }
    logs = "\n".join(one.log.read_text() for one in workers)
    return Run(heard, player, windows - {""}, logs)
