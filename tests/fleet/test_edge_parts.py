"""An edge in this process: what it sends, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.events.record import DeliveryError, Record, message
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.edge.batcher import FrameBatcher
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.edge.edge import Edge, page_of
from stepvad.fleet.edge.sink import FleetSink
from stepvad.fleet.event_message import of_fleet
from stepvad.fleet.settings import BusSettings, EdgeSite, load_edge
from stepvad.fleet.subjects import POSES, Subjects
from stepvad.fleet.wire import decode_event
from stepvad.formats import write_clip
from stepvad.site.app import PageParts
from stepvad.site.stages import Heartbeat, Supervisor
from stepvad.skeletons import Skeleton
from tests.fleet.brokers import Broker, broker, bus_settings
from tests.fleet.fleets import listen
from tests.fleet.roles import bus_section
from tests.site.records import record
from tests.site.sites import NO_PAGE, one_person, pose_camera, write_site
from tests.site.test_stages import EndedError, end
from tests.video.servers import free_port, wait_until


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

    def serve(shown: PageParts, token: str, supervisor: Supervisor) -> Page:
        with pytest.raises(DataError, match="got poses alone"):
            shown.explain("x")
        with pytest.raises(DataError, match="got poses alone"):
            shown.mark("x", "normal", "")
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
    assert f"stages {'died' if fault == 'dies' else 'hang'}: {stage}; exiting" in caplog.text


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

    async def go() -> list[Record]:
        async with connected(bus_settings([server]), "test") as bus:
            return [told.after for told in (await listen(bus)).told]

    return asyncio.run(go())


def test_an_event_that_is_sent_twice_is_kept_once_under_the_name_of_its_site(
    server: Broker,
) -> None:
    one = record("yard")
    assert sent(server, one, 2) == [of_fleet(one, "north")]
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
