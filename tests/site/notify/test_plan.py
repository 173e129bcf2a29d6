"""When messages are due, and the sink that sends them."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepvad.codec import decode, encode
from stepvad.errors import ConfigError
from stepvad.events.record import DeliveryError, Record
from stepvad.events.rules import ChangeKind
from stepvad.site.notify.plan import (
    GATHER_S,
    HOUR_S,
    LONGEST_S,
    MOST_EVENTS,
    WORDS_S,
    Notification,
    NotificationPlan,
    Notify,
    Scheduler,
    TrackedEvent,
    load_plan,
    plan_file,
)
from stepvad.site.notify.words import Notice, NoticeWords
from stepvad.site.settings.page import NotifySettings
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import SinkDelivery
from stepvad.site.troubles import Fault, TroubleChange
from tests.processes import REASON, unreadable
from tests.site.receivers import start, stop, web_server
from tests.site.records import record
from tests.site.sites import Running, one_person, pose_camera, write_site
from tests.video.servers import wait_until

DAY = time.mktime((2026, 3, 2, 0, 0, 0, 0, 0, -1))
"""A midnight."""


class Clocked:
    """A plan, its rules and a clock; the day has 24 hours from `DAY` on."""

    def __init__(self, now: float = DAY + 12 * HOUR_S, **rules: Any) -> None:
        self.scheduler = Scheduler(NotifySettings(to=["browsers"], **rules))
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
    clock = Clocked(cameras=["gate"])
    clock.start(camera="yard", why="x")
    assert clock.tick() is None
    clock.start(1, camera="gate", why="x")
    assert clock.tick() is not None

    clock = Clocked(zones=["door"])
    one = clock.start(zones=("gate",), why="x")
    assert clock.tick() is None
    clock.change(replace(one, zones=("gate", "door")))
    assert clock.tick() == Notification("new", (one.id,)), "somebody walked into the zone"


@pytest.mark.parametrize(("hour", "quiet"), [(21.9, False), (22, True), (3, True), (6, False)])
def test_quiet_hours_go_over_midnight(hour: float, quiet: bool) -> None:
    clock = Clocked(DAY + hour * HOUR_S, quiet_hours=["22:00-06:00"])
    assert clock.scheduler.rules.quiet.include(clock.now) is quiet
    clock.start(why="x")
    assert (clock.tick() is None) is quiet


def test_quiet_hours_within_a_day_and_up_to_midnight() -> None:
    clock = Clocked(quiet_hours=["12:00-13:00", "23:00-24:00"])
    quiet = [h for h in range(24) if clock.scheduler.rules.quiet.include(DAY + h * HOUR_S)]
    assert quiet == [12, 23]


def test_what_happened_in_quiet_hours_comes_in_one_message_after_them() -> None:
    clock = Clocked(DAY + 23 * HOUR_S, quiet_hours=["22:00-06:00"])
    ids = [clock.start(number, why="x").id for number in range(3)]
    for _ in range(7):
        last = clock.tick(HOUR_S)
    assert last == Notification("new", tuple(ids))
    assert clock.sent == [("new", 3)]


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
    clock = Clocked(repeat_minutes=5, repeat_times=3)
    one = clock.start(why="x")
    clock.tick()
    assert clock.tick(299) is None
    assert clock.tick(1) == Notification("again", (one.id,))
    clock.seen.add(one.id)
    for _ in range(5):
        assert clock.tick(300) is None


def test_repeats_end_by_themselves_and_go_on_after_the_event() -> None:
    clock = Clocked(repeat_minutes=5, repeat_times=2)
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
    clock = Clocked(most_per_hour=4, repeat_minutes=1, repeat_times=100)
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
    clock = Clocked(DAY + 21.9 * HOUR_S, quiet_hours=["22:00-06:00"], repeat_minutes=30)
    clock.start(why="x")
    clock.tick()
    for _ in range(18):
        clock.tick(1800)
    assert [kind for kind, _ in clock.sent] == ["new", "again", "again"]


def test_a_clock_that_was_set_back_stops_nothing() -> None:
    clock = Clocked(most_per_hour=1, repeat_minutes=1, repeat_times=5)
    clock.start(why="x")
    clock.tick()
    clock.now -= 30 * 86400
    assert clock.tick() is None, "the repeat is due within its usual time"
    assert clock.tick(60) is not None


def test_the_plan_is_bounded() -> None:
    clock = Clocked(DAY, quiet_hours=["00:00-24:00"])
    plan = NotificationPlan(tuple(TrackedEvent(f"e{n}", 1.0) for n in range(MOST_EVENTS)))
    plan = clock.scheduler.changed(plan, "new", record(), DAY)
    assert len(plan.events) == MOST_EVENTS
    assert plan.events[-1].id == record().id


NOW = 1_700_000_000.0


class People:
    """A target that fails as it is told."""

    label = "env:PEOPLE"
    has_people = True

    def __init__(self) -> None:
        self.got: list[Notice] = []
        self.failures: list[DeliveryError] = []
        self.wrong: ConfigError | None = None
        self.cancelled = False

    def describe(self) -> str:
        if self.wrong is not None:
            raise self.wrong
        return "people"

    def deliver(self, notice: Notice) -> str:
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(notice)
        return "fine"

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    """A store, people, and a sink that can be started again; the clock is the test's."""

    def __init__(self, directory: Path, **rules: Any) -> None:
        self.now, self.people, self.directory = NOW, People(), directory
        self.store = Store(directory / "events.db", ["notify:people"], clock=lambda: self.now)
        self.rules = NotifySettings(to=["browsers"], **({"most_per_hour": 100} | rules))
        self.restart()

    def restart(self) -> None:
        """All that is not on disk is lost."""
        words = NoticeWords("mill", "http://mill")
        file = plan_file(self.directory, "notify:people")
        self.sink = Notify(
            *("notify:people", self.people, Scheduler(self.rules), words, self.store, file),
            monotonic=lambda: self.now,
        )

    def happen(self, number: int = 0, **changes: Any) -> Record:
        facts: dict[str, Any] = {"start_time": self.now, "why": "left arm raised"} | changes
        one = record(number=number, **facts)
        self.store.change("new", one)
        return one

    def deliver(self) -> None:
        """What a delivery does with what waits."""
        for waiting in self.store.outbox.pending("notify:people"):
            self.sink.send(waiting.kind, waiting.message)
            self.store.outbox.delivered(waiting)

    def tick(self, seconds: float = 0.0) -> bool:
        self.now += seconds
        self.deliver()
        return self.sink.send_due()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


