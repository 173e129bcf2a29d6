"""Edges: in this process and in their own, and a broker that is killed under them."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.events.camera import MOST_PEOPLE
from stepvad.events.record import DeliveryError, Record, message
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.edge.batcher import EncodedBatch, FrameBatcher, StreamInfo
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.edge.edge import Edge, page_of
from stepvad.fleet.edge.sink import FleetSink
from stepvad.fleet.event_message import of_fleet
from stepvad.fleet.settings import BusSettings, EdgeSite, load_edge
from stepvad.fleet.subjects import EDGES, POSES, Subjects
from stepvad.fleet.wire import MAX_BYTES, Batch, CameraConnection, decode, decode_event
from stepvad.formats import write_clip
from stepvad.poses import Pose
from stepvad.site.app import PageParts
from stepvad.site.frames import QueuedFrame
from stepvad.site.stages import Heartbeat, Supervisor
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.skeletons import COCO17, Skeleton
from tests.fleet.fleets import Role, bus_section
from tests.fleet.servers import Broker, broker, bus_settings
from tests.site.records import record
from tests.site.sites import NO_PAGE, RATE, one_person, pose_camera, write_site
from tests.site.test_stages import EndedError, end
from tests.video.servers import free_port, wait_until

FRAMES = [*one_person(3.0).by_frame()]


def batcher(**more: Any) -> FrameBatcher:
    epochs = count(100)
    label = StreamInfo(
        site="north",
        camera="yard",
        rate=10.0,
        skeleton=COCO17,
        **({"most": 4, "wait_s": 0.2} | more),
    )
    return FrameBatcher(label, lambda: next(epochs))


def frame(slot: int, connection: int = 0, **more: Any) -> QueuedFrame:
    facts: dict[str, Any] = {"poses": FRAMES[slot][1], "size": (640, 360), **more}
    return QueuedFrame(
        camera="yard",
        connection=connection,
        rate=10.0,
        wall0=1000.0 + connection,
        slot=slot,
        arrived=0.0,
        **facts,
    )


def batches(batches: list[EncodedBatch]) -> list[Batch]:
    return [decode(batch.data) for batch in batches]


def test_frames_travel_together_and_come_out_as_they_went_in() -> None:
    one = batcher()
    sent = [batch for slot in range(10) for batch in one.add(frame(slot), 0.0)]
    sent += one.flush()
    found = batches(sent)
    assert [batch.seq for batch in found] == [0, 4, 8]
    assert [slot for batch in found for slot in batch.slots] == [*range(10)]
    assert {(of.name, of.epoch, of.wall0) for of in (batch.connection for batch in found)} == {
        ("north/yard", 100, 1000.0)
    }
    poses = [pose for batch in found for n in range(len(batch)) for pose in batch.poses(n)]
    before = [pose for slot in range(10) for pose in FRAMES[slot][1]]
    for pose, was in zip(poses, before, strict=True):
        assert pose.track_id == was.track_id
        np.testing.assert_array_equal(pose.keypoints, was.keypoints)
    assert len({batch.id for batch in sent}) == len(sent)
    assert [batch.frames for batch in sent] == [4, 4, 2]


def test_no_frame_waits_longer_than_it_may() -> None:
    one = batcher()
    assert one.add(frame(0), 5.0) == []
    assert one.add(frame(1), 5.1) == []
    assert one.due(5.19) == []
    (batch,) = one.due(5.2)
    assert decode(batch.data).slots == [0, 1]
    assert one.due(9.0) == []


def test_a_camera_that_goes_says_so_once_and_comes_back_with_another_epoch() -> None:
    one = batcher()
    assert one.lose("camera lost") == []
    one.add(frame(0), 0.0)
    kept, gone = batches(one.lose("camera lost"))
    assert (kept.seq, len(kept), kept.lost) == (0, 1, None)
    assert (gone.seq, len(gone), gone.lost) == (1, 0, "camera lost")
    assert one.lose("camera lost") == []
    one.add(frame(5), 0.0)
    (again,) = batches(one.flush())
    assert (again.connection.epoch, again.seq) == (101, 0)


def test_another_connection_ends_the_one_before() -> None:
    one = batcher()
    one.add(frame(0), 0.0)
    kept, gone = batches(one.add(frame(3, connection=1), 0.0))
    assert kept.connection.epoch == gone.connection.epoch == 100
    assert (kept.lost, gone.lost) == (None, "another connection")
    (new,) = batches(one.flush())
    assert (new.connection.epoch, new.connection.wall0) == (101, 1001.0)


def test_pictures_of_another_size_are_not_mixed() -> None:
    one = batcher()
    one.add(frame(0), 0.0)
    (small,) = batches(one.add(frame(1, size=(1280, 720)), 0.0))
    (large,) = batches(one.flush())
    assert (small.connection.size, large.connection.size, large.seq) == ((640, 360), (1280, 720), 1)


def test_poses_with_other_joints_are_left_out() -> None:
    one = batcher(most=1)
    (pose,) = FRAMES[0][1]
    odd = Pose(1, pose.keypoints[:5], pose.confidence[:5])
    (batch,) = batches(one.add(frame(1, poses=[odd, pose]), 0.0))
    assert batch.tracks.tolist() == [pose.track_id]


def batch(camera: str, number: int, size: int = 100) -> EncodedBatch:
    connection = CameraConnection(
        site="north", camera=camera, epoch=1, wall0=0.0, rate=10.0, size=(640, 360)
    )
    return EncodedBatch(
        camera=camera,
        id=f"{number}",
        data=b"x" * size,
        frames=5,
        connection=connection,
    )


def test_a_full_buffer_lets_the_oldest_go_and_counts_them() -> None:
    rung: list[str] = []
    buffer = Buffer(["a", "b"], 500, rung.append)
    for number in range(8):
        buffer.put(batch("ab"[number % 2], number))
    assert (len(buffer), buffer.bytes) == (5, 500)
    assert buffer.dropped == {"a": 10, "b": 5}
    first = buffer.head("a"), buffer.head("b")
    assert [one.id for one in first if one is not None] == ["4", "3"]
    assert rung == ["a", "b"] * 4


def test_messages_leave_in_order_when_the_broker_has_them() -> None:
    buffer = Buffer(["a"], 500)
    for number in range(3):
        buffer.put(batch("a", number))
    for number in range(3):
        head = buffer.head("a")
        assert head is not None
        assert (head.id, buffer.head("a") is head) == (f"{number}", True)
        buffer.done(head)
    assert (buffer.head("a"), buffer.bytes, buffer.sent["a"]) == (None, 0, 15)


def test_what_is_dropped_on_its_way_and_arrives_is_no_loss() -> None:
    buffer = Buffer(["a"], 200)
    buffer.put(batch("a", 0))
    head = buffer.head("a")
    assert head is not None
    for number in range(1, 4):
        buffer.put(batch("a", number))
    assert buffer.dropped["a"] == 10
    buffer.done(head)
    assert (buffer.dropped["a"], buffer.sent["a"], len(buffer)) == (5, 5, 2)


def test_what_a_broker_took_of_late_is_sent_again_when_it_was_away() -> None:
    now = 0.0
    buffer = Buffer(["a"], 5000, again_s=3.0, clock=lambda: now)
    for number in range(5):
        now = float(number)
        buffer.put(batch("a", number))
        head = buffer.head("a")
        assert head is not None
        buffer.done(head)
    buffer.put(batch("a", 5))
    now = 60.0  # the broker was away for a minute
    buffer.again("a")
    sent = []
    while (head := buffer.head("a")) is not None:
        sent.append(head.id)
        buffer.done(head)
    assert sent == ["1", "2", "3", "4", "5"]
    assert (buffer.sent["a"], buffer.bytes) == (30, 0)
    now = 90.0  # nothing waits: the broker has had all for long
    buffer.again("a")
    assert buffer.head("a") is None


@pytest.mark.parametrize("size", [501, 10_000])
def test_a_message_larger_than_the_buffer_is_kept_alone(size: int) -> None:
    buffer = Buffer(["a"], 500)
    buffer.put(batch("a", 0))
    buffer.put(batch("a", 1, size))
    assert (len(buffer), buffer.bytes) == (1, size)


def test_a_crowd_waits_for_no_further_frame_and_more_than_a_crowd_is_left_out() -> None:
    (pose,) = FRAMES[0][1]
    crowd = [Pose(i, pose.keypoints, pose.confidence) for i in range(MOST_PEOPLE)]
    one = batcher(most=100)
    sent = [batch for slot in range(20) for batch in one.add(frame(slot, poses=crowd), 0.0)]
    assert [len(batch) for batch in batches(sent)] == [4] * 5
    assert max(len(batch.data) for batch in sent) < MAX_BYTES / 2
    one.add(frame(20, poses=[*crowd, pose]), 0.0)
    (batch,) = batches(one.flush())
    assert batch.people == [0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path / "nats") as made:
        asyncio.run(set_up(made))
        yield made


async def set_up(server: Broker) -> None:
    async with connected(bus_settings([server]), "test") as bus:
        await bus.setup()


def kept(server: Broker, stream: str) -> int:
    async def go() -> int:
        async with connected(bus_settings([server]), "test") as bus:
            return (await bus._js.stream_info(stream)).state.messages

    return asyncio.run(go())


def settings(directory: Path, server: Broker, more: str = "") -> EdgeSite:
    camera = pose_camera("yard", one_person(3.0), directory)
    fleet = f"[fleet]\n{more}\n" + bus_section(server, "fleet.bus")
    return load_edge(write_site(directory, camera, fleet, more=NO_PAGE))


def test_an_edge_sends_poses_and_its_page_shows_people(tmp_path: Path, server: Broker) -> None:
    edge = Edge(settings(tmp_path, server))
    stop, opened = threading.Event(), []

    class Page:
        name, url = "web", "http://127.0.0.1/"

        def __init__(self) -> None:
            self.heartbeat, self._stopping = Heartbeat(10.0), threading.Event()

        def run(self) -> None:
            self._stopping.wait(20)
            opened.append("closed")

        def stop(self, deadline: float) -> None:
            self._stopping.set()

    def serve(parts: PageParts, token: str, supervisor: Supervisor) -> Page:
        with pytest.raises(DataError, match="got poses alone"):
            parts.explain("x")
        with pytest.raises(DataError, match="got poses alone"):
            parts.mark("x", "normal", "")
        opened.append("open")
        return Page()

    running = threading.Thread(
        target=edge.run, args=(stop, lambda: None, lambda edge: page_of(edge, serve, "a-token"))
    )
    running.start()
    wait_until(lambda: edge.buffer.sent["yard"] >= 20)
    time.sleep(1.1)
    (view,) = edge.status.snapshot().cameras
    assert (view.state, view.people) == ("online", 1)
    assert [(sink.name, sink.last_error) for sink in edge.status.snapshot().sinks] == [
        ("fleet", "")
    ]
    stop.set()
    running.join(20)
    assert not running.is_alive()
    assert opened == ["open", "closed"]
    assert kept(server, POSES) >= 5


def test_a_broker_that_is_away_is_told_on_the_board_with_what_was_shed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.fleet.edge.edge.DRAIN_S", 0.2)
    away = Broker(tmp_path / "nats")
    edge = Edge(settings(tmp_path, away, "buffer_mb = 0.002"))
    stop = threading.Event()
    running = threading.Thread(target=edge.run, args=(stop,))
    running.start()
    wait_until(lambda: edge.status.snapshot().cameras[0].counts["shed"] > 0)
    (sink,) = edge.status.snapshot().sinks
    assert sink.lag > 0
    stop.set()
    running.join(20)
    assert not running.is_alive()


def test_poses_of_a_skeleton_that_the_bus_does_not_know_fail_their_camera_alone(
    tmp_path: Path, server: Broker
) -> None:
    clip = one_person(1.0)
    odd = Skeleton("odd", tuple(f"j{n}" for n in range(17)), ())
    told = settings(tmp_path, server)
    write_clip(replace(clip, skeleton=odd), tmp_path / "yard.parquet")
    edge = Edge(told)
    (view,) = edge.status.snapshot().cameras
    assert view.state == "failed"
    edge.store.close()


@pytest.mark.parametrize("stage", ["packing", "publisher"])
@pytest.mark.parametrize("fault", ["dies", "hangs"])
def test_a_stage_of_an_edge_that_dies_or_hangs_ends_it(
    tmp_path: Path,
    server: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stage: str,
    fault: str,
) -> None:
    over = threading.Event()

    def fails(*_: object) -> None:
        if fault == "dies":
            raise MemoryError("no room")
        over.wait(30)

    owner, method = (FrameBatcher, "due") if stage == "packing" else (Buffer, "head")
    monkeypatch.setattr(owner, method, fails)
    monkeypatch.setattr(f"stepvad.fleet.edge.{MODULES[stage]}", 1.0)
    edge = Edge(settings(tmp_path, server), Supervisor(end))
    try:
        with pytest.raises(EndedError):
            edge.run(threading.Event())
    finally:
        over.set()
    ended = {"dies": "died; exiting", "hangs": "hangs: no progress for 1 s; exiting"}
    assert f"{stage} {ended[fault]}" in caplog.text


MODULES = {"packing": "edge.PACKING_DEADLINE_S", "publisher": "publisher.DEADLINE_S"}
"""Where the deadline of each stage of an edge is."""


def test_certificates_that_are_not_there_end_an_edge(tmp_path: Path, server: Broker) -> None:
    told = settings(tmp_path, server)
    tls = {"ca": tmp_path / "none.pem"}
    bus = told.fleet.bus.model_validate(told.fleet.bus.model_dump() | {"tls": tls})
    line = BusThread(bus, "edge")
    try:
        wait_until(lambda: line._connecting.done())
        with pytest.raises(ConfigError, match=r"bus\.tls\.ca: expected a file that can be read"):
            line.check()
    finally:
        line.close()


def sent(server: Broker, one: Record, times: int) -> list[Record]:
    """What the bus keeps after an event was sent so often."""
    line = BusThread(bus_settings([server]), "edge")
    sink = FleetSink(line, site="north", subjects=Subjects())
    for _ in range(times):
        sink.send("new", message("new", None, one))
    sink.close()

    found = [decode_event(data) for data in messages(server, EDGES)]
    return [told.after for told in found if told is not None]


def test_an_event_is_sent_under_the_name_of_its_site(server: Broker) -> None:
    one = record("yard")
    assert sent(server, one, 2) == [of_fleet(one, "north")] * 2  # the writer keeps one
    assert decode_event(b'{"type": "claim"}') is None


def test_a_sink_whose_broker_is_away_says_that_the_message_did_not_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stepvad.fleet.edge.sink.WITHIN_S", 0.5)
    away = BusSettings().model_copy(update={"servers": [f"nats://127.0.0.1:{free_port()}"]})
    line = BusThread(away, "edge")
    sink = FleetSink(line, site="north", subjects=Subjects())
    with pytest.raises(DeliveryError, match="expected an answer in time"):
        sink.send("new", message("new", None, record("yard")))
    sink.close()


SECONDS = 9.0


@pytest.fixture
def disk_server(tmp_path: Path) -> Iterator[Broker]:
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
        poses = api.StreamConfig(name=POSES, subjects=[bus.subjects.of_stream(POSES)])
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
    tmp_path: Path, disk_server: Broker
) -> None:
    n = round(SECONDS * RATE)
    with edge(tmp_path, disk_server, "yard", "gate") as role:
        wait_until(lambda: last_sequence(disk_server, POSES) >= 10)
        disk_server.kill()
        time.sleep(5.0)
        disk_server.start()
        wait_until(lambda: role.log.read_text().count("the file is over") == 2)
        assert role.stop() == 0, role.log.read_text()
    found = by_camera(disk_server)
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
    tmp_path: Path, disk_server: Broker
) -> None:
    n = round(6.0 * RATE)
    with edge(tmp_path, disk_server, "yard", more="buffer_mb = 0.003", seconds=6.0) as role:
        wait_until(lambda: last_sequence(disk_server, POSES) >= 3)
        disk_server.kill()
        time.sleep(3.0)
        disk_server.start()
        wait_until(lambda: "the file is over" in role.log.read_text())
        assert role.stop() == 0, role.log.read_text()
        log = role.log.read_text()
    (batches,) = by_camera(disk_server).values()
    slots = [slot for batch in batches for slot in batch.slots]
    counted = sum(map(int, re.findall(r"buffer full, (\d+) frames", log)))
    assert slots == sorted(set(slots))
    assert counted > 10
    assert 0 <= counted - (n - len(slots)) <= 5, "one message may have arrived unheard of"
    missing = sorted(set(range(n)) - set(slots))
    assert missing == [*range(missing[0], missing[-1] + 1)], "the oldest go, the newest stay"


def test_an_edge_that_is_stopped_says_that_its_cameras_are_gone(
    tmp_path: Path, disk_server: Broker
) -> None:
    with edge(tmp_path, disk_server, "yard", more="frames_per_message = 100\nwait_s = 0.5") as role:
        wait_until(lambda: last_sequence(disk_server, POSES) >= 1)
        assert role.stop() == 0, role.log.read_text()
        (batches,) = by_camera(disk_server).values()
        assert batches[-1].lost == "stopped"
        role.start()
        before = last_sequence(disk_server, POSES)
        wait_until(lambda: last_sequence(disk_server, POSES) > before)
    (batches,) = by_camera(disk_server).values()
    second = [batch for batch in batches if batch.connection == batches[-1].connection]
    assert second[0].connection.epoch > batches[0].connection.epoch
    assert second[0].seq == 0


def last_words(server: Broker) -> dict[str, Record]:
    """Of each event what was said of it last."""
    found: dict[str, Record] = {}
    for data in messages(server, EDGES):
        told = decode_event(data)
        assert told is not None
        assert told.site == "test"
        before = found.get(told.after.id)
        assert before is None or before.is_open or not told.after.is_open, "it was over"
        found[told.after.id] = told.after
    return found


def test_an_edge_that_scores_loses_no_event_when_it_is_killed_and_the_broker_is_away(
    tmp_path: Path, disk_server: Broker
) -> None:
    clip = one_person(9.0, every_s=3.0, for_s=1.0)
    fleet = '[fleet]\npublish = "events"\n' + bus_section(disk_server, "fleet.bus")
    settings = write_site(tmp_path, pose_camera("door", clip, tmp_path), fleet, more=NO_PAGE)
    with Role("edge", settings) as role:
        wait_until(lambda: len(last_words(disk_server)) >= 1)
        disk_server.kill()
        wait_until(lambda: waiting(tmp_path) >= 2)
        role.kill()
        disk_server.start()
        role.start()
        wait_until(lambda: len(last_words(disk_server)) >= 2)
        assert role.stop() == 0, role.log.read_text()
    with_store = stored(tmp_path)
    assert {one.id: one for one in with_store} == last_words(disk_server)
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
