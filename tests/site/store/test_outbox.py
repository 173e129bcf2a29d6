"""Messages of the outbox on their way to sinks that fail, hang, refuse and come back."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from stepvad.codec import to_plain
from stepvad.events.record import DeliveryError, RefusedError, SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import SinkDelivery
from tests.site.receivers import start, stop
from tests.site.records import record
from tests.video.servers import SLOWER, wait_until


class Receiver:
    """A sink that fails as it is told."""

    def __init__(self, name: str = "mqtt") -> None:
        self.name = name
        self.got: list[tuple[ChangeKind, str]] = []
        self.tried_at: list[float] = []
        self.failures: list[Exception] = []
        self.is_down = False
        self.closed = False

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        self.tried_at.append(time.monotonic())
        if self.is_down:
            raise DeliveryError("down")
        if self.failures:
            raise self.failures.pop(0)
        self.got.append((kind, message.after.id))

    def was_tried(self, n: int) -> bool:
        return len(self.tried_at) >= n

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "events.db", ("mqtt", "file"))
    yield made
    made.close()


def fill(store: Store, numbers: range) -> list[tuple[str, str]]:
    for number in numbers:
        store.change("new", record(number=number))
        store.change("end", record(number=number).ended("calm", 2000.0))
    return [(kind, record(number=number).id) for number in numbers for kind in ("new", "end")]


def test_messages_arrive_in_order_whenever_they_were_stored(store: Store) -> None:
    wanted = fill(store, range(3))
    sink = Receiver()
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    wanted += fill(store, range(3, 6))
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    assert sink.got == wanted
    assert sink.closed
    assert (delivery.sent, delivery.failures, delivery.last_error) == (12, 0, None)


def test_a_message_is_on_its_way_at_once(store: Store) -> None:
    sink = Receiver()
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    time.sleep(0.2)
    fill(store, range(1))
    assert wait_until(lambda: len(sink.got) == 2) < 1.0
    stop(running, delivery)


def test_a_failure_is_tried_again_before_anything_else(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = fill(store, range(2))
    sink = Receiver()
    sink.failures = [DeliveryError("busy"), ValueError("canary"), DeliveryError("busy")]
    delivery = SinkDelivery(store.outbox, sink, first_s=0.01)
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    assert sink.got == wanted
    warned = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warned == ["sink mqtt: busy", "sink mqtt: ValueError", "sink mqtt: busy"]
    assert delivery.failures == 3
    assert store.outbox.dead_letters() == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"type": "new"', "message: expected JSON"),
        ("{}", "message: expected type, got none"),
        ("newer", "expected version 1, got 2"),
    ],
)
def test_a_message_that_nobody_can_read_is_put_aside_and_others_go_on(
    store: Store, body: str, words: str
) -> None:
    bad, good = fill(store, range(1))
    if body == "newer":
        after = to_plain(record()) | {"schema": 2}
        body = json.dumps({"type": "new", "before": after, "after": after})
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE outbox SET body = ? WHERE kind = 'new'", (body,))
    sink = Receiver()
    delivery = SinkDelivery(store.outbox, sink, first_s=0.01)
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    assert sink.got == [good]
    (dead,) = store.outbox.dead_letters()
    assert (dead.kind, dead.body) == (bad[0], body)
    assert words in str(dead.error)


def test_waits_go_on_growing_after_a_restart(store: Store) -> None:
    fill(store, range(1))
    sinks = [Receiver(), Receiver()]
    for sink in sinks:
        sink.is_down = True
        delivery = SinkDelivery(store.outbox, sink, first_s=0.02, longest_s=0.6)
        running = start(delivery)
        wait_until(partial(sink.was_tried, 6))
        stop(running, delivery)
    first, second = sinks[1].tried_at[:2]
    assert second - first >= 0.3, "half of the longest wait, and not the first one"


def test_dead_letters_are_sent_again_in_their_place(store: Store) -> None:
    wanted = fill(store, range(2))
    sink = Receiver()
    sink.failures = [RefusedError("400"), RefusedError("413")]
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    wait_until(lambda: store.outbox.counts() == {"file": (4, 0), "mqtt": (0, 2)})
    sink.got.clear()
    assert store.outbox.resend() == 2
    wait_until(lambda: len(sink.got) == 2)
    assert wait_until(lambda: delivery.is_idle) < 2 * SLOWER
    assert store.outbox.resend() == 0
    stop(running, delivery)
    assert sink.got == wanted[:2]
    assert store.outbox.dead_letters() == []


def test_a_delivery_beats_while_a_sink_is_down_and_while_nothing_waits(store: Store) -> None:
    sink = Receiver()
    sink.is_down = True
    delivery = SinkDelivery(store.outbox, sink, first_s=0.01, longest_s=0.05)
    running = start(delivery)
    fill(store, range(1))
    wait_until(lambda: delivery.failures > 3)
    assert delivery.stage.heartbeat.age_s < 1.0 * SLOWER
    assert 35.0 < delivery.stage.heartbeat.deadline_s <= 60.0, "one send, not the longest wait"
    stop(running, delivery)


def test_what_is_refused_for_good_is_kept_aside_and_the_rest_goes_on(store: Store) -> None:
    wanted = fill(store, range(2))
    sink = Receiver()
    sink.failures = [RefusedError("410", hint="gone")]
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    assert sink.got == wanted[1:]
    (dead,) = store.outbox.dead_letters("mqtt")
    assert (dead.kind, dead.event_id, dead.error) == (*wanted[0], "410; gone")
    assert delivery.refused == 1


def test_one_sink_that_is_down_holds_up_no_other(store: Store) -> None:
    sinks = [Receiver("mqtt"), Receiver("file")]
    sinks[0].is_down = True
    deliveries = [SinkDelivery(store.outbox, sink) for sink in sinks]
    running = [start(delivery) for delivery in deliveries]
    wanted = fill(store, range(3))
    wait_until(lambda: deliveries[1].is_idle, 5)
    assert sinks[1].got == wanted
    assert store.outbox.lag("mqtt") == 6
    for supervisor, delivery in zip(running, deliveries, strict=True):
        stop(supervisor, delivery)


def test_a_sink_that_is_back_is_served_at_once(store: Store) -> None:
    sink = Receiver()
    sink.is_down = True
    delivery = SinkDelivery(store.outbox, sink, first_s=60.0)
    running = start(delivery)
    wanted = fill(store, range(2))
    wait_until(lambda: delivery.failures > 0)
    sink.is_down = False
    delivery.wake()
    assert wait_until(lambda: delivery.is_idle) < 2 * SLOWER
    stop(running, delivery)
    assert sink.got == wanted


def test_what_did_not_arrive_before_a_stop_arrives_after_the_next_start(store: Store) -> None:
    wanted = fill(store, range(2))
    first = Receiver()
    first.is_down = True
    delivery = SinkDelivery(store.outbox, first, first_s=60.0)
    running = start(delivery)
    wait_until(lambda: delivery.failures > 0)
    begin = time.monotonic()
    stop(running, delivery)
    assert time.monotonic() - begin < 1 * SLOWER
    second = Receiver()
    delivery = SinkDelivery(store.outbox, second)
    running = start(delivery)
    assert wait_until(lambda: delivery.is_idle) < 2 * SLOWER
    stop(running, delivery)
    assert second.got == wanted


def test_a_message_whose_row_cannot_be_deleted_is_sent_once(store: Store) -> None:
    wanted = fill(store, range(2))
    writer = store._database._usable()
    writer.execute("PRAGMA query_only = ON")  # as a disk that turned read-only
    sink = Receiver()
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    wait_until(lambda: sink.got == wanted)
    wait_until(lambda: delivery.is_idle)
    assert "readonly" in store.trouble
    assert len(store.outbox.waiting("mqtt")) == 4
    writer.execute("PRAGMA query_only = OFF")
    store.check()
    assert store.trouble == ""
    delivery.wake()
    wait_until(lambda: store.outbox.waiting("mqtt") == [])
    stop(running, delivery)
    assert sink.got == wanted
    assert delivery.failures == 0
