"""What is old by a clock that may be wrong: nothing goes too early, nothing stays for ever."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepvad.settings.sections import RetentionSettings
from stepvad.site import recorder
from stepvad.site.store.clock import (
    CONFIRM_S,
    DAY_S,
    TOLERANCE_S,
    ClockState,
    StoreClock,
    load,
    save,
)
from stepvad.site.store.database import Database, StoreError
from stepvad.site.store.eventstore import Store
from stepvad.site.store.retention import delete_old
from stepvad.site.store.schema import EVENT_STORE
from tests.site.records import SINKS, record

NOW = 1_790_000_000.0
HOUR = 3600.0
YEAR = 365 * DAY_S


@dataclass
class World:
    """The rows of a site whose clock may be wrong; `true` is a time that only the test knows."""

    connection: sqlite3.Connection
    true: float = NOW
    error_s: float = 0.0
    booted: float = NOW
    written: list[float] = field(default_factory=list)
    """The true time at which each event was stored."""
    deleted: list[float] = field(default_factory=list)
    """True ages of events when they went."""
    clock: StoreClock | None = None

    def wall(self) -> float:
        return self.true + self.error_s

    def restart(self, off_s: float = 60.0) -> None:
        self.true += off_s
        self.booted, self.clock = self.true, None
        self.retain()

    def time(self) -> float:
        if self.clock is None:
            state = load(self.connection, self.wall())
            self.clock = StoreClock(state, lambda: self.true - self.booted)
        has_jumped = self.clock.read(self.wall())
        save(self.connection, self.clock.state, has_jumped=has_jumped)
        return self.clock.state.time

    def run(self, seconds: float, *, step_s: float = 6 * HOUR) -> None:
        """Store an event and delete old ones again and again, as a site does."""
        self.retain()
        end = self.true + seconds
        while self.true < end:
            self.true = min(self.true + step_s, end)
            self.connection.execute(
                "INSERT INTO events (id, camera, label, start_time, end_time, changed, stored, "
                "body) VALUES (?, '', '', 0, 0, ?, ?, '')",
                (len(self.written), self.wall(), self.time()),
            )
            self.written.append(self.true)
            self.retain()

    def left(self) -> set[int]:
        return {int(id) for (id,) in self.connection.execute("SELECT id FROM events")}

    def retain(self) -> None:
        before = self.left()
        delete_old(self.connection, RetentionSettings(), self.time())
        self.deleted += [self.true - self.written[id] for id in before - self.left()]

    def oldest_s(self) -> float:
        """The true age of the oldest event that is left."""
        return self.true - min(self.written[id] for id in self.left())

    def doubt(self) -> str:
        assert self.clock is not None
        return str(self.clock.state.doubt or "")


@contextmanager
def world() -> Iterator[World]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        EVENT_STORE.create(connection)
        yield World(connection)


@pytest.mark.parametrize("error_s", [31 * DAY_S, 2 * DAY_S, 20 * YEAR, -31 * DAY_S, -50 * YEAR])
@pytest.mark.parametrize("restart", [False, True])
def test_a_wrong_clock_deletes_nothing_and_a_right_one_goes_on(
    error_s: float, restart: bool
) -> None:
    with world() as site:
        site.run(DAY_S)
        site.error_s = error_s
        if restart:
            site.restart()
        site.run(2 * DAY_S)
        assert not site.deleted
        assert ("ahead of" if error_s > 0 else "behind") in site.doubt()
        site.error_s = 0.0
        site.run(35 * DAY_S)
        assert site.doubt() == ""
        assert min(site.deleted) >= 29 * DAY_S, "those of the wrong days as well"
        assert site.oldest_s() <= 31 * DAY_S, "those of the wrong days as well"


def test_a_site_that_was_off_for_40_days_deletes_after_three_days_of_running() -> None:
    with world() as site:
        site.run(2 * DAY_S)
        site.restart(off_s=40 * DAY_S)
        site.run(CONFIRM_S - DAY_S)
        assert not site.deleted
        for _ in range(3):
            site.restart()  # what it ran before counts
            site.run(DAY_S / 2)
        assert len(site.deleted) == 8
        assert min(site.deleted) >= 40 * DAY_S
        assert site.oldest_s() <= CONFIRM_S + 2 * DAY_S, "none of the days after it went"
        site.run(35 * DAY_S)
        assert site.oldest_s() <= 31 * DAY_S


def test_a_first_start_before_the_clock_is_set_loses_no_event_of_the_days_after() -> None:
    with world() as site:
        site.error_s = -NOW + 100.0
        site.run(HOUR)
        site.error_s = 0.0
        site.run(10 * DAY_S)
        assert len(site.deleted) == 1, "that of 1970"
        site.run(30 * DAY_S)
        assert site.oldest_s() <= 31 * DAY_S


def test_a_clock_that_was_wrong_from_the_start_keeps_nothing_for_ever() -> None:
    with world() as site:
        site.error_s = 20 * YEAR
        site.run(3 * DAY_S)
        site.error_s = 0.0
        site.run(40 * DAY_S)
        assert site.oldest_s() <= 31 * DAY_S
        assert min(site.deleted) >= 29 * DAY_S


def test_a_clock_that_runs_too_fast_is_seen_as_one_that_jumped() -> None:
    monotonic = [0.0]
    clock = StoreClock(ClockState(NOW), lambda: monotonic[0])
    for minute in range(0, 20 * 24 * 60, 10):
        monotonic[0] = minute * 60.0
        clock.read(NOW + 2 * monotonic[0])
        assert clock.state.time <= NOW + monotonic[0] + TOLERANCE_S


WRONG = st.one_of(
    st.floats(2, 60), st.floats(-60, -2), st.floats(-0.04, 0.04), st.sampled_from([-2e4, 7e3])
)
SPANS = st.lists(
    st.tuples(st.floats(0.05, 2.9), WRONG, st.floats(0.5, 4.0), st.booleans()), max_size=5
)
"""Days of a wrong clock, by how many days, days of a right one after it, and a restart."""


@settings(max_examples=15, deadline=None)
@given(SPANS)
def test_whatever_a_clock_does_for_less_than_three_days(
    spans: list[tuple[float, float, float, bool]],
) -> None:
    with world() as site:
        site.run(3 * DAY_S)
        for wrong, by, right, restarts in spans:
            for days, site.error_s in ((wrong, by * DAY_S), (right, 0.0)):
                if restarts:
                    site.restart()
                site.run(days * DAY_S)
        site.run(33 * DAY_S)
        assert min(site.deleted, default=30 * DAY_S) >= 29 * DAY_S
        assert site.oldest_s() <= 31 * DAY_S


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 90.0), st.floats(0.2, 6.0)), max_size=6))
def test_whenever_a_site_is_off_old_events_go_by_themselves(
    spans: list[tuple[float, float]],
) -> None:
    with world() as site:
        site.run(3 * DAY_S)
        for off, on in spans:
            site.restart(off_s=off * DAY_S)
            site.run(on * DAY_S)
        site.run(CONFIRM_S + DAY_S)
        assert min(site.deleted, default=30 * DAY_S) >= 29 * DAY_S
        assert site.oldest_s() <= 31 * DAY_S


def test_a_store_doubts_a_clock_that_jumps_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in a whole store, whose disk fails when the jump is to be believed."""
    wall, monotonic = [NOW], [0.0]
    store = Store(
        tmp_path / "events.db", SINKS, clock=lambda: wall[0], monotonic=lambda: monotonic[0]
    )
    for number, ahead_days in ((0, 0), (1, 40)):
        wall[0] = NOW + ahead_days * DAY_S
        one = record(number=number, start_time=wall[0])
        store.change("new", one)
        store.change("end", one.ended("calm", wall[0]))
        assert store.retain(RetentionSettings(), wall[0]).events == 0
    assert "40.0 days ahead" in store.clock_doubt
    assert store.retention_time(wall[0]) == NOW
    monotonic[0] = CONFIRM_S + 1
    wall[0] += CONFIRM_S + 1
    store._database._writer.execute("PRAGMA query_only = ON")
    monkeypatch.setattr(Database, "_reopen_if_broken", lambda self: None)  # it stays broken
    for _ in range(3):
        with pytest.raises(StoreError):
            store.retain(RetentionSettings(), wall[0])
    store._database._writer.execute("PRAGMA query_only = OFF")
    assert store.retain(RetentionSettings(), wall[0]).events == 0, (
        "what was not noted has to pass again"
    )
    monotonic[0] += CONFIRM_S + 1
    wall[0] += CONFIRM_S + 1
    assert store.retain(RetentionSettings(), wall[0]).events == 1
    assert [one.frame_seq for one in store.events()] == [1]
    assert store.clock_doubt == ""
    store.close()


