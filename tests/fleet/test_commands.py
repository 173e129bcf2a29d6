"""The commands on the events of a fleet, over large tables, too."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stepvad.events.record import Record
from stepvad.fleet.events import migrations, postgres, service
from stepvad.fleet.events.migrations import LOCK, TABLES
from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.fleet.events.writer import checked
from stepvad.fleet.settings import FleetSettings
from tests.fleet.fleets import FleetCommand
from tests.fleet.results import change, event, over
from tests.video.servers import SLOWER

CANARY = "canary-Zq7"


@pytest.fixture
def run(fleet: FleetCommand, tmp_path: Path) -> FleetCommand:
    """A command on the events of a database, with more settings in `text`."""

    def run(dsn: str, verb: str, *words: str, text: str = "") -> tuple[int, str]:
        settings = tmp_path / "fleet.toml"
        settings.write_text('[events]\ndsn = "env:DSN"\n' + text)
        if verb in ("delete", "mark"):
            return fleet("events", verb, "--fleet", settings, *words, DSN=dsn)
        return fleet("fleet", verb, settings, *words, DSN=dsn)

    return run


async def fill(dsn: str, *events: Record) -> None:
    async with connect(dsn) as kept:
        await kept.write([change("end" if not one.is_open else "new", one) for one in events])


async def left(dsn: str) -> list[str]:
    async with connect(dsn) as kept:
        return [one.id for one in await kept.events(Wanted())]


async def marked(dsn: str) -> list[str]:
    async with connect(dsn) as kept:
        return [id for id, one in (await kept.reviews()).items() if one.mark == "normal"]


def filled(dsn: str, run: FleetCommand) -> list[Record]:
    """The database with three events that are over and one that goes on."""
    code, words = run(dsn, "events", "--migrate")
    assert (code, "after 1 step" in words) == (0, True), words
    events = [over(event(1)), over(event(2, "north/gate")), over(event(3, "south/yard")), event(9)]
    asyncio.run(fill(dsn, *events))
    return events


def test_events_are_deleted_by_site_camera_and_time(dsn: str, run: FleetCommand) -> None:
    _, gate, far, open_ = filled(dsn, run)
    code, words = run(dsn, "delete", "--yes")
    assert (code, "expected ids, --camera, --since, --until or --all" in words) == (1, True), words
    code, words = run(dsn, "delete", gate.id, "--yes")
    assert (code, "events deleted: 1" in words) == (0, True), words
    whole = ("--camera", "north/", "--until", "1h", "--yes", "--scrub")
    code, words = run(dsn, "delete", *whole)
    assert (code, "events deleted: 1" in words, "ongoing events kept: 1" in words) == (
        0,
        True,
        True,
    )
    assert asyncio.run(left(dsn)) == [open_.id, far.id]
    code, words = run(dsn, "delete", open_.id, far.id, "--yes")
    assert (code, asyncio.run(left(dsn))) == (0, []), words


def test_the_owner_stores_how_long_events_are_kept(dsn: str, run: FleetCommand) -> None:
    async def kept() -> float | None:
        async with connect(dsn) as events:
            return await events.retention()

    for text, days in (("", 30.0), ("retention_days = 7\n", 7.0), ("", 7.0)):
        code, words = run(dsn, "events", "--migrate", text=text)
        assert (code, asyncio.run(kept())) == (0, days), words


def test_an_event_of_a_fleet_is_marked_as_normal_and_back(dsn: str, run: FleetCommand) -> None:
    yard, *_ = filled(dsn, run)
    assert run(dsn, "mark", yard.id)[0] == 0
    assert asyncio.run(marked(dsn)) == [yard.id]
    assert run(dsn, "mark", yard.id, "--not-normal")[0] == 0
    assert asyncio.run(marked(dsn)) == []
    code, words = run(dsn, "mark", "nobody")
    assert (code, "expected the id of a stored event" in words) == (1, True), words


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (("events", "--migrate", "--serve"), "", "expected --migrate or --serve, got both"),
        (("events", "--serve"), "", "web.token: expected env:NAME or file:PATH, got none"),
        (("events",), '[bus]\nservers = ["http://x"]\n', "line 3: bus"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    dsn: str, run: FleetCommand, words: tuple[str, ...], text: str, said: str
) -> None:
    code, told = run(dsn, *words, text=text)
    assert (code, said in told, "Traceback" in told) == (1, True, False), told


def test_no_error_shows_the_password(run: FleetCommand) -> None:
    for address in (
        f"postgresql://writer:{CANARY}@127.0.0.1:1/stepvad",
        f"mysql://writer:{CANARY}@127.0.0.1/stepvad",
        f"postgresql://writer:{CANARY}@127.0.0.1/stepvad?sslmode=strange",
    ):
        code, told = run(address, "events", "--migrate")
        assert (code, CANARY in told, "Traceback" in told) == (1, False, False), told


def test_marks_of_a_fleet_reach_the_thresholds_of_their_model(
    dsn: str, run: FleetCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = filled(dsn, run)
    for one in events[:2]:
        assert run(dsn, "mark", one.id)[0] == 0
    assert run(dsn, "mark", events[2].id, "--right")[0] == 0
    monkeypatch.setenv("STEPVAD_TEST_DSN", dsn)
    settings = FleetSettings.model_validate({"events": {"dsn": "env:STEPVAD_TEST_DSN"}})
    marks = asyncio.run(service.marks_of(settings, events[0].model_sha256))
    assert {id: one.peak for id, one in marks.normal.items()} == {
        one.id: one.top_score for one in events[:2]
    }
    assert {*marks.not_normal} == {one.id for one in events[2:]}
    assert not asyncio.run(service.marks_of(settings, "f" * 64)).normal


COMMAND_S, LONGER_S = 0.5, 1.0
SLEEPING = """
SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()
"""


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def migrated(dsn: str) -> None:
    async with connect(dsn) as events:
        await events.migrate()
        await events.write([change("end", over(event(1)))])


def test_a_migration_may_take_longer_than_other_commands_and_is_logged(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migrations, "TABLES", f"SELECT pg_sleep({LONGER_S}); {TABLES}")
    monkeypatch.setattr(postgres, "COMMAND_S", COMMAND_S)
    caplog.set_level("INFO", "stepvad")

    async def run() -> bool:
        async with connect(dsn) as events, asyncio.timeout(10 * SLOWER):
            return await checked(events, asyncio.Event())

    assert asyncio.run(run())
    assert "retrying" not in caplog.text
    assert re.search(r"database: created the tables of version 1 in [\d.]+ s", caplog.text)


def test_commands_over_the_whole_table_wait_longer_than_others(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock that somebody else holds makes each of them take long."""
    asyncio.run(migrated(dsn))
    monkeypatch.setattr(postgres, "COMMAND_S", COMMAND_S)
    caplog.set_level("INFO", "stepvad")

    async def run() -> dict[str, Any]:
        async with session(dsn) as other, connect(dsn) as one, connect(dsn) as two:
            await other.execute(
                "BEGIN; LOCK stepvad.events, stepvad.forgotten; "
                f"SELECT pg_advisory_xact_lock({LOCK})"
            )
            works = {
                "migrate": one.migrate(),
                "scrub": one.scrub(),
                "retain": one.retain(),
                "delete": two.delete(Wanted(camera="a/b")),
                "events": two.events(Wanted(), limit=None),
                "reviews": two.reviews(),
            }
            tasks = [asyncio.create_task(work) for work in works.values()]
            await asyncio.sleep(LONGER_S)
            await other.execute("COMMIT")
            found = await asyncio.gather(*tasks, return_exceptions=True)
            return dict(zip(works, found, strict=True))

    failed = {name: one for name, one in asyncio.run(run()).items() if isinstance(one, Exception)}
    assert failed == {}
    assert "database: another program migrates it; waiting" in caplog.text


