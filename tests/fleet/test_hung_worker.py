"""A worker that hangs ends, whatever hangs in it, and another one takes its shards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.leases import Lease
from stepvad.fleet.settings import FleetSettings, ModelSettings
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.worker import Worker
from stepvad.poses import Clip
from stepvad.site.intake import demo
from stepvad.site.stages import STUCK
from tests.fleet.brokers import broker, bus_settings
from tests.fleet.fleets import ROOT, THRESHOLD, Player, WorkerProcess, script
from tests.video.servers import SLOWER


HUNG_S = 2.0
LIMIT_S = 20 * SLOWER


class HangingWorker(WorkerProcess):
    """A worker that hangs at its first frame, in its scoring thread or in its event loop."""

    where = "thread"

    def launch(self) -> None:
        words = ["tests.fleet.hanging_worker", str(self._settings), str(HUNG_S), self.where]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], stdout=log, stderr=log, cwd=ROOT
            )


async def owners(bus: NatsBus) -> list[str]:
    """Who has a shard, without what makes each start of a worker unique."""
    found = await bus.leases()
    return [name.rpartition("-")[0] for name in found if Lease.unpack(found[name]).names]


async def until_owned_by(bus: NatsBus, name: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while await owners(bus) != [name]:
        assert time.monotonic() < deadline, f"{name} did not get the shard"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_a_worker_whose_scoring_hangs_exits_as_stuck_and_another_takes_its_shard(
    tmp_path: Path, scenes: list[Clip], workers: list[WorkerProcess], where: str
) -> None:
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])
    frames = script("north/door", scenes[0], ends=False)
    frames = replace(frames, messages=frames.messages[:10])

    async def run() -> int:
        with broker(tmp_path) as one:
            facts = bus_settings([one], shards=1, lease_s=1.0)
            first = HangingWorker(tmp_path, [one], "first", shards=1, lease_s=1.0)
            workers.append(first)
            first.where = where
            first.start()
            assert first.process is not None
            async with connected(facts, "second") as bus:
                await until_owned_by(bus, "first")
                second = Worker(bus, FleetSettings(bus=facts), models, "second-0")
                stop = asyncio.Event()
                running = asyncio.create_task(second.run(stop))
                try:
                    await Player(bus).play([frames])
                    await until_owned_by(bus, "second")
                    while second.stats.messages < len(frames.messages):
                        await asyncio.sleep(0.05)
                    return await asyncio.to_thread(first.process.wait, LIMIT_S)
                finally:
                    stop.set()
                    await running

    assert asyncio.run(run()) == STUCK
    log = (tmp_path / "first.log").read_text()
    assert f"hangs: no progress for {HUNG_S:g} s; exiting" in log
    assert "in hanging" in log, "the log shows where it hangs"
