from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest
import yaml

from stepvad.codec import decode, encode
from stepvad.errors import ConfigError
from stepvad.events.record import Record
from stepvad.fleet import database, streams
from stepvad.fleet.database import NoDatabaseError
from stepvad.fleet.outbox import EventMark, EventMessage, SiteStart
from tests.fleet.servers import PostgresServer, postgres_server
from tests.site.records import record

ROOT = Path(__file__).parents[2]
NOW = time.time()
NORTH = "events.north"
Database: TypeAlias = "asyncpg.Connection[Any]"
STORED, KNOWN, EXPIRED, REFUSED = (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)
pytestmark = pytest.mark.anyio


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    """A database that was set up."""
    await database.set_up(dsn, 90)
    async with database.connected(dsn) as made:
        yield made


@pytest.fixture
async def other(db: Database, dsn: str) -> AsyncIterator[Database]:
    """Another connection to it."""
    async with database.connected(dsn) as made:
        yield made


def event(id: str = "e", version: int = 1, **changes: Any) -> Record:
    return record(id=id, version=version, **({"start_time": NOW} | changes))


def body(told: Record, site: str = "north") -> str:
    kind = "new" if told.is_open else "end"
    return encode(EventMessage(type=kind, site=site, event=told)).decode()  # type: ignore[arg-type]


def mark(id: str, what: Any, at: float, start_time: float = NOW, by: str = "ann") -> str:
    told = EventMark(site="north", id=id, mark=what, at=at, by=by, start_time=start_time)
    return encode(told).decode()


async def put(db: Database, *bodies: str, subject: str = NORTH) -> tuple[int, ...]:
    """Put messages; how many were stored, known, expired and refused."""
    query = "SELECT * FROM stepvad.put($1::text[], $2::text[])"
    return tuple(await db.fetchrow(query, [subject] * len(bodies), [*bodies]))


async def stored(db: Database, id: str = "e") -> Any:
    return await db.fetchrow("SELECT * FROM stepvad.events WHERE id = $1", id)


async def retain(db: Database) -> tuple[int, ...]:
    """Make and drop partitions; how many."""
    return tuple(await db.fetchrow("SELECT * FROM stepvad.retain()"))


async def where(db: Database) -> dict[str, int]:
    """Events in each partition."""
    rows = await db.fetch(
        "SELECT tableoid::regclass::text AS name, count(*) AS n FROM stepvad.events GROUP BY 1"
    )
    return {row["name"].removeprefix("stepvad."): row["n"] for row in rows}


async def tables(db: Database) -> list[str]:
    rows = await db.fetch("SELECT relid::text FROM pg_partition_tree('stepvad.events') ORDER BY 1")
    return [row[0] for row in rows]


def partition(at: float) -> str:
    return time.strftime("events_%Y_%m", time.gmtime(at))


def month(later: int) -> float:
    """The middle of this month, or of a later one."""
    now = time.gmtime(NOW)
    years, months = divmod(now.tm_mon - 1 + later, 12)
    return time.mktime(time.strptime(f"{now.tm_year + years}-{months + 1}-15", "%Y-%m-%d"))


async def test_a_change_is_stored_once_however_often_it_comes(db: Database) -> None:
    one = body(event(why="fell"))
    assert await put(db, one) == STORED
    assert await put(db, one) == KNOWN
    assert await put(db, one, one) == (0, 2, 0, 0)
    row = await stored(db)
    assert (row["site"], row["camera"], row["label"]) == ("north", "yard", "anomaly")
    assert row["start_time"].timestamp() == pytest.approx(NOW, abs=1e-5)
    assert json.loads(row["record"])["why"] == "fell"
    assert await put(db, body(event("large", why="x" * 198_000))) == STORED


async def test_the_newest_change_wins_in_any_order(db: Database) -> None:
    ended = event(version=2).ended("calm", NOW + 9)  # a site that was restored counts from less
    versions = [event(), event(version=2), event(version=3), ended]
    for n, order in enumerate(itertools.permutations(versions)):
        bodies = [body(record) for record in order]
        renamed = [one.replace('"id":"e"', f'"id":"e{n}"') for one in bodies]
        cut = random.randrange(5)  # in two transactions
        await put(db, *renamed[:cut])
        await put(db, *renamed[cut:])
        row = await stored(db, f"e{n}")
        assert (row["end_time"] is not None, row["version"]) == (True, 2), order
    assert await db.fetchval("SELECT count(*) FROM stepvad.events") == 24
    # words that a site finds after the end
    words = body(event("e0", version=3, why="ran").ended("calm", NOW + 9))
    assert await put(db, words) == STORED
    assert json.loads((await stored(db, "e0"))["record"])["why"] == "ran"