def test_one_message_for_an_event_with_a_link_to_it(bench: Bench) -> None:
    one = bench.happen()
    assert bench.tick()
    bench.store.change("update", replace(one, score=9.0, top_score=9.0))
    bench.store.change("end", replace(one, score=9.0, top_score=9.0).ended("calm", NOW + 5))
    assert not bench.tick(60)
    (told,) = bench.people.got
    assert told.title == "Yard, gate"
    assert told.body.startswith("Someone is moving unusually: left arm raised. ")
    assert told.link == f"http://mill/#event/{one.id}"


def test_the_words_are_those_of_the_store_when_it_is_sent(bench: Bench) -> None:
    one = bench.happen(why=None)
    assert not bench.tick(1)
    bench.store.change("update", replace(one, why="right leg lifted"))
    assert bench.tick(1)
    assert "right leg lifted" in bench.people.got[0].body


def test_nothing_is_sent_of_what_was_deleted(bench: Bench) -> None:
    one = bench.happen(why=None)
    bench.tick()
    bench.store.delete(ids=[one.id], include_open=True)
    assert not bench.tick(60)
    assert bench.people.got == []
    assert load_plan(plan_file(bench.directory, "notify:people")).events == ()


def test_after_a_restart_nothing_is_sent_twice_and_repeats_go_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, repeat_minutes=5, repeat_times=2)
    one = bench.happen()
    assert bench.tick()
    bench.restart()
    bench.sink.send("new", bench_message(one))  # not yet marked as delivered when it died
    assert not bench.tick(299)
    bench.restart()
    assert bench.tick(1)
    assert [told.body.startswith("Nobody has looked yet.") for told in bench.people.got] == [
        *(False, True)
    ]
    bench.store.see(one.id, bench.now, "guard")
    bench.restart()
    assert not bench.tick(300)
    bench.store.close()


