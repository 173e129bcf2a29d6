"""Disks that are full under a fleet: events wait where they are, and arrive when there is room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stepvad.poses import Clip
from tests.fleet.brokers import Broker, broker
from tests.fleet.disks import Disk, small_disk
from tests.fleet.fleets import Heard, WorkerProcess
from tests.fleet.quiet import assert_same, quiet
from tests.fleet.runs import run, several, whole
from tests.video.servers import wait_until

pytestmark = pytest.mark.slow

UNSAID = "stepvad_fleet_events_unsaid"
SCORED = "stepvad_fleet_frames_scored_total"


def full_for_a_while(disk: Disk, server: Broker, worker: WorkerProcess) -> None:
    """Until events wait and frames are scored all the same; then there is room again.

    A broker that met a full disk stores nothing more before it is started again.
    """
    disk.fill()
    worker.wait_for("events wait")
    wait_until(lambda: worker.metric(UNSAID) > 1)
    scored = worker.metric(SCORED)
    wait_until(lambda: worker.metric(SCORED) > scored + 25)
    assert worker.metric(UNSAID) > 1
    disk.free()
    server.kill()
    server.start()
    wait_until(lambda: worker.metric(UNSAID) == 0)


def in_order(heard: Heard) -> bool:
    """Whether every event begins, changes and ends, in the order of the stream."""
    kinds: dict[str, list[str]] = {}
    for told in heard.told:
        kinds.setdefault(told.after.id, []).append(told.kind)
    return all(found == ["new", *["update"] * (len(found) - 2), "end"] for found in kinds.values())


def test_8_events_wait_in_the_worker_while_the_disk_of_the_broker_is_full(
    tmp_path: Path, scenes: list[Clip], workers: list[WorkerProcess]
) -> None:
    scripts = several(scenes)
    expected = quiet(scripts)
    with small_disk(8) as disk, broker(tmp_path, store=disk.path) as one:
        rarely: dict[str, object] = {
            "checkpoint_s": 30
        }  # it is an event that meets the full disk first
        workers.append(WorkerProcess(tmp_path, [one], "w1", worker=rarely))
        workers[0].start()
        workers[0].wait_for(": 4 shards")
        process = workers[0].process

        async def fill() -> None:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(full_for_a_while, disk, one, workers[0])

        found = asyncio.run(run([one], workers, scripts, expected, fill))
        assert_same(found.heard, expected)
        assert in_order(found.heard)
        assert whole(found.windows) == expected.windows
        assert process is not None
        assert process.poll() is None
