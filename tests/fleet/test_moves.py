"""Cameras that move from one shard to another in mid-connection, and events left open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet import wire
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.bus import Delivery, Position
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.leases import Lease
from stepvad.fleet.moving import Moved
from stepvad.fleet.places import Partition, Place, place_of
from stepvad.fleet.settings import FleetSettings, ModelSettings
from stepvad.fleet.tenants import Tenant, default_tenant
from stepvad.fleet.wire import Batch, UnreadableError
from stepvad.fleet.worker.checkpoint import ShardCheckpoint, ShardState
from stepvad.fleet.worker.fairness import fair_shares
from stepvad.fleet.worker.handover import WAIT_S, Handover, handover_key
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.outgoing import Checkpoint
from stepvad.fleet.worker.recalled import FORGET_S
from stepvad.fleet.worker.scoring import BatchScorer
from stepvad.fleet.worker.shard import Pace, Shard
from stepvad.poses import Clip
from stepvad.site import demo
from tests.fleet.fleets import (
    THRESHOLD,
    Heard,
    WorkerProcess,
    script,
    senders,
    settled,
    several,
    whole,
)
from tests.fleet.results import Quiet, assert_same, joined, quiet
from tests.fleet.servers import Broker, broker, bus_settings
from tests.fleet.test_shard import SUBJECTS, deliveries, heard, shard_of, step

OLD, NEW = Partition(shards=1).place(0), Partition("north", 2, 1).place(0)


@pytest.fixture(scope="module")
def models() -> FleetModels:
    return FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])


@pytest.fixture(scope="module")
def batches(scenes: list[Clip]) -> list[Batch]:
    return [batch for _, batch in script("s0/cam", scenes[0]).messages]


@pytest.fixture(scope="module")
def expected(scenes: list[Clip]) -> Quiet:
    return quiet([script("s0/cam", scenes[0])])


def shard_at(place: Place, models: FleetModels) -> Shard:
    return Shard(place, SUBJECTS, models, BatchScorer(), Pace())


def sent_to(
    place: Place, some: list[Batch], first: int = 1, moved: Moved | None = None
) -> list[Delivery]:
    subject = SUBJECTS.poses("s0", "cam", place)
    headers = None if moved is None else moved.headers
    return [
        Delivery(subject, wire.encode(one), first + at, float(at), headers=headers)
        for at, one in enumerate(some)
    ]


def notice(last: Batch) -> Batch:
    return wire.batch_of([], last.connection, last.end, moved=True)


@pytest.mark.parametrize("at", [20, 75, 110, 200])
def test_it_goes_on_in_mid_window_and_in_mid_event(
    models: FleetModels, batches: list[Batch], expected: Quiet, at: int
) -> None:
    old, new = shard_at(OLD, models), shard_at(NEW, models)
    step(old, sent_to(OLD, [*batches[:at], notice(batches[at - 1])]))
    (left,) = old.moving
    moved = Moved(1, batches[at - 1].end)
    step(new, sent_to(NEW, batches[max(at - 100, 0) : at + 5], moved=moved))
    assert new.changes == []  # it waits for the state
    assert new.floor().sequence == 0
    (waiting,) = new.newcomers
    waiting.offer(Handover.unpack(left.pack()))
    step(new, sent_to(NEW, batches[at + 5 :], 300, moved))
    assert_same(heard([*old.changes, *new.changes]), expected)
    counts = old.scorer.counts.windows + new.scorer.counts.windows
    assert counts == len(expected.windows)


def test_a_camera_that_moves_twice_goes_on_from_its_second_state(
    models: FleetModels, batches: list[Batch], expected: Quiet
) -> None:
    newest = Partition("north", 3, 1).place(0)
    old, new, third = (shard_at(place, models) for place in (OLD, NEW, newest))
    step(old, sent_to(OLD, [*batches[:75], notice(batches[74])]))
    (first,) = old.moving
    moved = Moved(1, batches[74].end)
    step(new, sent_to(NEW, batches[:75], moved=moved))
    next(iter(new.newcomers)).offer(first)
    step(new, sent_to(NEW, [*batches[75:110], notice(batches[109])], 300, moved))
    (second,) = new.moving
    step(third, sent_to(newest, batches[10:110], moved=Moved(1, batches[109].end)))
    (waiting,) = third.newcomers
    waiting.offer(first)  # still at the broker, until the second state is there
    assert waiting.handover is None
    waiting.offer(Handover.unpack(second.pack()))
    step(third, sent_to(newest, batches[110:], 300))
    assert_same(heard([*old.changes, *new.changes, *third.changes]), expected)
    assert third.counts["s0/cam", "missed"] == 0


def test_messages_that_come_again_at_the_old_place_are_not_scored_twice(
    models: FleetModels, batches: list[Batch]
) -> None:
    old = shard_at(OLD, models)
    sent = sent_to(OLD, [*batches[:80], notice(batches[79])])
    step(old, sent)
    said, frames = len(old.changes), old.scorer.counts.frames
    step(old, sent)
    assert (len(old.changes), old.scorer.counts.frames, len(old.moving)) == (said, frames, 1)
    assert old.state().cameras == {}
    step(old, sent[-1:])  # told again, because the broker was away
    assert len(old.moving) == 1


def test_an_open_event_that_moved_away_is_not_ended_by_who_takes_the_old_shard_over(
    models: FleetModels, batches: list[Batch]
) -> None:
    old = shard_at(OLD, models)
    before = old.state()
    at = next(n for n in range(1, len(batches)) if _is_open(models, batches[:n]))
    sent = sent_to(OLD, [*batches[:at], notice(batches[at - 1])])
    step(old, sent)
    told = [wire.encode_event(c.site, c.kind, c.before, c.after) for c in old.changes]
    successor = shard_at(OLD, models)
    successor.restore(before, 0.0)
    successor.recalled.load(told, since=0, until=Position(), now=0.0)
    step(successor, sent)
    successor.end_forgotten(FORGET_S, is_drained=False)
    assert "end" not in {change.kind for change in successor.changes}
    assert successor.moving == old.moving


def test_an_open_event_of_the_checkpoint_that_moves_away_is_not_ended(
    models: FleetModels, batches: list[Batch]
) -> None:
    old, successor = shard_at(OLD, models), shard_at(OLD, models)
    at = next(n for n in range(1, len(batches)) if _is_open(models, batches[:n]))
    *sent, moved = sent_to(OLD, [*batches[:at], notice(batches[at - 1])])
    step(old, sent)
    told = [wire.encode_event(c.site, c.kind, c.before, c.after) for c in old.changes]
    successor.restore(old.state(), 0.0)
    successor.recalled.load(told, since=0, until=Position(), now=0.0)
    step(successor, [moved])
    successor.end_forgotten(FORGET_S, is_drained=False)
    assert [left.camera for left in successor.moving] == ["s0/cam"]
    assert successor.changes == []


def test_an_open_event_that_moved_here_is_not_ended_by_who_takes_over_before_its_state_comes(
    models: FleetModels, batches: list[Batch]
) -> None:
    old, new, successor = shard_at(OLD, models), shard_at(NEW, models), shard_at(NEW, models)
    at = next(n for n in range(1, len(batches)) if _is_open(models, batches[:n]))
    step(old, sent_to(OLD, [*batches[: at - 1], notice(batches[at - 2])]))
    moved = Moved(1, batches[at - 2].end)
    sent = sent_to(NEW, batches[max(at - 100, 0) : at + 5], moved=moved)
    step(new, sent)
    _offer(new, old.moving[0])
    (began,) = [change for change in new.changes if change.kind == "new"]

    successor.restore(shard_at(NEW, models).state(), 0.0)
    told = [wire.encode_event("s0", "new", None, began.after)]
    successor.recalled.load(told, since=0, until=Position(), now=0.0)
    step(successor, sent)
    successor.end_forgotten(FORGET_S, is_drained=False)
    _offer(successor, old.moving[0])
    successor.end_forgotten(FORGET_S, is_drained=False)
    assert "end" not in {change.kind for change in successor.changes}


def _offer(shard: Shard, left: Handover) -> None:
    """Let the state of a camera that moved arrive."""
    (waiting,) = shard.newcomers
    waiting.offer(left)
    step(shard, [])


def _is_open(models: FleetModels, some: list[Batch]) -> bool:
    shard = shard_at(OLD, models)
    step(shard, sent_to(OLD, some))
    return any(change.kind == "new" for change in shard.changes)


def test_a_state_that_does_not_come_is_waited_for_so_long_and_no_frame_is_scored_twice(
    models: FleetModels, batches: list[Batch]
) -> None:
    new = shard_at(NEW, models)
    step(new, sent_to(NEW, batches[:60], moved=Moved(1, 50)), now=0.0)
    (waiting,) = new.newcomers
    waiting.offer(replace(Handover("s0/cam", 9, None)))  # of another connection
    step(new, [], now=WAIT_S - 0.1)
    assert new.scorer.counts.frames == 0
    step(new, [], now=WAIT_S + 0.1)
    assert new.counts["s0/cam", "unhanded"] == 1
    assert new.scorer.counts.frames == 10


def test_an_open_event_whose_state_comes_too_late_ends_as_interrupted(
    models: FleetModels, batches: list[Batch]
) -> None:
    old, new = shard_at(OLD, models), shard_at(NEW, models)
    at = next(n for n in range(1, len(batches)) if _is_open(models, batches[:n]))
    step(old, sent_to(OLD, [*batches[:at], notice(batches[at - 1])]))
    step(new, sent_to(NEW, batches[at : at + 3], moved=Moved(1, batches[at - 1].end)))
    step(new, [], now=WAIT_S + 0.1)
    assert new.changes == []
    (asked,) = new.newcomers.asking()
    asked.offer(old.moving[0])
    for _ in range(2):
        step(new, [], now=WAIT_S + 5.0)
    began = [change.after.id for change in old.changes if change.kind == "new"]
    assert [(c.kind, c.after.id, c.after.ended_by) for c in new.changes] == [
        ("end", began[0], "interrupted")
    ]
    assert new.newcomers.asking() == []


def test_what_is_left_for_another_worker_is_checked() -> None:
    for made in (Handover("s/c", 3, None), Handover("s/c", 3, None, 7)):
        assert Handover.unpack(made.pack()) == made
    assert handover_key("s/c") != handover_key("s/d")
    for value in (b"", b"\xc1", b"\x80", Handover("s/c", 3, None).pack()[:-3]):
        with pytest.raises(UnreadableError, match="handover"):
            Handover.unpack(value)
    assert Moved.of({"Stepvad-Moved": "7 12"}) == Moved(7, 12)
    for headers in (None, {}, {"Stepvad-Moved": "7"}, {"Stepvad-Moved": "7 -1"}):
        assert Moved.of(headers) is None


@pytest.mark.parametrize(
    ("waiting", "most", "shares"),
    [
        ([("a", 10), ("b", 10)], 100, [10, 10]),
        ([("a", 1000), ("b", 10)], 100, [90, 10]),
        ([("a", 1000), ("b", 1000), ("c", 5)], 105, [50, 50, 5]),
        ([("a", 30), ("a", 10), ("b", 0)], 20, [15, 5, 0]),
        ([], 10, []),
    ],
)
def test_no_tenant_gets_more_than_its_fair_share(
    waiting: list[tuple[str, int]], most: int, shares: list[int]
) -> None:
    assert fair_shares(waiting, most) == shares


def test_an_event_whose_frames_are_gone_is_ended_by_the_successor(
    models: FleetModels, scenes: list[Clip]
) -> None:
    sent = deliveries([batch for _, batch in script("s0/cam", scenes[0]).messages])
    shard = shard_of(models)
    state = shard.state()
    step(shard, sent[:100])
    said = [wire.encode_event(c.site, c.kind, c.before, c.after) for c in shard.changes]
    began = [c.after.id for c in shard.changes if c.kind == "new"]
    assert began
    lost, whole = shard_of(models), shard_of(models)
    for successor, some in ((lost, sent[200:205]), (whole, sent[:200])):
        successor.restore(state, 0.0)
        successor.recalled.load(said, since=7, until=Position("", 100), now=0.0)
        step(successor, some)
        successor.end_forgotten(FORGET_S, is_drained=False)
        assert successor.recalled.since is None
    assert [(c.kind, c.after.id, c.after.ended_by) for c in lost.changes] == [
        ("end", began[0], "interrupted")
    ]
    assert "interrupted" not in {c.after.ended_by for c in whole.changes}
    assert "new" in {c.kind for c in whole.changes}


def test_an_event_waits_for_all_frames_that_its_former_owner_saw(
    models: FleetModels, scenes: list[Clip]
) -> None:
    sent = deliveries([batch for _, batch in script("s0/cam", scenes[0]).messages])
    former, successor = shard_of(models), shard_of(models)
    successor.restore(former.state(), 0.0)
    step(former, sent[:100])
    said = [wire.encode_event(c.site, c.kind, c.before, c.after) for c in former.changes]
    successor.recalled.load(said, since=7, until=Position("", sent[99].sequence), now=0.0)
    for some in (sent[:5], sent[5:20]):  # they may be seconds old, or stored just now
        step(successor, some)
        successor.end_forgotten(2 * FORGET_S, is_drained=False)
        assert successor.recalled.since == 7, "who takes over next has to read it too"
    step(successor, sent[20:100])
    successor.end_forgotten(FORGET_S / 2, is_drained=True)
    successor.end_forgotten(2 * FORGET_S, is_drained=False)
    assert "interrupted" not in {c.after.ended_by for c in successor.changes}
    assert successor.recalled.since is None


def test_a_successor_reads_events_that_are_still_recalled() -> None:
    state = ShardState(floor=Position(), cameras={})
    for since, said in ((None, 9), (7, 7), (12, 9)):
        kept = ShardCheckpoint.unpack(Checkpoint(state, False, since).pack("w", said=9))
        found = kept.shard_state()
        assert found is not None
        assert found.said == said


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
