"""Age by a clock that may be wrong: nothing goes too early, nothing stays for ever."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stepvad.events.record import DAY_S
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.store.database import EVENT_STORE
from stepvad.site.store.events import Store
from stepvad.site.store.retention import CONFIRM_S, StoreClock, delete_old
from tests.site.records import record

NOW = 1_790_000_000.0
YEAR = 365 * DAY_S


@dataclass
class World:
    """The rows of a site whose clock may be wrong; `true` is a time that only the test knows."""

    connection: sqlite3.Connection
    true: float = NOW
    error_s: float = 0.0
    written: list[float] = field(default_factory=list)
    """The true time at which each event was stored."""
    deleted: list[float] = field(default_factory=list)
    """True ages of events when they went."""

    def __post_init__(self) -> None:
        self.restart(0.0)

    def restart(self, off_s: float) -> None:
        self.true += off_s
        self.clock = StoreClock(lambda: self.true)

    def time(self) -> float:
        return self.clock.read(self.connection, self.true + self.error_s)

    def run(self, days: float) -> None:
        """Store an event and delete old ones every six hours."""
        for _ in range(round(days * 4)):
            self.retain()
            self.true += DAY_S / 4
            self.connection.execute(
                "INSERT INTO events (id, camera, label, start_time, end_time, changed, stored, "
                "body) VALUES (?, '', '', 0, 0, 0, ?, '')",
                (len(self.written), self.time()),
            )
            self.written.append(self.true)
        self.retain()

    def left(self) -> set[int]:
        return {int(id) for (id,) in self.connection.execute("SELECT id FROM events")}

    def retain(self) -> None:
        before, time = self.left(), self.time()
        if not self.clock.doubt:
            delete_old(self.connection, RetentionSettings(), time)
        self.deleted += [self.true - self.written[id] for id in before - self.left()]

    def check(self) -> None:
        """After 35 days of a right clock: nothing went too early, nothing stays for ever."""
        self.error_s = 0.0
        self.run(35)
        assert not self.clock.doubt
        assert min(self.deleted) >= 29 * DAY_S
        assert self.true - min(self.written[id] for id in self.left()) <= 31 * DAY_S


@contextmanager
def world() -> Iterator[World]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        EVENT_STORE.create(connection)
        yield World(connection)


@pytest.mark.parametrize("error_s", [31 * DAY_S, 2 * DAY_S, 20 * YEAR, -31 * DAY_S, -50 * YEAR])
@pytest.mark.parametrize("restart", [False, True])
def test_a_wrong_clock_deletes_nothing(error_s: float, restart: bool) -> None:
    with world() as site:
        site.run(2)
        site.error_s = error_s
        if restart:
            site.restart(60.0)
        site.run(2)
        assert not site.deleted
        assert ("ahead of" if error_s > 0 else "behind") in site.clock.doubt
        site.check()


def test_a_site_that_was_off_deletes_after_three_days_of_running() -> None:
    with world() as site:
        site.run(2)
        site.restart(40 * DAY_S)
        for _ in range(5):
            site.run(0.5)
            site.restart(60.0)  # what it ran before counts
        assert not site.deleted
        site.run(1)
        assert len(site.deleted) == 8
        site.check()


@pytest.mark.parametrize("days", [2, 10])
@pytest.mark.parametrize("error_s", [-200 * DAY_S, -50 * YEAR])
@pytest.mark.parametrize("is_first", [True, False])
def test_days_of_a_slow_clock_lose_no_event(error_s: float, days: int, is_first: bool) -> None:
    with world() as site:
        if not is_first:
            site.run(5)
            site.restart(60.0)
        site.error_s = error_s
        site.run(days)
        site.error_s = 0.0
        site.run(1)
        site.restart(60.0)
        site.run(9)
        assert not site.deleted
        site.check()


def test_a_clock_that_starts_where_it_stopped_loses_no_event_of_the_days_until_it_is_set() -> None:
    with world() as site:
        site.run(5)
        site.error_s = -40 * DAY_S
        site.restart(40 * DAY_S + 60.0)
        site.run(10)
        site.error_s = 0.0
        site.run(10)
        assert len(site.deleted) == 20, "those from before the stop"
        site.check()


def test_a_clock_that_was_ahead_from_the_start_keeps_nothing_for_ever() -> None:
    with world() as site:
        site.error_s = 20 * YEAR
        site.run(3)
        site.error_s = 0.0
        site.run(5)
        site.check()


def test_a_clock_that_jumps_again_is_not_believed_for_what_it_ran_before() -> None:
    with world() as site:
        site.run(2)
        site.restart(25 * DAY_S)
        site.run(2.5)
        site.error_s = 20 * YEAR
        site.run(1)
        assert not site.deleted
        site.check()


def test_a_store_says_why_it_deletes_nothing(tmp_path: Path) -> None:
    wall, monotonic = [NOW], [0.0]
    path = tmp_path / "events.db"
    with closing(Store(path, clock=lambda: wall[0], monotonic=lambda: monotonic[0])) as store:
        for number, ahead_days in ((0, 0), (1, 40)):
            wall[0] = NOW + ahead_days * DAY_S
            one = record(number=number, start_time=wall[0])
            store.change("new", one)
            store.change("end", one.ended("calm", wall[0]))
            assert store.retain(RetentionSettings(), wall[0]).events == 0
        assert "40 days ahead of" in store.clock_doubt
        monotonic[0] = CONFIRM_S
        wall[0] += CONFIRM_S
        store.retain(RetentionSettings(), wall[0])
        assert store.clock_doubt == ""


def test_a_replaced_store_goes_with_what_is_as_old(tmp_path: Path) -> None:
    replaced = tmp_path / "events.db.before-restore"
    with closing(Store(tmp_path / "events.db", clock=lambda: NOW)) as store:
        for days, stays in ((6, True), (8, False)):
            replaced.write_bytes(b"x")
            os.utime(replaced, (NOW - days * DAY_S,) * 2)
            store.retain(RetentionSettings(), NOW)
            assert replaced.exists() == stays
