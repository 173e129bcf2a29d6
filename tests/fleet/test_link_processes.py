"""Whole sites of a fleet: their programs, with real brokers that come and go."""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from stepvad.events.record import SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.fleet import streams
from stepvad.fleet.connection import Connection, ConnectionThread
from stepvad.fleet.outbox import FleetSink
from stepvad.fleet.registry import Run
from stepvad.site.sinks.webhook import JsonLines
from stepvad.site.stages import Supervisor
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.site.store.outbox import SinkDelivery
from tests.fleet.servers import Broker, broker_settings
from tests.fleet.test_link import Centre, demo_run
from tests.site.records import record
from tests.site.sites import Running, busy_person, lines, pose_camera, write_site
from tests.video.servers import SLOWER, wait_until

CHANGES = ("new", "update", "end")


def write_real_site(directory: Path, server: Broker) -> Path:
    """A site of the fleet with an event in each seven seconds, told to a file as well."""
    more = (
        '[sinks.file]\npath = "events.jsonl"\n[web]\nenabled = false\n'
        f'[fleet]\nservers = ["{server.address}"]\ngroup = "yards"\n'
    )
    camera = pose_camera("door", busy_person(), directory)
    path = write_site(directory, camera, more=more)
    path.write_text(path.read_text().replace('name = "test"', 'name = "north"'))
    return path


@pytest.mark.slow
def test_a_site_without_its_broker_starts_alerts_and_stops_as_fast_as_without_a_fleet(
    tmp_path: Path,
) -> None:
    server = Broker(tmp_path / "broker")  # which does not run yet
    path, delays = write_real_site(tmp_path, server), []
    alone = path.read_text().partition("[fleet]")[0]
    for text in (alone, path.read_text()):
        path.write_text(text)
        (tmp_path / "events.jsonl").unlink(missing_ok=True)
        with Running(path) as site:
            start_s = wait_until(lambda: "is watching" in site.log.read_text(), 60.0)
            wait_until(lambda: len(lines(tmp_path / "events.jsonl")) >= 2, 60.0)
            began = time.monotonic()
            assert site.stop() == 0
            delays.append((start_s, time.monotonic() - began))
    (start_s, stop_s), (start_away_s, stop_away_s) = delays
    assert start_away_s < start_s + 1.0 * SLOWER
    assert stop_away_s < stop_s + 4.0 * SLOWER  # the last messages get three seconds


@pytest.mark.slow
def test_what_happened_while_the_broker_was_away_comes_in_order_when_it_is_back(
    tmp_path: Path,
) -> None:
    server = Broker(tmp_path / "broker")
    path, file = write_real_site(tmp_path, server), tmp_path / "events.jsonl"
    with Running(path) as site:
        # the file hears of each event at once
        wait_until(lambda: sum(one["type"] == "new" for one in lines(file)) >= 3, 90.0)
        late = [one["after"]["start_time"] for one in lines(file) if one["type"] == "new"]
        assert all(7.0 - 2.0 < b - a < 7.0 + 4.0 for a, b in pairwise(late))
        server.start()
        centre = Centre(server)
        try:
            wait_until(lambda: len(centre.told(*CHANGES)) >= len(lines(file)), 60.0)
            assert site.stop() == 0
            told, heard = centre.told(*CHANGES), lines(file)
        finally:
            centre.connection.close()
            server.kill()
    assert [(one["type"], one["event"]["id"]) for one in told] == [
        (one["type"], one["after"]["id"]) for one in heard
    ]
    versions = [one["event"]["version"] for one in told]
    assert versions == sorted({*versions})


@pytest.mark.slow
def test_a_site_restarts_with_what_was_rolled_out_and_goes_on(
    server: Broker, tmp_path: Path
) -> None:
    centre = Centre(server)
    path = write_real_site(tmp_path, server)
    with Running(path) as site:
        wait_until(lambda: centre.last_status() is not None, 60.0)
        run = demo_run(centre, settings="[retention]\nevents_days = 3.0\n")
        centre.publish(run)
        assert centre.status().refused is None
        wait_until(lambda: centre.status().run.digest == run.digest, 60.0)
        assert "the site restarts with new settings" in site.log.read_text()
        n = len(site.events())
        assert {one.model_id for one in site.wait_for_events(n + 1)} >= {"model"}
        # a model that does not work changes nothing
        centre.publish(Run(model=centre.put(b"no model")))
        refused = centre.status()
        assert "safetensors" in (refused.refused or "")
        assert refused.run.digest == run.digest
        assert site.stop() == 0
    centre.connection.close()


DAY = 2000
"""Changes of a day: 500 events, 21 an hour."""


class Prompt:
    """A file of events that notes when each came."""

    name = "file"

    def __init__(self, path: Path) -> None:
        self._file, self.came = JsonLines(path), list[float]()

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        self._file.send(kind, message)
        self.came.append(time.monotonic())

    def close(self) -> None:
        self._file.close()


def drained(centre: Centre, n: int) -> list[dict[str, Any]]:
    """So many messages of the site, taken out as the writer does, which leaves room for others."""
    found: list[dict[str, Any]] = []

    async def drain(writer: Connection) -> None:
        async with aclosing(streams.Reader(writer, streams.EVENTS, "test")) as reader:
            await reader.open()
            while len(found) < n:
                found.extend(json.loads(one.data) for one in await reader.read())
                await writer.js.purge_stream(streams.EVENTS, seq=reader.last + 1)

    centre.connection.ask(drain, 60.0 * SLOWER)
    return found


@pytest.mark.slow
def test_after_a_day_without_its_broker_a_site_delivers_in_order_within_a_minute(
    tmp_path: Path,
) -> None:
    server = Broker(tmp_path / "broker")
    connection = ConnectionThread(broker_settings([server]), "north")
    store = Store(tmp_path / FILE_NAME, ["fleet", "file"])
    file, supervisor = Prompt(tmp_path / "events.jsonl"), Supervisor()
    sinks = [SinkDelivery(store.outbox, one) for one in (FleetSink(connection, site="north"), file)]
    for one in sinks:
        supervisor.start(one.stage)
    stored = list[float]()
    for n in range(DAY // 4):
        opened = record(number=n, version=store.next_version())
        store.change("new", opened)
        stored.append(time.monotonic())
        for score in (6.0, 7.0):
            opened = replace(opened, top_score=score, version=store.next_version())
            store.change("update", opened)
            stored.append(time.monotonic())
        store.change("end", replace(opened.ended("calm", 2000.0 + n), version=store.next_version()))
        stored.append(time.monotonic())
        wait_until(lambda: len(file.came) == len(stored))  # events of a day come one by one
    # nothing else was late, and what waits is on the disk
    late = [b - a for a, b in zip(stored, file.came, strict=True)]
    first, last = median(late[: DAY // 4]), median(late[-DAY // 4 :])
    assert sorted(late)[int(0.99 * DAY)] < 0.5 * SLOWER
    assert last < 3 * first
    assert store.outbox.lag("fleet") == DAY
    # the broker is back
    server.start()
    centre, back = Centre(server), time.monotonic()
    told = drained(centre, DAY)
    assert time.monotonic() - back < 60.0 * SLOWER
    versions = [one["event"]["version"] for one in told]
    assert versions == sorted({*versions})
    assert len(versions) == DAY
    wait_until(lambda: store.outbox.lag("fleet") == 0)
    assert supervisor.stop([one.stage for one in sinks], 10.0) == []
    for thread in (connection, centre.connection):
        thread.close()
    server.kill()
    store.close()
