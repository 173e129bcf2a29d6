"""When messages are due, by a clock that the tests hold."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from stepvad.codec import decode, encode
from stepvad.incidents.events import ChangeKind
from stepvad.incidents.hours import WatchHours
from stepvad.incidents.record import Record
from stepvad.settings.notify import NotifySettings
from stepvad.site.notifications.plan import (
    HOUR_S,
    MOST_EVENTS,
    WORDS_S,
    Notification,
    NotificationPlan,
    NotificationRules,
    Scheduler,
    TrackedEvent,
)
from tests.site.records import record

DAY = time.mktime((2026, 3, 2, 0, 0, 0, 0, 0, -1))
"""A midnight."""


class Clocked:
    """A plan, its rules and a clock; the day has 24 hours from `DAY` on."""

    def __init__(self, now: float = DAY + 12 * HOUR_S, **rules: Any) -> None:
        quiet = WatchHours.parse(rules.pop("quiet", []))
        self.scheduler = Scheduler(NotificationRules(quiet=quiet, **rules))
        self.plan, self.now = NotificationPlan(), now
        self.seen: set[str] = set()
        self.sent: list[tuple[str, int]] = []

    def start(self, number: int = 0, **changes: Any) -> Record:
        one = record(number=number, start_time=self.now, **changes)
        self.plan = self.scheduler.changed(self.plan, "new", one, self.now)
        return one

    def change(self, one: Record) -> None:
        kind: ChangeKind = "update" if one.is_open else "end"
        self.plan = self.scheduler.changed(self.plan, kind, one, self.now)

    def next(self) -> Notification | None:
        """What is due now; the plan is written and read on the way."""
        self.plan = decode(NotificationPlan, encode(self.plan), "plan")
        self.plan, found = self.scheduler.next(self.plan, self.now, self.seen)
        return found

    def tick(self, seconds: float = 0.0) -> Notification | None:
        """Let time pass and send what is due, if anything is."""
        self.now += seconds
        found = self.next()
        if found is not None:
            self.sent.append((found.kind, len(found.ids)))
            self.plan = self.scheduler.told(self.plan, found, self.now)
        return found


def test_a_message_waits_a_moment_for_the_words_and_no_longer() -> None:
    clock = Clocked()
    one = clock.start()
    assert clock.tick(WORDS_S - 0.1) is None
    assert clock.tick(0.1) == Notification("new", (one.id,))
    assert clock.tick(100) is None


def test_the_words_end_the_wait() -> None:
    clock = Clocked()
    one = clock.start()
    clock.now += 1.0
    clock.change(replace(one, why="left arm raised"))
    assert clock.tick() == Notification("new", (one.id,))
    clock.change(replace(one, why="left arm raised higher"))
    assert clock.tick(100) is None, "no message for updates"


def test_an_event_with_words_is_told_at_once_and_only_once() -> None:
    clock = Clocked()
    one = clock.start(why="left arm raised")
    assert clock.tick() is not None
    clock.plan = clock.scheduler.changed(clock.plan, "new", one, clock.now)  # delivered again
    assert clock.tick(1000) is None
    clock.change(one.ended("calm", clock.now))
    assert clock.tick(1000) is None
    assert clock.plan.events == (), "over and done"


def test_an_event_that_ends_before_it_was_told_is_told_all_the_same() -> None:
    clock = Clocked()
    one = clock.start()
    clock.change(one.ended("calm", clock.now + 1))
    assert clock.tick(WORDS_S) == Notification("new", (one.id,))


def test_only_cameras_and_zones_that_were_asked_for() -> None:
    clock = Clocked(cameras=frozenset({"gate"}))
    clock.start(camera="yard", why="x")
    assert clock.tick() is None
    clock.start(1, camera="gate", why="x")
    assert clock.tick() is not None

    clock = Clocked(zones=frozenset({"door"}))
    one = clock.start(zones=("gate",), why="x")
    assert clock.tick() is None
    clock.change(replace(one, zones=("gate", "door")))
    assert clock.tick() == Notification("new", (one.id,)), "somebody walked into the zone"


@pytest.mark.parametrize(("hour", "quiet"), [(21.9, False), (22, True), (3, True), (6, False)])
def test_quiet_hours_go_over_midnight(hour: float, quiet: bool) -> None:
    clock = Clocked(DAY + hour * HOUR_S, quiet=["22:00-06:00"])
    assert clock.scheduler.rules.quiet.include(clock.now) is quiet
    clock.start(why="x")
    assert (clock.tick() is None) is quiet


def test_quiet_hours_within_a_day_and_up_to_midnight() -> None:
    clock = Clocked(quiet=["12:00-13:00", "23:00-24:00"])
    quiet = [h for h in range(24) if clock.scheduler.rules.quiet.include(DAY + h * HOUR_S)]
    assert quiet == [12, 23]


def test_what_happened_in_quiet_hours_comes_in_one_message_after_them() -> None:
    clock = Clocked(DAY + 23 * HOUR_S, quiet=["22:00-06:00"])
    ids = [clock.start(number, why="x").id for number in range(3)]
    for _ in range(7):
        last = clock.tick(HOUR_S)
    assert last == Notification("new", tuple(ids))
    assert clock.sent == [("new", 3)]


def test_what_happened_in_quiet_hours_can_be_dropped() -> None:
    clock = Clocked(DAY + 23 * HOUR_S, quiet=["22:00-06:00"], drop_quiet=True)
    one = clock.start(why="x")
    clock.now += 10 * HOUR_S
    clock.change(replace(one, why="y"))
    assert clock.tick() is None, "it began when it was quiet"
    clock.change(one.ended("calm", clock.now))
    assert clock.plan.events == ()
    clock.start(1, why="x")
    assert clock.tick() is not None


def test_at_most_so_many_an_hour_and_the_rest_in_one() -> None:
    clock = Clocked(most_per_hour=3)
    began = clock.now
    for number in range(10):
        clock.start(number, why="x")
        last = clock.tick(60)
        if number == 2:
            assert last is not None
            assert last.next_at == began + 60 + HOUR_S, "people are told when the next may come"
    assert clock.sent == [("new", 1)] * 3
    for _ in range(60):
        clock.tick(60)
    assert clock.sent == [("new", 1)] * 3 + [("new", 7)]


def test_a_message_is_repeated_until_somebody_has_seen_the_event() -> None:
    clock = Clocked(repeat_s=300.0, repeat_times=3)
    one = clock.start(why="x")
    clock.tick()
    assert clock.tick(299) is None
    assert clock.tick(1) == Notification("again", (one.id,))
    clock.seen.add(one.id)
    for _ in range(5):
        assert clock.tick(300) is None


def test_repeats_end_by_themselves_and_go_on_after_the_event() -> None:
    clock = Clocked(repeat_s=300.0, repeat_times=2)
    one = clock.start(why="x")
    clock.tick()
    clock.change(one.ended("calm", clock.now))
    for _ in range(6):
        clock.tick(300)
    assert clock.sent == [("new", 1), ("again", 1), ("again", 1)]
    assert clock.plan.events == ()


def test_an_event_that_was_seen_before_its_message_needs_none() -> None:
    clock = Clocked()
    one = clock.start()
    clock.seen.add(one.id)
    assert clock.tick(100) is None


def test_repeats_come_together_and_leave_the_last_message_of_an_hour_to_news() -> None:
    clock = Clocked(most_per_hour=4, repeat_s=60.0, repeat_times=100)
    for number in range(2):
        clock.start(number, why="x")
        clock.tick()
    for _ in range(10):
        clock.tick(60)
    assert clock.sent == [("new", 1), ("new", 1), ("again", 2)]
    clock.start(5, why="x")
    clock.tick(1)
    assert clock.sent[-1] == ("new", 1)


def test_repeats_rest_in_quiet_hours() -> None:
    clock = Clocked(DAY + 21.9 * HOUR_S, quiet=["22:00-06:00"], repeat_s=1800.0)
    clock.start(why="x")
    clock.tick()
    for _ in range(18):
        clock.tick(1800)
    assert [kind for kind, _ in clock.sent] == ["new", "again", "again"]


def test_that_it_is_over_is_said_if_asked_for_and_if_it_can_be_said_now() -> None:
    clock = Clocked(say_when_over=True)
    one = clock.start(why="x")
    clock.tick()
    clock.change(one.ended("calm", clock.now + 5))
    assert clock.tick(5) == Notification("over", (one.id,))
    assert clock.tick(5) is None

    clock = Clocked(DAY + 21.99 * HOUR_S, say_when_over=True, quiet=["22:00-06:00"])
    one = clock.start(why="x")
    clock.tick()
    clock.now += HOUR_S
    clock.change(one.ended("calm", clock.now))
    clock.tick()
    assert clock.tick(12 * HOUR_S) is None, "nobody needs it in the morning"
    assert clock.plan.events == ()


def test_a_clock_that_was_set_back_stops_nothing() -> None:
    clock = Clocked(most_per_hour=1, repeat_s=60.0, repeat_times=5)
    clock.start(why="x")
    clock.tick()
    clock.now -= 30 * 86400
    assert clock.tick() is None, "the repeat is due within its usual time"
    assert clock.tick(60) is not None


def test_the_plan_is_bounded() -> None:
    clock = Clocked(DAY, quiet=["00:00-24:00"])
    plan = NotificationPlan(tuple(TrackedEvent(f"e{n}", 1.0) for n in range(MOST_EVENTS)))
    plan = clock.scheduler.changed(plan, "new", record(), DAY)
    assert len(plan.events) == MOST_EVENTS
    assert plan.events[-1].id == record().id


def test_the_rules_are_those_of_the_settings() -> None:
    settings = NotifySettings(
        to=["browsers"],
        cameras=["yard"],
        zones=["gate"],
        quiet_hours=["22:00-06:30", "12:00-24:00"],
        in_quiet_hours="drop",
        most_per_hour=5,
        repeat_minutes=2.5,
        repeat_times=4,
        say_when_over=True,
    )
    assert NotificationRules.of(settings) == NotificationRules(
        cameras=frozenset({"yard"}),
        zones=frozenset({"gate"}),
        quiet=WatchHours(((1320, 390), (720, 1440))),
        drop_quiet=True,
        most_per_hour=5,
        repeat_s=150.0,
        repeat_times=4,
        say_when_over=True,
    )
