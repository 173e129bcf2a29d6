"""Partitions of a running fleet: where cameras are, and what happens when they move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.leases import Lease
from stepvad.fleet.places import Partition, place_of
from stepvad.fleet.settings import FleetSettings
from stepvad.fleet.tenants import Tenant, default_tenant
from stepvad.poses import Clip
from tests.fleet.brokers import Broker, broker, bus_settings
from tests.fleet.fleets import Heard, WorkerProcess, settled
from tests.fleet.quiet import Quiet, assert_same, joined
from tests.fleet.runs import several, whole
from tests.fleet.senders import senders


def test_a_new_partition_moves_its_share_of_the_cameras_and_no_others() -> None:
    names = [f"site/cam{i}" for i in range(3000)]
    parts = [Partition(number=n, shards=16) for n in range(4)]
    three, four = ([place_of(name, parts[:n]) for name in names] for n in (3, 4))
    moved = [(old, new) for old, new in zip(three, four, strict=True) if old != new]
    assert {new.partition.number for _, new in moved} == {3}
    assert 0.2 < len(moved) / len(names) < 0.3
    assert {place.number for place in four} == set(range(16))


def fleet_settings(one: Broker, **bus: object) -> FleetSettings:
    facts = bus_settings([one], lease_s=1.0, poses_mb=100, **bus).model_dump(exclude_none=True)
    return FleetSettings.model_validate({"bus": facts})


async def played(
    one: Broker,
    workers: list[WorkerProcess],
    scenes: list[Clip],
    expected: Quiet,
    meanwhile: Callable[[], Awaitable[None]],
) -> tuple[Heard, set[str]]:
    settings = bus_settings([one], lease_s=1.0, poses_mb=100)
    with senders(settings, several(scenes)) as edges:
        await asyncio.gather(*(edge.play() for edge in edges), meanwhile())
    ended = sum(kind == "end" for kind, _ in expected.changes)
    heard = await settled(settings, ended)
    found = {line for w in workers for line in w.windows.read_text().split("\n")} - {""}
    return heard, whole(found)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("fault", ["none", "kill"])
def test_partitions_added_while_people_walk_lose_no_window_and_change_no_event(
    tmp_path: Path,
    scenes: list[Clip],
    undisturbed: list[Quiet],
    workers: list[WorkerProcess],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    monkeypatch.setattr("stepvad.fleet.edge.directory.ASK_S", 0.3)
    expected = joined(undisturbed)
    more: dict[str, object] = {"shed_s": 60, "silent_s": 60}
    with broker(tmp_path / "nats") as one:
        asyncio.run(set_up(fleet_settings(one)))
        workers += [
            WorkerProcess(tmp_path, [one], f"w{i}", worker=more, lease_s=1.0) for i in range(2)
        ]
        for worker in workers:
            worker.start()

        async def grow() -> None:
            for n in (2, 3):
                await asyncio.sleep(1.5)
                await set_up(fleet_settings(one, partitions=n))
                if fault == "kill":
                    await asyncio.sleep(0.6)
                    workers[n % 2].kill()
                    workers[n % 2].launch()

        heard, windows = asyncio.run(played(one, workers, scenes, expected, grow))
        logs = "".join(worker.log.read_text() for worker in workers)
    assert "left no state" not in logs
    assert_same(heard, expected)
    assert expected.windows <= windows
    assert windows <= expected.windows


def test_partitions_are_not_taken_away_and_wait_for_the_last_old_worker(tmp_path: Path) -> None:
    async def run(one: Broker) -> None:
        await set_up(fleet_settings(one))
        async with connected(bus_settings([one]), "old") as bus:
            old = Lease(frozenset({"1"}), version=1).pack()
            await bus.lease("old", old)
            with pytest.raises(ConfigError, match="got one of an older version"):
                await set_up(fleet_settings(one, partitions=2))
            await bus.release("old")
        await set_up(fleet_settings(one, partitions=2))
        with pytest.raises(ConfigError, match="and maybe more"):
            await set_up(fleet_settings(one, partitions=1))

    with broker(tmp_path) as one:
        asyncio.run(run(one))


def test_an_entry_of_the_directory_is_read_as_it_was_written() -> None:
    made = default_tenant(Partition(shards=4)).with_partitions(3)
    assert Tenant.unpack(made.key, made.pack()) == made
    assert [part.shards for part in made.partitions] == [4, 16, 16]
