"""The commands on the events of a fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.incidents.record import Record
from tests.fleet.messages import change, event, over
from tests.fleet.postgres import needs_postgres
from tests.fleet.roles import FleetCommand

pytestmark = needs_postgres
CANARY = "canary-Zq7"


@pytest.fixture
def run(fleet: FleetCommand, tmp_path: Path) -> FleetCommand:
    """A command on the events of a database, with more settings in `text`."""

    def run(dsn: str, verb: str, *words: str, text: str = "") -> tuple[int, str]:
        settings = tmp_path / "fleet.toml"
        settings.write_text('[events]\ndsn = "env:DSN"\n' + text)
        return fleet(verb, settings, *words, DSN=dsn)

    return run


async def fill(dsn: str, *events: Record) -> None:
    async with connect(dsn) as kept:
        await kept.write([change("end" if not one.is_open else "new", one) for one in events])


async def left(dsn: str) -> list[str]:
    async with connect(dsn) as kept:
        return [one.id for one in await kept.events(Wanted())]


def test_events_are_forgotten_by_site_camera_and_time(dsn: str, run: FleetCommand) -> None:
    code, words = run(dsn, "events", "--migrate")
    assert (code, "after 2 steps" in words) == (0, True), words
    yard, gate, far = over(event(1)), over(event(2, "north/gate")), over(event(3, "south/yard"))
    asyncio.run(fill(dsn, yard, gate, far, event(9)))
    code, words = run(dsn, "forget", "--yes")
    assert (code, "expected --site, --camera, --since or --until" in words) == (1, True), words
    code, words = run(dsn, "forget", "--site", "north", "--until", "1h", "--yes", "--scrub")
    assert (code, "2 events deleted, 1 stay because they go on" in words) == (0, True), words
    assert asyncio.run(left(dsn)) == [event(9).id, far.id]


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
