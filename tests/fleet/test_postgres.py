"""Events in PostgreSQL: stored, searched, counted, migrated; and every error of the server."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.fleet.events import migrations, postgres
from stepvad.fleet.events.postgres import (
    _CAMERAS,
    _TOTALS,
    _UNSEEN,
    FleetEvents,
    NoDatabaseError,
    Wanted,
    connect,
)
from stepvad.fleet.events.postgres_errors import BY_SQLSTATE, PostgresMeaning, by_class, meaning
from tests.fleet.results import (
    Quiet,
    Row,
    change,
    compared,
    differences,
    event,
    over,
    wanted,
    worse,
)
from tests.fleet.servers import PostgresServer
from tests.video.servers import SLOWER, free_port

ALL = Wanted()


def run(
    dsn: str, scenario: Callable[[FleetEvents], Awaitable[Any]], *, migrated: bool = True
) -> Any:
    """Do something with the events of a database."""

    async def go() -> Any:
        async with connect(dsn) as events:
            if migrated:
                await events.migrate()
            return await scenario(events)

    return asyncio.run(go())


async def sql(dsn: str, words: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(words)
    finally:
        await connection.close()


def test_tables_are_made_once_by_whoever_comes_first(dsn: str) -> None:
    async def many(events: FleetEvents) -> list[int]:
        return await asyncio.gather(*(events.migrate() for _ in range(4)))

    assert sorted(run(dsn, many, migrated=False)) == [0, 0, 0, 1]
    run(dsn, lambda events: events.check(), migrated=False)


def test_rows_of_a_writer_that_was_cut_off_in_a_transaction_are_free_for_another(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not told of a cut: it waits for the commit, and keeps the rows locked."""
    monkeypatch.setattr(postgres, "IDLE_S", 1)

    async def write(events: FleetEvents) -> None:
        await events.write([change("new", event(1))])
        async with connect(dsn) as other:
            connection = await other._pool.acquire()  # which nobody gives back
            await connection.execute("BEGIN; UPDATE stepvad.events SET label = label")
            async with asyncio.timeout(5 * SLOWER):
                await events.write([change("end", over(event(1)))])

    run(dsn, write)


def test_a_database_of_another_version_is_refused(dsn: str) -> None:
    with pytest.raises(ConfigError, match="expected tables of version 1, got none"):
        run(dsn, lambda events: events.check(), migrated=False)
    run(dsn, lambda events: events.check())
    asyncio.run(sql(dsn, "UPDATE stepvad.schema_version SET version = 9"))
    for use in (FleetEvents.check, FleetEvents.migrate):
        with pytest.raises(ConfigError, match="expected tables of version 1, got 9"):
            run(dsn, use, migrated=False)


