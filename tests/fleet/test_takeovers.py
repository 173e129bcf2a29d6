"""Events that a former owner of a shard left open."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.fleet import wire
from stepvad.fleet.broker.bus import Position
from stepvad.fleet.settings import ModelSettings
from stepvad.fleet.worker.checkpoint import ShardCheckpoint, ShardState
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.owned_shard import Checkpoint
from stepvad.fleet.worker.shard import FORGET_S
from stepvad.poses import Clip
from stepvad.site import demo
from tests.fleet.fleets import THRESHOLD, script
from tests.fleet.test_shard import deliveries, shard_of, step


@pytest.fixture(scope="module")
def models() -> FleetModels:
    return FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])


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