def start(version: int, *going_on: str, at: float = NOW) -> str:
    told = SiteStart(site="north", id="s", version=version, start_time=at, open=going_on)
    return encode(told).decode()


async def test_what_a_site_has_forgotten_at_its_start_is_over(db: Database) -> None:
    far = NOW + 5 * 86_400  # by a clock that was wrong
    told = [event("lost", 5), event("goes-on", 6), event("ahead", 90, start_time=far)]
    await put(db, *map(body, told), start(9, "goes-on"), body(event("later", 10)))
    rows = {row["id"]: row for row in await db.fetch("SELECT * FROM stepvad.events")}
    assert {id for id, row in rows.items() if row["end_time"] is None} == {"goes-on", "later"}
    lost = decode(Record, rows["lost"]["record"], "event")
    assert (lost.ended_by, lost.version) == ("interrupted", 5)
    assert decode(Record, rows["ahead"]["record"], "event").end_time == pytest.approx(far)
    # the site knew more after all: its own end counts
    await put(db, body(event("lost", 7).ended("calm", NOW + 2)))
    assert decode(Record, (await stored(db, "lost"))["record"], "event").ended_by == "calm"
    # other sites are not meant
    await put(db, body(event("theirs", 1), "south"), subject="events.south")
    await put(db, start(99))
    assert (await stored(db, "theirs"))["end_time"] is None


async def test_sites_have_the_same_ids_without_meeting(db: Database) -> None:
    assert await put(db, body(event())) == STORED
    assert await put(db, body(event(), "south"), subject="events.south") == STORED
    assert await put(db, body(event(version=9), "south")) == REFUSED  # on the other's subject
    for subject in ("events.", "events.a.b", "events.a b", "status.north", "", "*"):
        assert await put(db, body(event(version=9)), subject=subject) == REFUSED
    rows = await db.fetch("SELECT site, version FROM stepvad.events ORDER BY site")
    assert [tuple(row) for row in rows] == [("north", 1), ("south", 1)]


PLAIN = body(event())
NO_MESSAGES = [
    ("nonsense", "json"),
    ("", "json"),
    ("[]", "another site"),
    ("null", "another site"),
    (body(event(), "south"), "site north"),
    (PLAIN.replace('"anomaly"', '"a\\u0000"'), "Unicode"),
    (PLAIN.replace('"anomaly"', '"\\ud800"'), "json"),
    ("[" * 190_000, "stack depth"),
    (PLAIN.replace(f"{NOW}", "1e999"), '"1000'),
    (body(event(start_time=1e300)), "out of range"),
    (body(event(start_time=-1.0)), "1970 to 9999"),
    (body(event().ended("calm", 1e12)), "1970 to 9999"),
    (PLAIN.replace('"version":1', '"version":1e30'), "out of range"),
    (PLAIN.replace('"version":1', '"version":1.5'), "bigint"),
    (body(event("x" * 301)), "300 characters"),
    (PLAIN.replace('"schema":1}', '"schema":2}'), "upgrade the centre"),
    (PLAIN.replace('"type":"new"', '"type":"old"'), "all its fields"),
    ('{"type":"new","site":"north","event":5,"schema":1}', "all its fields"),
    (PLAIN.replace('"label"', '"lable"'), "all its fields"),
    (PLAIN.replace('"score":4.0', '"score":"4"'), "all its fields"),
    (PLAIN.replace('"end_time":null', '"end_time":5'), "all its fields"),
    (mark("e", "wrong", 1.0), "all its fields"),
    (mark("e", "right", 1.0).replace('"at"', '"ta"'), "all its fields"),
]


async def test_what_is_no_message_is_kept_apart_and_stops_nothing(db: Database) -> None:
    for n, (bad, reason) in enumerate(NO_MESSAGES):
        good = body(event(f"a{n}")), bad, body(event(f"b{n}"))
        assert await put(db, *good) == (2, 0, 0, 1), bad[:200]
        (kept,) = await db.fetch("DELETE FROM stepvad.refused RETURNING *")
        assert (kept["site"], kept["body"]) == ("north", bad)
        assert reason in kept["reason"]