def bench_message(one: Record) -> Any:
    from stepvad.events.record import message

    return message("new", None, one)


def test_the_hourly_limit_survives_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_per_hour=2)
    for number in range(4):
        bench.happen(number)
        bench.tick(1)
        bench.restart()
    assert len(bench.people.got) == 2
    assert "further events follow in one message" in bench.people.got[1].body
    assert bench.tick(3600)
    assert bench.people.got[2].title == "mill: 2 events"
    bench.store.close()


def test_what_nobody_could_get_does_not_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_per_hour=1)
    bench.people.has_people = False
    for number in range(5):
        bench.happen(number)
        assert not bench.tick(1)
    bench.people.has_people = True
    assert not bench.tick(1), "what happened before somebody asked is no news"
    bench.happen(5)
    assert bench.tick(1)
    assert [told.title for told in bench.people.got] == ["Yard, gate"]
    bench.store.close()


def test_a_failure_is_tried_again_later_and_nothing_is_lost(bench: Bench) -> None:
    bench.people.failures = [DeliveryError("down"), DeliveryError("down")]
    bench.happen()
    with pytest.raises(DeliveryError, match="down"):
        bench.tick()
    assert not bench.tick(0.5), "not at once"
    bench.happen(1)
    with pytest.raises(DeliveryError, match="down"):
        bench.tick(10)
    bench.restart()
    assert bench.tick(10)
    assert [told.title for told in bench.people.got] == ["mill: 2 events"]


def test_troubles_that_come_together_are_one_message_whatever_the_hour(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_per_hour=1, quiet_hours=["00:00-24:00"])
    for camera in ("door", "gate", "yard"):
        fault = Fault(key=camera, words=f"camera {camera} is offline", detail="no answer")
        bench.sink.trouble(TroubleChange("begin", fault, bench.now, 30.0))
        assert not bench.tick(1)
    assert bench.tick(GATHER_S)
    assert not bench.tick(GATHER_S)
    (told,) = bench.people.got
    assert told.title == "mill: camera door is offline, camera gate is offline and 1 more"
    assert told.body.count("No answer. ") == 3
    assert bench.sink._plan.sent == (), "it does not count towards the hourly limit"
    bench.store.close()


def test_a_wrong_address_is_found_before_the_first_event(bench: Bench) -> None:
    bench.people.wrong = ConfigError("env:PEOPLE: expected an address", hint="mend it")
    with pytest.raises(DeliveryError, match="expected an address; mend it"):
        bench.tick()
    assert not bench.tick(1), "it is not checked all the time"
    bench.people.wrong = None
    bench.happen()
    assert bench.tick(LONGEST_S)