def test_a_replaced_store_goes_with_what_is_as_old(tmp_path: Path) -> None:
    replaced = tmp_path / "events.db.before-restore"
    with closing(Store(tmp_path / "events.db", clock=lambda: NOW)) as store:
        for days, stays in ((6, True), (8, False)):
            replaced.write_bytes(b"x")
            os.utime(replaced, (NOW - days * DAY_S,) * 2)
            store.retain(RetentionSettings(), NOW)
            assert replaced.exists() == stays


def recorded(directory: Path, **ages_days: float) -> None:
    (directory / "door").mkdir(exist_ok=True)
    for name, age in ages_days.items():
        path = directory / "door" / f"{name}.parquet"
        path.write_bytes(b"x")
        os.utime(path, (NOW - age * DAY_S,) * 2)


def names(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*/*.parquet")}


def retained(directory: Path, wall: float, time: float) -> set[str]:
    recorder.retain(directory, days=7, most_mb=1.0, now=wall, store_time=time)
    return names(directory)


def test_recorded_files_are_old_by_the_time_of_the_store(tmp_path: Path) -> None:
    recorded(tmp_path, old=8, new=1)
    assert retained(tmp_path, NOW + YEAR, NOW) == {"new"}
    recorded(tmp_path, ahead=-365)
    assert retained(tmp_path, NOW + YEAR, NOW) == {"new", "ahead"}
    assert retained(tmp_path, NOW + YEAR, NOW + YEAR) == {"ahead"}, "a site that was off"


def test_files_that_a_wrong_clock_stamped_count_from_when_they_are_seen(tmp_path: Path) -> None:
    recorded(tmp_path, behind=3000, new=1)
    assert retained(tmp_path, NOW - 3000 * DAY_S, NOW) == {"behind", "new"}
    recorded(tmp_path, ahead=-365)
    assert retained(tmp_path, NOW, NOW) == {"behind", "new", "ahead"}
    assert retained(tmp_path, NOW + 6.5 * DAY_S, NOW + 6.5 * DAY_S) == {"behind", "ahead"}
    assert retained(tmp_path, NOW + 7.5 * DAY_S, NOW + 7.5 * DAY_S) == set()