@pytest.mark.slow
async def test_the_latest_refused_messages_of_each_site_are_kept(db: Database) -> None:
    await put(db, "first of the south", subject="events.south")
    for n in range(3):
        await put(db, *(f"{n} {m}" for m in range(500)))
    query = "SELECT body FROM stepvad.refused WHERE site = $1 ORDER BY number"
    found = await db.fetch(query, "north")
    assert (len(found), found[0][0], found[-1][0]) == (1000, "1 0", "2 499")
    assert len(await db.fetch(query, "south")) == 1


async def test_the_later_mark_wins_also_if_it_comes_before_its_event(db: Database) -> None:
    assert await put(db, mark("e", "normal", 100.0)) == STORED
    assert await put(db, mark("e", "right", 99.0)) == KNOWN
    assert (await stored(db))["record"] is None
    assert await put(db, body(event())) == STORED
    row = await stored(db)
    assert (row["mark"], row["reviewed_by"], row["camera"]) == ("normal", "ann", "yard")
    assert await put(db, mark("e", None, 101.0, by="bob")) == STORED
    row = await stored(db)
    assert (row["mark"], row["reviewed_by"]) == (None, "bob")
    assert await put(db, body(event("f")), mark("f", "right", 5.0)) == (2, 0, 0, 0)
    assert (await stored(db, "f"))["mark"] == "right"
    # a clock that is ahead does not outlast all later marks
    await put(db, mark("e", "normal", 4e9))
    judged = "SELECT stepvad.judge('north', 'e', 'right', 'bob', clock_timestamp())"
    assert await db.fetchval(judged)
    assert (await stored(db))["mark"] == "right"


async def test_the_latest_judgement_and_the_first_look_count(db: Database) -> None:
    await put(db, body(event()), body(event("f")))
    judge = "SELECT stepvad.judge('north', $1, $2, 'bob', to_timestamp($3))"
    assert await db.fetchval(judge, "e", "right", 100.0)
    assert not await db.fetchval(judge, "e", "normal", 99.0)
    assert not await db.fetchval(judge, "unknown", "normal", 100.0)
    assert await put(db, mark("e", "normal", 99.5)) == KNOWN
    row = await stored(db)
    assert (row["mark"], row["reviewed"].timestamp()) == ("right", 100.0)
    for who in ("ann", "bob"):
        see = "SELECT stepvad.see('north', 'f', $1, to_timestamp(200))"
        assert await db.fetchval(see, who)
    row = await stored(db, "f")
    assert (row["reviewed_by"], row["marked"]) == ("ann", None)
    assert await put(db, mark("f", "right", 100.0, by="cid")) == STORED  # it outdoes a look
    assert (await stored(db, "f"))["reviewed_by"] == "cid"


async def test_an_erased_event_stays_erased(db: Database) -> None:
    ended = event(version=2, why="fell").ended("calm", NOW + 1)
    await put(db, body(ended), body(event("open")), mark("e", "right", 5.0), "spoilt of e")
    erase = "SELECT stepvad.erase('north', ARRAY['e', 'open', 'unknown'], false)"
    assert [await db.fetchval(erase) for _ in range(2)] == [1, 0]
    assert await put(db, body(event(version=99).ended("calm", NOW + 5))) == KNOWN
    assert await put(db, mark("e", "normal", 500.0)) == KNOWN
    row = await stored(db)
    assert row["erased"]
    assert [row[name] for name in ("record", "mark", "reviewed", "explanation")] == [None] * 4
    assert (row["camera"], row["label"], row["reviewed_by"]) == ("", "", "")
    assert await db.fetchval("SELECT count(*) FROM stepvad.refused") == 0
    assert await db.fetchval(erase.replace("false", "true")) == 1  # the open one


async def test_a_wrong_clock_makes_no_tables_and_its_events_go_after_the_retention(
    db: Database,
) -> None:
    before = await tables(db)
    await put(db, body(event("past", start_time=5.0)), body(event("far", start_time=4.07e9)), "x")
    await retain(db)
    assert await where(db) == {"events_other": 2}
    assert await tables(db) == before
    old = "UPDATE stepvad.{} SET {} = now() - interval '91 days' WHERE {}"
    await db.execute(old.format("events", "changed", "id = 'far'"))
    await db.execute(old.format("refused", "at", "true"))
    await retain(db)
    assert [row[0] for row in await db.fetch("SELECT id FROM stepvad.events")] == ["past"]
    assert await db.fetchval("SELECT count(*) FROM stepvad.refused") == 0


