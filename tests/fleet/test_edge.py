"""Edges in processes of their own, and a broker that is killed under them."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.events.record import Record
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.event_message import of_fleet
from stepvad.fleet.subjects import EVENTS, POSES
from stepvad.fleet.wire import Batch, decode, decode_event
from stepvad.site.store.events import FILE_NAME, Store
from tests.fleet.brokers import Broker, broker, bus_settings
from tests.fleet.roles import Role, bus_section
from tests.site.sites import NO_PAGE, RATE, one_person, pose_camera, write_site
from tests.video.servers import wait_until

SECONDS = 9.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Broker]:
    """A broker that keeps even poses on its disk, to count them after it was killed."""
    with broker(tmp_path / "nats") as made:
        asyncio.run(_streams(made))
        yield made


async def _set_up(server: Broker) -> None:
    async with connected(bus_settings([server]), "test") as bus:
        await bus.setup()


async def _streams(server: Broker) -> None:
    from nats.js import api

    async with connected(bus_settings([server]), "test") as bus:
        await bus.setup()
        await bus._js.delete_stream(POSES)
        poses = api.StreamConfig(name=POSES, subjects=bus.subjects.of_stream(POSES))
        await bus._js.add_stream(poses)


def messages(server: Broker, stream: str) -> list[bytes]:
    """All that a stream keeps, in order."""

    async def go() -> list[bytes]:
        async with connected(bus_settings([server]), "test") as bus:
            last = (await bus._js.stream_info(stream)).state.last_seq
            found = [await bus._js.get_msg(stream, seq) for seq in range(1, last + 1)]
            return [one.data or b"" for one in found]

    return asyncio.run(go())


def last_sequence(server: Broker, stream: str) -> int:
    async def go() -> int:
        async with connected(bus_settings([server]), "test") as bus:
            return (await bus._js.stream_info(stream)).state.last_seq

    return asyncio.run(go())


def by_camera(server: Broker) -> dict[str, list[Batch]]:
    found = defaultdict(list)
    for data in messages(server, POSES):
        batch = decode(data)
        found[batch.connection.name].append(batch)
    return found


def edge(
    directory: Path, server: Broker, *cameras: str, more: str = "", seconds: float = SECONDS
) -> Role:
    clip = one_person(seconds)
    parts = [pose_camera(name, clip, directory).replace("loop = true", "") for name in cameras]
    fleet = f"[fleet]\n{more}\n" + bus_section(server, "fleet.bus")
    return Role("edge", write_site(directory, *parts, fleet, more=NO_PAGE))


def test_a_broker_that_is_away_for_seconds_gets_every_frame_once_and_in_order(
    tmp_path: Path, server: Broker
) -> None:
    n = round(SECONDS * RATE)
    with edge(tmp_path, server, "yard", "gate") as role:
        wait_until(lambda: last_sequence(server, POSES) >= 10)
        server.kill()
        time.sleep(5.0)
        server.start()
        wait_until(lambda: role.log.read_text().count("the file is over") == 2)
        assert role.stop() == 0, role.log.read_text()
    found = by_camera(server)
    assert found.keys() == {"test/yard", "test/gate"}
    for batches in found.values():
        assert [slot for batch in batches for slot in batch.slots] == [*range(n)]
        assert [batch.seq for batch in batches] == [0, *(batch.end for batch in batches[:-1])]
        assert [batch.lost for batch in batches if batch.lost] == ["camera lost"]
        assert len({batch.connection.epoch for batch in batches}) == 1


def test_what_a_broker_forgot_is_sent_again(tmp_path: Path) -> None:
    with broker(tmp_path / "nats") as server:
        asyncio.run(_set_up(server))
        with edge(tmp_path, server, "yard", seconds=5.0) as role:
            wait_until(lambda: last_sequence(server, POSES) >= 3)
            (had,) = by_camera(server).values()
            server.kill()
            server.start()
            asyncio.run(_set_up(server))
            wait_until(lambda: "the file is over" in role.log.read_text())
            assert role.stop() == 0, role.log.read_text()
        (has,) = by_camera(server).values()
    slots = [slot for batch in has for slot in batch.slots]
    assert slots[0] < had[-1].slots[-1], "poses are kept in memory: these were gone"
    assert slots == [*range(slots[0], round(5.0 * RATE))]


def test_a_full_buffer_drops_the_oldest_frames_and_counts_them(
    tmp_path: Path, server: Broker
) -> None:
    n = round(6.0 * RATE)
    with edge(tmp_path, server, "yard", more="buffer_mb = 0.003", seconds=6.0) as role:
        wait_until(lambda: last_sequence(server, POSES) >= 3)
        server.kill()
        time.sleep(3.0)
        server.start()
        wait_until(lambda: "the file is over" in role.log.read_text())
        assert role.stop() == 0, role.log.read_text()
        log = role.log.read_text()
    (batches,) = by_camera(server).values()
    slots = [slot for batch in batches for slot in batch.slots]
    counted = sum(map(int, re.findall(r"buffer full, (\d+) frames", log)))
    assert slots == sorted(set(slots))
    assert counted > 10
    assert 0 <= counted - (n - len(slots)) <= 5, "one message may have arrived unheard of"
    missing = sorted(set(range(n)) - set(slots))
    assert missing == [*range(missing[0], missing[-1] + 1)], "the oldest go, the newest stay"


def test_an_edge_that_is_stopped_says_that_its_cameras_are_gone(
    tmp_path: Path, server: Broker
) -> None:
    with edge(tmp_path, server, "yard", more="frames_per_message = 100\nwait_s = 0.5") as role:
        wait_until(lambda: last_sequence(server, POSES) >= 1)
        assert role.stop() == 0, role.log.read_text()
        (batches,) = by_camera(server).values()
        assert batches[-1].lost == "stopped"
        role.start()
        before = last_sequence(server, POSES)
        wait_until(lambda: last_sequence(server, POSES) > before)
    (batches,) = by_camera(server).values()
    second = [batch for batch in batches if batch.connection == batches[-1].connection]
    assert second[0].connection.epoch > batches[0].connection.epoch
    assert second[0].seq == 0


def last_words(server: Broker) -> dict[str, Record]:
    """Of each event what was said of it last."""
    found: dict[str, Record] = {}
    for data in messages(server, EVENTS):
        told = decode_event(data)
        assert told is not None
        assert told.site == "test"
        assert told.after.id not in found or found[told.after.id].is_open, "it was over"
        found[told.after.id] = told.after
    return found


def test_an_edge_that_scores_loses_no_event_when_it_is_killed_and_the_broker_is_away(
    tmp_path: Path, server: Broker
) -> None:
    clip = one_person(9.0, every_s=3.0, for_s=1.0)
    fleet = '[fleet]\npublish = "events"\n' + bus_section(server, "fleet.bus")
    settings = write_site(tmp_path, pose_camera("door", clip, tmp_path), fleet, more=NO_PAGE)
    with Role("edge", settings) as role:
        wait_until(lambda: len(last_words(server)) >= 1)
        server.kill()
        wait_until(lambda: waiting(tmp_path) >= 2)
        role.kill()
        server.start()
        role.start()
        wait_until(lambda: len(last_words(server)) >= 2)
        assert role.stop() == 0, role.log.read_text()
    with_store = stored(tmp_path)
    assert {one.id: one for one in with_store} == last_words(server)
    assert all(not one.is_open for one in with_store)
    assert waiting(tmp_path) == 0


def stored(directory: Path) -> list[Record]:
    """The events that the site itself keeps, as the fleet knows them."""
    store = Store(directory / "site-data" / FILE_NAME, create=False)
    try:
        return [of_fleet(one, "test") for one in store.events(limit=None)]
    finally:
        store.close()


def waiting(directory: Path) -> int:
    """Messages of the site that did not arrive yet."""
    store = Store(directory / "site-data" / FILE_NAME, create=False)
    try:
        return store.outbox.lag("fleet")
    finally:
        store.close()
