"""The commands on the events of a fleet."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.incidents.record import Record
from tests.fleet.messages import change, event, over
from tests.fleet.postgres import needs_postgres

pytestmark = needs_postgres
CANARY = "canary-Zq7"


def run(dsn: str, directory: Path, *words: str, text: str = "") -> tuple[int, str]:
    """How a command ended, and what it said."""
    settings = directory / "fleet.toml"
    settings.write_text('[events]\ndsn = "env:DSN"\n' + text)
    verb, *more = words
    command = ["fleet", verb, str(settings)]
    if verb in ("delete", "mark"):
        command = ["events", verb, "--fleet", str(settings)]
    done = subprocess.run(
        [sys.executable, "-m", "stepvad", *command, *more],
        capture_output=True,
        text=True,
        env=os.environ | {"DSN": dsn},
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


async def fill(dsn: str, *events: Record) -> None:
    async with connect(dsn) as kept:
        await kept.write([change("end" if not one.is_open else "new", one) for one in events])


async def left(dsn: str) -> list[str]:
    async with connect(dsn) as kept:
        return [one.id for one in await kept.events(Wanted())]


async def marked(dsn: str) -> list[str]:
    async with connect(dsn) as kept:
        return [*await kept.marked()]


def filled(dsn: str, directory: Path) -> list[Record]:
    """The database with three events that are over and one that goes on."""
    code, words = run(dsn, directory, "events", "--migrate")
    assert (code, "after 2 steps" in words) == (0, True), words
    events = [over(event(1)), over(event(2, "north/gate")), over(event(3, "south/yard")), event(9)]
    asyncio.run(fill(dsn, *events))
    return events


def test_events_are_deleted_by_site_camera_and_time(dsn: str, tmp_path: Path) -> None:
    _, gate, far, open_ = filled(dsn, tmp_path)
    code, words = run(dsn, tmp_path, "delete", "--yes")
    assert (code, "expected ids, --camera, --since, --until or --all" in words) == (1, True), words
    code, words = run(dsn, tmp_path, "delete", gate.id, "--yes")
    assert (code, "events deleted: 1" in words) == (0, True), words
    whole = ("--camera", "north/", "--until", "1h", "--yes", "--scrub")
    code, words = run(dsn, tmp_path, "delete", *whole)
    assert (code, "events deleted: 1" in words, "1 go on and stay" in words) == (0, True, True)
    assert asyncio.run(left(dsn)) == [open_.id, far.id]
    code, words = run(dsn, tmp_path, "delete", "--all", "--include-open", "--yes")
    assert (code, asyncio.run(left(dsn))) == (0, []), words


def test_the_old_verb_deletes_too_and_warns(dsn: str, tmp_path: Path) -> None:
    *_, far, open_ = filled(dsn, tmp_path)
    code, words = run(dsn, tmp_path, "forget", "--site", "north", "--until", "1h", "--yes")
    assert (code, "events deleted: 2" in words) == (0, True), words
    assert "`fleet forget` is deprecated since 0.1" in words
    assert asyncio.run(left(dsn)) == [open_.id, far.id]
    code, words = run(dsn, tmp_path, "forget", "--site", "north", "--camera", "south/yard", "--yes")
    assert (code, "expected one of site north, got south/yard" in words) == (1, True), words


def test_an_event_of_a_fleet_is_marked_as_normal_and_back(dsn: str, tmp_path: Path) -> None:
    yard, *_ = filled(dsn, tmp_path)
    assert run(dsn, tmp_path, "mark", yard.id)[0] == 0
    assert asyncio.run(marked(dsn)) == [yard.id]
    assert run(dsn, tmp_path, "mark", yard.id, "--not-normal")[0] == 0
    assert asyncio.run(marked(dsn)) == []
    code, words = run(dsn, tmp_path, "mark", "nobody")
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
    dsn: str, tmp_path: Path, words: tuple[str, ...], text: str, said: str
) -> None:
    code, told = run(dsn, tmp_path, *words, text=text)
    assert (code, said in told, "Traceback" in told) == (1, True, False), told


def test_no_error_shows_the_password(tmp_path: Path) -> None:
    for address in (
        f"postgresql://writer:{CANARY}@127.0.0.1:1/stepvad",
        f"mysql://writer:{CANARY}@127.0.0.1/stepvad",
        f"postgresql://writer:{CANARY}@127.0.0.1/stepvad?sslmode=strange",
    ):
        code, told = run(address, tmp_path, "events", "--migrate")
        assert (code, CANARY in told, "Traceback" in told) == (1, False, False), told