async def test_this_month_and_the_next_two_have_partitions(db: Database) -> None:
    own = [f"stepvad.{partition(month(n))}" for n in range(3)]
    assert await tables(db) == sorted([*own, "stepvad.events", "stepvad.events_other"])
    await put(db, *(body(event(f"{n}", start_time=month(n))) for n in range(4)))
    rows = await where(db)
    assert rows == {partition(month(n)): 1 for n in range(3)} | {"events_other": 1}


async def test_events_move_when_their_month_gets_a_partition_and_go_with_it(db: Database) -> None:
    last = month(-1)
    ended = event("b", 2, start_time=last).ended("calm", last + 1)
    await put(db, body(event("a", start_time=last)), body(ended), body(event()))
    assert await where(db) == {partition(NOW): 1, "events_other": 2}
    assert await retain(db) == (1, 0)
    assert await where(db) == {partition(NOW): 1, partition(last): 2}
    assert await put(db, body(event("b", 3, start_time=last))) == KNOWN  # ended already
    assert await put(db, body(event("a", 2, start_time=last))) == STORED
    assert await retain(db) == (0, 0)
    if time.gmtime(NOW).tm_mday == 1:
        pytest.skip("last month is not over for long enough")
    # a dropped month is remembered and not made again
    await db.execute("UPDATE stepvad.about SET retention_days = 0.001")
    assert await retain(db) == (0, 1)
    late = body(event("late", start_time=last)), mark("late", "right", 5.0, start_time=last)
    assert await put(db, *late) == (0, 0, 2, 0)
    await db.execute("UPDATE stepvad.about SET retention_days = 90")
    assert await retain(db) == (0, 0)
    assert await put(db, late[0]) == EXPIRED
    assert await where(db) == {partition(NOW): 1}


async def test_two_writers_meet_at_a_new_month(db: Database, other: Database) -> None:
    last = month(-1)
    bodies = [body(event(f"{n}", start_time=last)) for n in range(50)]

    async def write(db: Database, seed: int) -> None:
        own = random.Random(seed).sample(bodies, len(bodies))
        for n in range(0, 50, 5):
            await put(db, *own[n : n + 5])
            if n in (10, 40):
                await retain(db)

    await asyncio.gather(write(db, 0), write(other, 1))
    await retain(db)
    assert await where(db) == {partition(last): 50}


@pytest.mark.slow
async def test_a_reader_who_holds_the_tables_delays_months_and_no_events(
    db: Database, other: Database
) -> None:
    await put(db, body(event("a", start_time=month(-1))))
    await other.execute("SET idle_in_transaction_session_timeout = 0")
    async with other.transaction():
        await other.fetch("SELECT count(*) FROM stepvad.events")
        with pytest.raises(NoDatabaseError, match="lock timeout"), database.translated():
            await db.execute("SET lock_timeout = '100ms'; SELECT stepvad.retain()")
        assert await put(db, body(event())) == STORED
    assert await retain(db) == (1, 0)


async def test_a_database_is_set_up_once(dsn: str) -> None:
    assert await database.set_up(dsn, 90, check=True) == ["database: tables of version 1"]
    done = await asyncio.gather(*(database.set_up(dsn, 90) for _ in range(4)))
    assert sorted(done) == [[], [], [], ["database: tables of version 1"]]
    assert await database.set_up(dsn, 90, check=True) == []
    told = ["database: events kept for 120 days instead of 90"]
    assert await database.set_up(dsn, 120, check=True) == told
    async with database.connected(dsn) as db:  # those who write are left alone, as are events
        await put(db, body(event()))
        assert await database.set_up(dsn, 120) == told
        assert await put(db, body(event())) == KNOWN
    assert await database.set_up(dsn, 120, check=True) == []


async def test_the_check_names_what_is_not_as_it_should_be(db: Database, dsn: str) -> None:
    await put(db, body(event()), body(event(start_time=5.0)))  # a site whose clock jumped
    assert await database.set_up(dsn, 90, check=True) == ["database: 1 events are in two months"]
    await db.execute("REVOKE SELECT ON stepvad.events FROM stepvad_reader")
    assert "database: grants of stepvad_reader" in await database.set_up(dsn, 90, check=True)
    assert await database.set_up(dsn, 90) == ["database: grants of stepvad_reader"]
    this = time.strftime("%Y-%m", time.gmtime())
    await db.execute(f"DELETE FROM stepvad.months WHERE month = '{this}-01'")
    assert f"database: a partition of {this}" in await database.set_up(dsn, 90, check=True)
    await db.execute("UPDATE stepvad.about SET version = 99")
    for use in (
        database.set_up(dsn, 90),
        database.set_up(dsn, 90, check=True),
        database.check_version(db),
    ):
        with pytest.raises(ConfigError, match="expected tables of version 1, got 99"):
            await use


