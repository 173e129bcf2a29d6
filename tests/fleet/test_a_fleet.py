"""A whole fleet: an edge, a broker, a worker, a writer and a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stepvad.events.record import Record
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.events.postgres import connect
from stepvad.fleet.events.wanted import Wanted
from stepvad.formats import write_clip
from stepvad.poses import Clip
from stepvad.site.intake import demo
from tests.fleet.brokers import Broker, broker, bus_settings
from tests.fleet.fleets import RATE, THRESHOLD, WorkerProcess, script
from tests.fleet.quiet import quiet
from tests.fleet.roles import Role, bus_section
from tests.fleet.runs import whole
from tests.site.sites import NO_PAGE, write_site
from tests.video.servers import wait_until



def stored(dsn: str) -> list[Record]:
    async def go() -> list[Record]:
        async with connect(dsn) as events:
            return await events.events(Wanted(), limit=None)

    return asyncio.run(go())


def prepare(dsn: str, server: Broker) -> None:
    async def go() -> None:
        async with connect(dsn) as events, connected(bus_settings([server]), "test") as bus:
            await events.migrate()
            await bus.setup()

    asyncio.run(go())


def write_edge(directory: Path, server: Broker, clips: list[Clip]) -> Path:
    cameras = []
    for number, clip in enumerate(clips):
        write_clip(clip, directory / f"c{number}.parquet")
        cameras.append(
            f'[[cameras]]\nname = "c{number}"\nurl = "c{number}.parquet"\nrate = {RATE}\n'
        )
    fleet = '[fleet]\npublish = "poses"\n' + bus_section(server, "fleet.bus")
    return write_site(directory, *cameras, fleet, more=NO_PAGE)


def shape(one: Record) -> tuple[object, ...]:
    """What is the same in a run at another time: all but the clock and the number."""
    return (
        *(one.camera, one.frame_seq, one.tracks, one.track_id, one.ended_by),
        *(round(one.top_score, 3), round((one.end_time or 0) - one.start_time, 3)),
    )


def run_fleet(directory: Path, dsn: str, clips: list[Clip], n_events: int) -> WorkerProcess:
    """Play the clips through a whole fleet until its events are over."""
    directory.mkdir()
    settings = directory / "fleet.toml"
    with broker(directory / "nats") as server:
        prepare(dsn, server)
        settings.write_text(bus_section(server) + '[events]\ndsn = "env:DSN"\n')
        worker = WorkerProcess(directory, [server], "w1", worker={"silent_s": 30})
        worker.start()
        try:
            with (
                Role("events", settings, DSN=dsn),
                Role("edge", write_edge(directory, server, clips)) as edge,
            ):
                wait_until(lambda: edge.log.read_text().count("the file is over") == len(clips))
                with suppress(AssertionError):  # without all frames there may be fewer
                    wait_until(lambda: sum(not one.is_open for one in stored(dsn)) >= n_events, 60)
                assert edge.stop() == 0, edge.log.read_text()
        finally:
            worker.kill()
    return worker


def test_poses_of_a_site_become_the_rows_that_the_site_itself_would_have_written(
    tmp_path: Path, dsns: Callable[[], str], scenes: list[Clip]
) -> None:
    clips = scenes[:3]
    expected = quiet([script(f"test/c{n}", clip) for n, clip in enumerate(clips)])
    wanted = sorted(shape(one) for kind, one in expected.changes if kind == "end")
    assert wanted
    for number in range(3):  # an edge that is stalled for a third of a second drops frames
        dsn = dsns()
        worker = run_fleet(tmp_path / str(number), dsn, clips, len(wanted))
        windows = whole(set(worker.windows.read_text().splitlines()))
        if windows == expected.windows:
            break
    assert windows == expected.windows
    found = stored(dsn)
    assert sorted(shape(one) for one in found) == wanted
    assert {one.model_id for one in found} == {demo.MODEL.stem}
    assert found[0].threshold == THRESHOLD
