from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stepvad.events.record import DeliveryError, RefusedError, message
from stepvad.fleet import streams
from stepvad.fleet.connection import Connection, ConnectionThread, connected
from stepvad.fleet.outbox import FleetSink
from stepvad.fleet.settings import StreamSettings
from tests.fleet.servers import Broker, broker, broker_settings
from tests.site.records import record
from tests.video.servers import wait_until

QUOTA = 10
NEW = message("new", None, record(version=1))


@pytest.fixture
def site(server: Broker) -> Iterator[ConnectionThread]:
    """The connection of a site, to a broker with the streams of a fleet."""

    async def set_up() -> None:
        async with connected(broker_settings([server]), "admin") as admin:
            await streams.set_up(admin, StreamSettings(events_per_site=QUOTA))

    asyncio.run(set_up())
    made = ConnectionThread(broker_settings([server]), "north")
    yield made
    made.close()


def test_a_change_is_stored_as_the_site_has_it_and_can_be_sent_again(
    site: ConnectionThread,
) -> None:
    sink = FleetSink(site, site="north")
    for _ in range(2):
        sink.send("new", NEW)
        sink.close()  # which leaves the shared connection open
    assert waiting(site) == 2  # no message id: what names one could be taken by another site
    last = site.ask(lambda broker: broker.js.get_last_msg("EVENTS", "events.north"), 5)
    told = json.loads(last.data or b"")
    assert (told["type"], told["site"], told["schema"]) == ("new", "north", 1)
    assert told["event"]["id"] == NEW.after.id
    assert (told["event"]["camera"], told["event"]["version"]) == ("yard", 1)


def waiting(site: ConnectionThread) -> int:
    async def count(broker: Connection) -> int:
        return (await broker.js.stream_info("EVENTS")).state.messages

    return site.ask(count, 5)


def test_a_full_quota_of_a_site_is_tried_again_and_fills_no_other(site: ConnectionThread) -> None:
    sink = FleetSink(site, site="north")
    for _ in range(QUOTA):
        sink.send("new", NEW)
    with pytest.raises(DeliveryError, match="maximum messages per subject") as refused:
        sink.send("new", NEW)
    assert not isinstance(refused.value, RefusedError)
    assert "writer" in refused.value.hint
    FleetSink(site, site="south").send("new", NEW)
    assert waiting(site) == QUOTA + 1


def test_a_message_that_can_never_be_sent_is_refused(site: ConnectionThread) -> None:
    why = "x" * streams.MAX_EVENT
    large = message("update", None, record(version=2, why=why))
    with pytest.raises(RefusedError, match="expected at most 200000 bytes, got 200"):
        FleetSink(site, site="north").send("update", large)
    assert waiting(site) == 0


def test_a_broker_that_takes_less_than_the_streams_refuses_a_message(
    tmp_path: Path,
) -> None:
    with broker(tmp_path / "small", payload="1KB") as server:
        site = ConnectionThread(broker_settings([server]), "north")
        try:
            large = message("update", None, record(version=2, why="x" * 2000))
            with pytest.raises(RefusedError, match="expected a smaller message"):
                FleetSink(site, site="north").send("update", large)
        finally:
            site.close()


def test_a_broker_that_is_away_is_tried_again(server: Broker, site: ConnectionThread) -> None:
    sink = FleetSink(site, site="north")
    sink.send("new", NEW)
    server.kill()
    started = time.monotonic()
    with pytest.raises(DeliveryError) as refused:
        sink.send("new", NEW)
    assert not isinstance(refused.value, RefusedError)
    assert time.monotonic() - started < 10
    server.start()

    def is_sent() -> bool:
        with suppress(DeliveryError):
            sink.send("new", NEW)
            return True
        return False

    wait_until(is_sent, 40)