async def test_errors_say_whether_to_try_again(dsn: str, postgres: PostgresServer) -> None:
    gone = f"postgresql://admin@127.0.0.1:1/{dsn.rpartition('/')[2]}"
    missing = f"{postgres.dsn.rpartition('/')[0]}/no-such-database"
    for address, kind, words in [
        (gone, NoDatabaseError, "refused|Connect"),
        (missing, ConfigError, "does not exist"),
        ("mysql://eva:secret@host", ConfigError, "expected postgresql://"),
        (dsn, ConfigError, "expected tables of version 1, got none"),
    ]:
        with pytest.raises(kind, match=words) as raised:
            async with database.connected(address) as db:
                await database.check_version(db)
        assert raised.value.hint
        assert "secret" not in str(raised.value)


WRITES = [
    "SELECT stepvad.put('events.a', 'x')",
    "SELECT stepvad.put(ARRAY['events.a'], ARRAY['x'])",
    "SELECT stepvad.retain()",
]
READS = [
    "SELECT count(*) FROM stepvad.events",
    "SELECT count(*) FROM stepvad.refused",
    "SELECT stepvad.judge('a', 'b', 'right', 'c', now())",
    "SELECT stepvad.see('a', 'b', 'c', now())",
    "SELECT stepvad.explain('a', 'b', '{}')",
    "SELECT stepvad.erase('a', ARRAY['b'], true)",
    "SELECT stepvad.end_session('a', now())",
]
NOBODY = [
    "INSERT INTO stepvad.events (site, id, month, start_time) "
    "VALUES ('a', 'b', '2026-01-01', now())",
    "UPDATE stepvad.events SET record = NULL",
    "DELETE FROM stepvad.events",
    "TRUNCATE stepvad.events",
    "UPDATE stepvad.about SET retention_days = 1",
    "UPDATE stepvad.months SET dropped = NULL",
    "DELETE FROM stepvad.refused",
    "SELECT stepvad.read('events.a', 'x')",
    f"DROP TABLE stepvad.{partition(NOW)}",
    "CREATE TABLE stepvad.mine (x int)",
]


async def test_the_writer_may_only_put_and_the_reader_only_look_and_judge(db: Database) -> None:
    async def may(role: str, statement: str) -> bool:
        try:
            async with db.transaction():
                await db.execute(f"SET LOCAL ROLE {role}")
                await db.execute(statement)
        except asyncpg.InsufficientPrivilegeError:
            return False
        return True

    if not await db.fetchval("SELECT to_regrole('stepvad_stranger') IS NOT NULL"):
        await db.execute("CREATE ROLE stepvad_stranger")
    allowed = {"stepvad_writer": WRITES, "stepvad_reader": READS, "stepvad_stranger": []}
    for statement in [*WRITES, *READS, *NOBODY]:
        for role, own in allowed.items():
            assert await may(role, statement) == (statement in own), (role, statement)


@pytest.mark.slow
async def test_a_killed_database_keeps_what_was_committed() -> None:
    with postgres_server("fsync=on") as server:
        await database.set_up(server.dsn, 90)
        async with database.connected(server.dsn) as db:
            assert await put(db, body(event())) == STORED
        server.kill()
        server.start()
        async with database.connected(server.dsn) as db:
            assert await put(db, body(event())) == KNOWN


def test_the_tables_come_with_the_package(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    os.environ.setdefault("SOURCE_DATE_EPOCH", "1700000000")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        assert "stepvad/fleet/events.sql" in wheel.namelist()


async def test_the_recipe_for_redpanda_connect_calls_what_is_there(db: Database) -> None:
    recipe = yaml.safe_load((ROOT / "deploy/fleet/redpanda-connect.yaml").read_text())
    assert recipe["input"]["nats_jetstream"]["stream"] == streams.EVENTS
    query = recipe["output"]["sql_raw"]["query"]
    assert await db.fetchval(query, NORTH, body(event())) == STORED
    assert await db.fetchval(query, NORTH, None) == REFUSED