def test_a_server_that_vanishes_is_noticed_long_before_the_limit_of_a_long_command(
    dsn: str,
) -> None:
    async def run() -> tuple[int, int]:
        async with connect(dsn) as events, events._connection() as connection:
            line = connection._transport.get_extra_info("socket")
            return (
                line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            )

    assert asyncio.run(run()) == (1, 10)


def test_a_table_that_is_in_use_is_not_scrubbed_and_nobody_waits_behind_it_for_long(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(migrated(dsn))
    monkeypatch.setattr(postgres, "SCRUB_LOCKED_S", 1)

    async def run() -> None:
        async with session(dsn) as other, connect(dsn) as events:
            await other.execute("BEGIN; LOCK stepvad.events IN ACCESS SHARE MODE")
            async with asyncio.timeout(10 * SLOWER):
                with pytest.raises(postgres.NoDatabaseError):
                    await events.scrub()
            await other.execute("COMMIT")

    asyncio.run(run())


def test_a_writer_that_is_stopped_in_a_migration_cancels_it(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "TABLES", f"SELECT pg_sleep(600); {TABLES}")

    async def run() -> None:
        async with session(dsn) as other, connect(dsn) as events:
            stopping = asyncio.Event()
            task = asyncio.create_task(checked(events, stopping))
            while await other.fetchval(SLEEPING) == 0:
                await asyncio.sleep(0.02)
            stopping.set()
            began = time.monotonic()
            assert not await task
            assert time.monotonic() - began < 5 * SLOWER
            while await other.fetchval(SLEEPING):
                assert time.monotonic() - began < 5 * SLOWER
                await asyncio.sleep(0.02)
            assert await migrations.version(other) == 0

    asyncio.run(run())