def test_a_migration_that_fails_leaves_nothing(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = f"{migrations.TABLES}; CREATE TABLE stepvad.more (id text); SELECT nothing"
    monkeypatch.setattr(migrations, "TABLES", broken)
    with pytest.raises(Exception, match="nothing"):
        run(dsn, lambda events: events.migrate(), migrated=False)
    monkeypatch.undo()
    assert run(dsn, lambda events: events.migrate(), migrated=False) == 1


def test_a_change_that_comes_twice_is_one_row(dsn: str) -> None:
    one = event()

    async def scenario(events: FleetEvents) -> Any:
        for _ in range(3):
            await events.write([change("new", one), change("new", one, sequence=5)])
        return await events.events(ALL)

    assert run(dsn, scenario) == [one]
    (row,) = asyncio.run(sql(dsn, "SELECT first_sequence, last_sequence FROM stepvad.events"))
    assert tuple(row) == (1, 5)


def test_any_order_ends_with_the_newest(dsn: str) -> None:
    changes = []
    for number in range(20):
        one = event(number)
        changes.append(change("new", one, sequence=100))
        changes += [
            change("update", worse(one, 6.0 + n), sequence=100 + n, turn=n) for n in range(1, 5)
        ]
        changes.append(change("end", over(worse(one, 11.0)), sequence=105, turn=9))
    rng = random.Random(4)

    async def scenario(events: FleetEvents) -> Any:
        for _ in range(3):
            mixed = rng.choices(changes, k=len(changes)) + changes
            rng.shuffle(mixed)
            while mixed:
                n = rng.randrange(1, 30)
                await events.write(mixed[:n])
                del mixed[:n]
        return await events.events(ALL, limit=None)

    found = run(dsn, scenario)
    assert found == [over(worse(event(number), 11.0)) for number in reversed(range(20))]


def test_an_event_that_is_over_stays_as_it_is(dsn: str) -> None:
    one = event()
    ended = over(one)

    async def scenario(events: FleetEvents) -> Any:
        await events.write([change("end", ended, sequence=2, turn=5)])
        await events.write([change("update", worse(one, 99.0), sequence=8, turn=50)])
        await events.write([change("end", over(worse(one, 99.0)), sequence=9, turn=51)])
        return await events.event(one.id)

    assert run(dsn, scenario) == ended


def test_an_older_update_that_comes_again_later_changes_nothing(dsn: str) -> None:
    one = event()

    async def scenario(events: FleetEvents) -> Any:
        await events.write([change("update", worse(one, 8.0), sequence=2, turn=20)])
        await events.write([change("new", one, sequence=3, turn=10)])
        await events.write([change("update", worse(one, 6.0), sequence=4, turn=15)])
        return await events.event(one.id)

    assert run(dsn, scenario) == worse(one, 8.0)


def test_a_batch_is_stored_whole_or_not_at_all(dsn: str) -> None:
    async def scenario(events: FleetEvents) -> Any:
        bad = change("new", event(2, start_time=1e300))
        with pytest.raises(Exception, match="out of range"):
            await events.write([change("new", event(1)), bad])
        return await events.events(ALL)

    assert run(dsn, scenario) == []


def test_events_are_found_by_site_camera_time_and_whether_they_go_on(dsn: str) -> None:
    yard, gate = event(1), over(event(2, "north/gate"))
    far = over(event(3, "south/yard"))

    async def scenario(events: FleetEvents) -> Any:
        await events.write([change("new", yard), change("end", gate), change("end", far)])

        async def ids(**wanted: Any) -> list[str]:
            return [one.id for one in await events.events(Wanted(**wanted))]

        assert await ids() == [far.id, gate.id, yard.id]
        assert await ids(site="north") == [gate.id, yard.id]
        assert await ids(camera="south/yard") == [far.id]
        assert await ids(camera="yard") == []
        assert await ids(open=True) == [yard.id]
        assert await ids(open=False, site="north") == [gate.id]
        assert await ids(since=gate.start_time) == [far.id, gate.id]
        assert await ids(until=gate.start_time) == [yard.id]
        assert await ids(label="fall") == []
        pages = [await events.events(ALL, limit=1)]
        pages += [await events.events(ALL, limit=5, before_id=pages[0][0].id)]
        assert pages == [[far], [gate, yard]]
        await events.delete(Wanted(ids=[far.id]))
        with pytest.raises(DataError, match="before_id: expected the id of a stored event"):
            await events.events(ALL, before_id=far.id)
        await events.write([change("end", over(event(4, "south/yard")))])
        totals = await events.totals(stale_s=3600)
        assert (totals.events, totals.open, totals.stale) == (3, 1, 0)
        assert totals.cameras == {"north/gate": 1, "north/yard": 1, "south/yard": 1}
        assert (await events.totals(stale_s=-1)).stale == 1
        assert (await events.going_on(stale_s=3600))[1:] == (1, 0)
        assert (await events.going_on(stale_s=-1))[1:] == (1, 1)

    run(dsn, scenario)


def test_marks_stay_when_an_event_goes_on_and_are_taken_back(dsn: str) -> None:
    one = event()

    async def scenario(events: FleetEvents) -> None:
        await events.write([change("new", one)])
        await events.see(one.id, "ada")
        (seen,) = (await events.reviews()).values()
        assert (seen.mark, seen.by) == (None, "ada")
        await events.mark(one.id, "right", "bob")
        await events.see(one.id, "cy")  # the first look counts
        await events.write([change("end", over(one), sequence=2)])
        ((id, said),) = (await events.reviews()).items()
        assert (id, said.mark, said.by) == (one.id, "right", "bob")
        assert await events.reviews([]) == {}
        await events.mark(one.id, None)
        assert [review.mark for review in (await events.reviews()).values()] == [None]
        for judge in (events.mark("nobody", "normal"), events.see("nobody")):
            with pytest.raises(DataError, match="expected the id of a stored event"):
                await judge

    run(dsn, scenario)


def test_what_is_deleted_stays_deleted_when_its_messages_come_again(dsn: str) -> None:
    old, new = over(event(1)), over(event(500))
    open_, far = event(2), over(event(3, "south/yard"))
    changes = [*(change("end", one) for one in (old, new, far)), change("new", open_)]

    async def scenario(events: FleetEvents) -> None:
        await events.write(changes)
        done = await events.delete(Wanted(camera="north/yard", until=new.start_time))
        assert (done.events, done.kept_open) == (1, 1)
        await events.write(changes)
        assert {one.id for one in await events.events(ALL)} == {new.id, open_.id, far.id}
        assert (await events.delete(Wanted(site="south"))).events == 1
        assert (await events.delete(Wanted(ids=[open_.id]), include_open=True)).events == 1
        await events.write(changes)
        assert await events.events(ALL) == [new]

    run(dsn, scenario)


def test_what_ended_long_ago_is_deleted_and_then_forgotten(dsn: str) -> None:
    one, going = over(event(1)), event(2)

    async def scenario(events: FleetEvents) -> None:
        await events.write([change("end", one), change("new", going)])
        assert await events.retain(1e5) == 0
        assert await events.retain() == 1
        await events.write([change("end", one)])
        assert await events.events(ALL) == [going]
        await sql(dsn, "UPDATE stepvad.forgotten SET deleted = now() - interval '31 days'")
        await events.retain(40.0)
        await events.write([change("end", one)])
        assert await events.events(ALL) == [going]
        await events.retain()
        await events.write([change("end", one)])
        assert await events.events(ALL) == [going, one]

    run(dsn, scenario)


def test_nothing_of_a_deleted_event_is_left_in_the_table(
    dsn: str, postgres: PostgresServer
) -> None:
    secret = "canary-Zq7"
    kept = over(event(1))

    async def scenario(events: FleetEvents) -> None:
        gone = over(event(2, why=secret))
        await events.write([change("end", kept), change("end", gone)])
        await sql(dsn, "CHECKPOINT")
        assert secret in await _files()
        await events.delete(Wanted(ids=[gone.id]))
        await events.scrub()
        assert secret not in await _files()
        assert await events.events(ALL) == [kept]

    async def _files() -> str:
        (row,) = await sql(dsn, "SELECT pg_relation_filepath('stepvad.events')")
        there = postgres.data / row[0]
        return "".join(
            path.read_bytes().decode("latin-1") for path in there.parent.glob(f"{there.name}*")
        )

    run(dsn, scenario)


def test_a_server_that_is_away_is_said_to_be_and_the_password_is_not() -> None:
    dsn = f"postgresql://writer:canary-Zq7@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(NoDatabaseError, match="expected an answer") as told:
        run(dsn, lambda events: events.events(ALL), migrated=False)
    assert "canary" not in f"{told.value}"
    for wrong in ("mysql://a:canary-Zq7@b/c", "postgresql://a:canary-Zq7@b:port/c"):
        with pytest.raises(ConfigError, match=r"events.dsn: expected postgresql://") as told_:
            run(wrong, lambda events: events.events(ALL), migrated=False)
        assert "canary" not in f"{told_.value}"


def test_roles_may_do_what_they_must_and_no_more(dsn: str, postgres: PostgresServer) -> None:
    for role in ("stepvad_writer", "stepvad_reader"):
        there = f"SELECT FROM pg_roles WHERE rolname = '{role}'"
        asyncio.run(
            sql(
                dsn,
                f"DO $$BEGIN IF NOT EXISTS ({there}) THEN CREATE ROLE {role} LOGIN; END IF; END$$",
            )
        )
    one = over(event())
    run(dsn, lambda events: events.write([change("end", one)]))
    writer = dsn.replace("//admin@", "//stepvad_writer@")
    reader = dsn.replace("//admin@", "//stepvad_reader@")

    async def writes(events: FleetEvents) -> None:
        await events.check()
        await events.write([change("new", event(2))])
        await events.retain(1e6)
        for forbidden in (events.delete(ALL), events.mark(one.id, "normal"), events.scrub()):
            with pytest.raises(ConfigError, match="expected a role that may do this"):
                await forbidden

    async def reads(events: FleetEvents) -> None:
        await events.check()
        assert len(await events.events(ALL)) == 2
        await events.mark(one.id, "normal")
        await events.see(one.id)
        for forbidden in (
            events.write([change("new", event(3))]),
            events.delete(ALL),
            events.migrate(),
        ):
            with pytest.raises(ConfigError, match="expected a role that may do this"):
                await forbidden

    run(writer, writes, migrated=False)
    run(reader, reads, migrated=False)


MANY = """
INSERT INTO stepvad.events (id, site, camera, label, severity, start_time, end_time, top_score,
    record, rank, turn, first_sequence, last_sequence)
SELECT 'e' || i, 'site' || i % 50, 'cam' || i % 4, 'anomaly', 'alert',
    now() - make_interval(secs => i), now(), 5, jsonb_build_object('text', repeat('x', 600)),
    2, i, i, i FROM generate_series(1, 40000) AS i
"""


def test_what_the_page_asks_for_does_not_read_the_whole_table(dsn: str) -> None:
    async def scenario(events: FleetEvents) -> None:
        await sql(dsn, MANY)
        await sql(dsn, "UPDATE stepvad.events SET reviewed = now()")
        await sql(dsn, "VACUUM ANALYZE stepvad.events")
        counted = await events.totals(stale_s=60.0)
        assert (counted.events, counted.open, len(counted.cameras)) == (40_000, 0, 100)
        span_s = (counted.last or 0.0) - (counted.first or 0.0)
        assert span_s == pytest.approx(39_999, abs=0.1)
        where, _ = Wanted(site="site7").where()
        latest = (
            f"SELECT record FROM stepvad.events WHERE {where} ORDER BY start_time DESC, id DESC"
        )
        for words, index in (
            (_CAMERAS, "Index Only Scan using events_by_place"),
            (_TOTALS.replace("$1", "60"), "using events_open"),
            (_TOTALS.replace("$1", "60"), "Index Only Scan using events_by_time"),
            (latest.replace("$1", "'site7'") + " LIMIT 100", "using events_by_site"),
            (_UNSEEN.replace("$1", "9"), "using events_to_review"),
        ):
            plan = "\n".join(row[0] for row in await sql(dsn, f"EXPLAIN {words}"))
            assert (index in plan, "Seq Scan" in plan) == (True, False), plan

    run(dsn, scenario)


def test_what_is_wrong_with_an_address_is_said(dsn: str, tmp_path: Path) -> None:
    for wrong, words in (
        (f"{dsn}_not", "expected one of that name, got: .*does not exist"),
        (f"{dsn}?sslcert={tmp_path}/none.pem", "expected sslcert to name a file, got .*none.pem"),
    ):
        with pytest.raises(ConfigError, match=words):
            run(wrong, lambda events: events.check(), migrated=False)


SERVER: tuple[tuple[type[Exception], PostgresMeaning | None], ...] = (
    (asyncpg.ConnectionFailureError, "retry"),
    (asyncpg.DatetimeFieldOverflowError, "data"),
    (asyncpg.NotNullViolationError, "data"),
    (asyncpg.ReadOnlySQLTransactionError, "retry"),
    (asyncpg.IdleInTransactionSessionTimeoutError, "retry"),
    (asyncpg.exceptions.TransactionTimeoutError, "retry"),
    (asyncpg.InvalidPasswordError, "retry"),
    (asyncpg.InvalidCatalogNameError, "settings"),
    (asyncpg.DeadlockDetectedError, "retry"),
    (asyncpg.SerializationError, "retry"),
    (asyncpg.InsufficientPrivilegeError, "settings"),
    (asyncpg.DiskFullError, "retry"),
    (asyncpg.TooManyConnectionsError, "retry"),
    (asyncpg.LockNotAvailableError, "retry"),
    (asyncpg.CannotConnectNowError, "retry"),
    (asyncpg.QueryCanceledError, "retry"),
    (asyncpg.PostgresIOError, "retry"),
    (asyncpg.UndefinedTableError, None),
    (asyncpg.InFailedSQLTransactionError, None),
)
CLIENT: tuple[tuple[Exception, PostgresMeaning | None], ...] = (
    (ConnectionRefusedError(111, "refused"), "retry"),
    (TimeoutError(), "retry"),
    (ssl.SSLCertVerificationError("not trusted"), "retry"),
    (asyncpg.exceptions.ClientConfigurationError("sslmode"), "settings"),
    (asyncpg.exceptions._base.DataError("an integer is required"), "data"),
    (ValueError("a string with a zero"), "data"),
    (asyncpg.InterfaceError("connection is closed"), "retry"),
    (asyncpg.exceptions.ProtocolError("unexpected"), "retry"),
    (KeyError("a fault of ours"), None),
)


@pytest.mark.parametrize(("kind", "wanted"), SERVER, ids=lambda one: getattr(one, "__name__", one))
def test_an_error_of_the_server_means_what_the_table_says(
    kind: type[Exception], wanted: PostgresMeaning | None
) -> None:
    assert meaning(kind("words")) == wanted


@pytest.mark.parametrize(("error", "wanted"), CLIENT, ids=lambda one: type(one).__name__)
def test_an_error_of_the_client_means_what_the_table_says(
    error: Exception, wanted: PostgresMeaning | None
) -> None:
    assert meaning(error) == wanted


def test_every_entry_of_the_tables_is_tried() -> None:
    states = {str(getattr(kind, "sqlstate", "")) for kind, _ in SERVER}
    tried = {state if state in BY_SQLSTATE else state[:2] for state in states}
    assert tried >= set(BY_SQLSTATE)
    first = {next((kind for kind, _ in by_class() if isinstance(e, kind)), None) for e, _ in CLIENT}
    # a TimeoutError is an OSError: its own line says so for those who read the table
    assert first >= {kind for kind, _ in by_class()} - {TimeoutError}


async def _rival(dsn: str) -> Any:
    """Another session, which never gives up first."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET deadlock_timeout = '1min'")
    await connection.execute("BEGIN")
    return connection


async def _lock(connection: Any, id: str) -> None:
    await connection.execute("UPDATE stepvad.events SET changed = now() WHERE id = $1", id)


async def _is_waiting(dsn: str) -> None:
    """Until another session waits for a row."""
    looking = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(10 * SLOWER):
            while not await looking.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            ):
                await asyncio.sleep(0.02)
    finally:
        await looking.close()


def test_the_victim_of_a_deadlock_may_try_again(dsn: str) -> None:
    first, second = sorted([event(1), event(2)], key=lambda one: one.id)

    async def go() -> None:
        async with connect(dsn) as events:
            await events.migrate()
            changes = [change("new", first), change("new", second)]
            await events.write(changes)
            rival = await _rival(dsn)
            try:
                await _lock(rival, second.id)
                writing = asyncio.create_task(events.write(_later(changes)))
                await _is_waiting(dsn)
                await asyncio.wait_for(_lock(rival, first.id), 20 * SLOWER)
                with pytest.raises(NoDatabaseError, match="deadlock"):
                    await writing
            finally:
                await rival.close()
            await events.write(_later(changes))

    asyncio.run(go())


def test_two_writers_lock_their_rows_in_one_order(dsn: str) -> None:
    first, second = sorted([event(1), event(2)], key=lambda one: one.id)

    async def go() -> None:
        async with connect(dsn) as events:
            await events.migrate()
            changes = [change("new", second), change("new", first)]
            await events.write(changes)
            rival = await _rival(dsn)
            try:
                await _lock(rival, first.id)
                writing = asyncio.create_task(events.write(_later(changes)))
                await _is_waiting(dsn)
                await asyncio.wait_for(_lock(rival, second.id), 20 * SLOWER)
                await rival.execute("COMMIT")
                await asyncio.wait_for(writing, 20 * SLOWER)
            finally:
                await rival.close()

    asyncio.run(go())


def _later(changes: list[Any]) -> list[Any]:
    """Updates of the same events."""
    return [change("update", one.record, sequence=9, turn=5) for one in changes]


def test_a_server_that_only_reads_is_asked_again_over_new_connections(dsn: str) -> None:
    """As after a failover: old connections lead to the server that was demoted."""

    async def go() -> None:
        async with connect(dsn) as events:
            await events.migrate()
            before = await _sessions(events)
            await _set_read_only(dsn, True)
            await events._pool.expire_connections()
            with pytest.raises(NoDatabaseError, match="a server that writes"):
                await events.write([change("new", event(1))])
            await _set_read_only(dsn, False)
            await events.write([change("new", event(1))])
            assert await _sessions(events) != before
            assert len(await events.events(Wanted())) == 1

    asyncio.run(go())


async def _sessions(events: FleetEvents) -> int:
    async with events._pool.acquire() as connection:
        return connection.get_server_pid()


async def _set_read_only(dsn: str, on: bool) -> None:
    """For sessions that begin from now on; those that go on stay as they are."""
    name = dsn.rpartition("/")[2]
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET default_transaction_read_only = off")
        value = "on" if on else "off"
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only={value}")
    finally:
        await connection.close()


QUIET = Quiet([("end", over(worse(event(n), 7.0))) for n in range(4)])


def rows() -> list[Row]:
    return wanted(QUIET)


def wrong(found: list[Row]) -> dict[str, int]:
    return {name: n for name, n in compared(found, rows()).items() if n}


def test_equal_rows_are_equal() -> None:
    assert wrong(rows()) == {}


def test_each_thing_that_can_be_wrong_is_counted() -> None:
    one, *others = rows()
    twice = {**one, "id": f"{one['id']}0"}
    assert wrong(others) == {"rows missing": 1}
    assert wrong([*rows(), twice]) == {"rows that nobody expected": 1, "duplicate rows": 1}
    goes_on = {**one, "end_time": None, "rank": 1}
    assert wrong([goes_on, *others]) == {"rows not ended": 1, "rows that differ": 1}


def test_a_difference_is_named_and_scores_are_compared_to_1e_5() -> None:
    one = rows()[0]
    other = {
        **one,
        "start_time": one["start_time"] + 0.04,
        "top_score": one["top_score"] * (1 + 1e-7),
        "record": {**one["record"], "track_id": 99, "top_score": 8.0},
    }
    assert sorted(differences(other, one)) == ["record.top_score", "record.track_id", "start_time"]
