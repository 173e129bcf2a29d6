from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepvad.events import Kind
from stepvad.live.courier import Courier
from stepvad.live.sinks import DeliveryError, RefusedError
from stepvad.live.store import Store
from tests.live.records import record
from tests.video.servers import wait_until


class Receiver:
    """A sink that fails as it is told."""

    def __init__(self, name: str = "mqtt") -> None:
        self.name = name
        self.got: list[tuple[Kind, str]] = []
        self.tried_at: list[float] = []
        self.failures: list[Exception] = []
        self.is_down = False
        self.closed = False
        self.on_connected: Callable[[], None] = lambda: None

    def send(self, kind: Kind, message: dict[str, Any]) -> None:
        self.tried_at.append(time.monotonic())
        if self.is_down:
            raise DeliveryError("down")
        if self.failures:
            raise self.failures.pop(0)
        self.got.append((kind, message["after"]["id"]))

    def status(self, camera: str, state: str) -> None: ...

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
    courier = Courier(store, sink)
    courier.start()
    wanted += fill(store, range(3, 6))
    wait_until(lambda: courier.is_idle)
    courier.stop()
    assert sink.got == wanted
    assert sink.closed
    assert (courier.sent, courier.failures, courier.last_error) == (12, 0, None)


def test_a_message_is_on_its_way_at_once(store: Store) -> None:
    sink = Receiver()
    courier = Courier(store, sink)
    courier.start()
    time.sleep(0.2)
    fill(store, range(1))
    assert wait_until(lambda: len(sink.got) == 2) < 1.0
    courier.stop()


def test_a_failure_is_tried_again_before_anything_else(store: Store) -> None:
    wanted = fill(store, range(2))
    sink, heard = Receiver(), []
    sink.failures = [DeliveryError("busy"), ValueError("canary"), DeliveryError("busy")]
    courier = Courier(store, sink, lambda name, error: heard.append((name, error)), first_s=0.01)
    courier.start()
    wait_until(lambda: courier.is_idle)
    courier.stop()
    assert sink.got == wanted
    assert heard == [("mqtt", "busy"), ("mqtt", "ValueError"), ("mqtt", "busy")]
    assert courier.failures == 3
    assert store.dead_letters() == []


def test_waits_grow_and_have_a_limit(store: Store) -> None:
    courier = Courier(store, Receiver(), first_s=0.5, longest_s=60.0)
    for tries, longest in ((0, 0.5), (1, 1.0), (4, 8.0), (7, 60.0), (1000, 60.0)):
        waits = [courier._delay_s(tries, 0.0) for _ in range(50)]
        assert longest / 2 <= min(waits) < max(waits) <= longest
    assert courier._delay_s(0, 30.0) == 30.0
    assert courier._delay_s(0, 1e9) == 60.0


def test_what_is_refused_for_good_is_kept_aside_and_the_rest_goes_on(store: Store) -> None:
    wanted = fill(store, range(2))
    sink = Receiver()
    sink.failures = [RefusedError("410", hint="gone")]
    courier = Courier(store, sink)
    courier.start()
    wait_until(lambda: courier.is_idle)
    courier.stop()
    assert sink.got == wanted[1:]
    (dead,) = store.dead_letters("mqtt")
    assert (dead.kind, dead.event_id, dead.error) == (*wanted[0], "410; gone")
    assert courier.refused == 1


def test_one_sink_that_is_down_holds_up_no_other(store: Store) -> None:
    sinks = [Receiver("mqtt"), Receiver("file")]
    sinks[0].is_down = True
    couriers = [Courier(store, sink) for sink in sinks]
    for courier in couriers:
        courier.start()
    wanted = fill(store, range(3))
    wait_until(lambda: couriers[1].is_idle, 5)
    assert sinks[1].got == wanted
    assert store.lag("mqtt") == 6
    for courier in couriers:
        courier.stop()


def test_a_sink_that_is_back_is_served_at_once(store: Store) -> None:
    sink = Receiver()
    sink.is_down = True
    courier = Courier(store, sink, first_s=60.0)
    courier.start()
    wanted = fill(store, range(2))
    wait_until(lambda: courier.failures > 0)
    sink.is_down = False
    sink.on_connected()
    assert wait_until(lambda: courier.is_idle) < 5
    courier.stop()
    assert sink.got == wanted


def test_what_did_not_arrive_before_a_stop_arrives_after_the_next_start(store: Store) -> None:
    wanted = fill(store, range(2))
    first = Receiver()
    first.is_down = True
    courier = Courier(store, first, first_s=60.0)
    courier.start()
    wait_until(lambda: courier.failures > 0)
    begin = time.monotonic()
    courier.stop()
    assert time.monotonic() - begin < 2
    second = Receiver()
    courier = Courier(store, second)
    courier.start()
    assert wait_until(lambda: courier.is_idle) < 5
    courier.stop()
    assert second.got == wanted


def test_a_courier_outlives_a_store_that_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = fill(store, range(1))
    sink, broken = Receiver(), threading.Event()
    broken.set()
    delivered = store.delivered

    def full(sink: str, seq: int) -> None:
        if broken.is_set():
            raise OSError("database or disk is full")
        delivered(sink, seq)

    monkeypatch.setattr(store, "delivered", full)
    courier = Courier(store, sink, longest_s=0.1)
    courier.start()
    wait_until(lambda: courier.failures > 2)
    broken.clear()
    wait_until(lambda: courier.is_idle)
    courier.stop()
    assert [*dict.fromkeys(sink.got)] == wanted


def test_a_courier_that_never_began_can_be_stopped(store: Store) -> None:
    sink = Receiver()
    Courier(store, sink).stop()
    assert sink.closed