def test_a_damaged_plan_is_said_and_starts_afresh(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.happen()
    bench.tick()
    file = plan_file(bench.directory, "notify:people")
    assert file.stat().st_mode & 0o777 == 0o600
    for text in ("{", json.dumps({"events": {}}), " " * (1 << 21)):
        file.write_text(text)
        bench.restart()
        assert not bench.tick()
        assert "start afresh" in caplog.text
        caplog.clear()


def test_a_delivery_sends_when_it_is_due_and_shows_failures(tmp_path: Path) -> None:
    store = Store(tmp_path / "events.db", ["notify:people"])
    people = People()
    people.failures = [DeliveryError("the service is down")]
    sink = Notify(
        *(
            "notify:people",
            people,
            Scheduler(NotifySettings(to=["browsers"])),
            NoticeWords("mill"),
            store,
        ),
        tmp_path / "plan.json",
    )
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    store.change("new", record(why=None))
    wait_until(lambda: delivery.last_error == "the service is down")
    store.change("update", record(why="x", score=4.5))
    wait_until(lambda: store.outbox.lag("notify:people") == 0)
    assert delivery.last_error == "the service is down", "a message taken down is not yet sent"
    wait_until(lambda: len(people.got) == 1)
    wait_until(lambda: delivery.last_error is None)
    assert (delivery.sent, delivery.failures) == (1, 1)
    stop(running, delivery)
    assert people.cancelled
    store.close()


def test_a_plan_that_cannot_be_read_now_is_kept_and_its_messages_are_sent_later(
    bench: Bench,
) -> None:
    bench.happen(why=None)
    bench.tick()
    with unreadable(plan_file(bench.directory, "notify:people")):
        bench.restart()
        bench.happen(1)
        with pytest.raises(DeliveryError, match=f"expected a readable plan, got: {REASON}"):
            bench.deliver()
        bench.now += LONGEST_S
        with pytest.raises(DeliveryError, match="expected a readable plan"):
            bench.sink.send_due()
    assert bench.tick(LONGEST_S)
    assert bench.people.got[0].title == "mill: 2 events"


def test_people_hear_of_events_although_the_disk_fails_with_the_plan_on_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, plan: NotificationPlan) -> None:
        raise OSError(errno.EIO, "Input/output error")

    bench.happen(why=None)
    bench.tick()
    with unreadable(plan_file(bench.directory, "notify:people")):
        bench.restart()
        monkeypatch.setattr("stepvad.site.notify.plan.write_state", fail)
        unstored = replace(bench_message(bench.happen(1)), stored=False)
        bench.store._database.trouble = "the disk fails"
        bench.sink.send("new", unstored)
        assert bench.sink.send_due()
    assert [told.title for told in bench.people.got] == ["Yard, gate"]


def test_a_plan_of_a_newer_version_is_left_as_it_is(bench: Bench) -> None:
    file = plan_file(bench.directory, "notify:people")
    file.parent.mkdir()
    file.write_text('{"version": 2}')
    bench.happen()
    with pytest.raises(DeliveryError, match="expected version 1, got 2"):
        bench.deliver()
    assert file.read_text() == '{"version": 2}'


@pytest.mark.slow
def test_a_site_that_is_killed_in_the_middle_of_repeats_goes_on_with_them(tmp_path: Path) -> None:
    """The site is killed with kill -9 after the second message."""
    with web_server() as server:
        server.statuses = [200] * 100
        people = (
            '[[sinks.notify]]\nto = ["env:PEOPLE"]\nrepeat_minutes = 0.03\nrepeat_times = 4\n'
            'cameras = ["door"]\ntroubles = false\n'
        )
        clip = one_person(120.0, every_s=120.0, for_s=4.0, phase_s=118.0)
        path = write_site(tmp_path, pose_camera("door", clip, tmp_path), people)
        address = f"json://{server.address.removeprefix('http://')}/hook"
        with Running(path, more={"PEOPLE": address}) as site:
            wait_until(lambda: len(server.got) >= 1, 60)
            pose_camera("door", one_person(120.0, for_s=0.0), tmp_path)  # nothing happens again
            plan = plan_file(site.data, "notify:people")
            wait_until(lambda: load_plan(plan).events[0].told >= 2, 30)
            first = site.processes()["site"]
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: site.processes().get("site", first) != first, 30)
            wait_until(lambda: len(server.got) >= 5, 60)
            assert site.stop() == 0
            assert len(site.events()) == 1
        bodies = [json.loads(one.body)["message"] for one in server.got]
        assert len(bodies) == 5, "one message and four repeats, before and after the kill"
        assert not bodies[0].startswith("Nobody has looked yet.")
        assert all(body.startswith("Nobody has looked yet.") for body in bodies[1:])
        assert address not in site.log.read_text()
