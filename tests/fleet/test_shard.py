"""A shard without a broker: its events and windows are those of a quiet site, come what may."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.events.camera import CameraEvents, RecordChange
from stepvad.events.rules import Rules
from stepvad.fleet import wire
from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.settings import ModelSettings
from stepvad.fleet.subjects import Subjects
from stepvad.fleet.wire import Batch, CameraConnection, EventMessage, batch_of
from stepvad.fleet.worker.camera import DEPTH, Reorder
from stepvad.fleet.worker.checkpoint import ShardCheckpoint, ShardState
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.owned_shard import Checkpoint
from stepvad.fleet.worker.scoring import Announcement, BatchScorer
from stepvad.fleet.worker.shard import Pace, Shard
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Track
from stepvad.site import demo
from stepvad.skeletons import (
    BODY25,
    COCO17,
    HALPE26,
    MEDIAPIPE33,
    WHOLEBODY133,
    Skeleton,
)
from stepvad.windows.views import Windows
from tests.fleet.fleets import THRESHOLD, Heard, Script, renumbered, script
from tests.fleet.results import assert_same, digests, quiet


def batch(seq: int, n: int = 1) -> Batch:
    return batch_of(
        [(seq + i, []) for i in range(n)],
        CameraConnection(site="a", camera="b", epoch=1, wall0=0.0, rate=10.0, size=(1, 1)),
        seq,
    )


def numbers(batches: list[Batch]) -> list[int]:
    return [slot for one in batches for slot in one.slots]


@given(st.integers(1, 4), st.sampled_from([0, 100, 9999]), st.integers(0, 2**32))
def test_disorder_within_the_depth_and_duplicates_leave_no_trace(
    size: int, first: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sent = [batch(first + at, size) for at in range(0, 60 * size, size)]
    head, rest = sent[:1], sent[1:]
    late = np.argsort(np.arange(len(rest)) + rng.uniform(0, DEPTH - 1, len(rest)), kind="stable")
    order = head + [rest[i] for i in late]
    for at in sorted(rng.choice(len(order), 6), reverse=True):
        order.insert(int(at) + int(rng.integers(1, 3)), order[int(at)])
    reorder = Reorder()
    found = [n for one in order for n in numbers(reorder.push(one))]
    assert found + numbers(reorder.flush()) == list(range(first, first + 60 * size))
    assert reorder.duplicates == 6 * size
    assert reorder.missed == 0


def test_what_never_comes_is_counted_and_passed_over() -> None:
    reorder = Reorder()
    found = [n for at in [0, 1, *range(5, 5 + DEPTH + 1)] for n in numbers(reorder.push(batch(at)))]
    assert found == [0, 1, *range(5, 5 + DEPTH + 1)]
    assert reorder.missed == 3
    assert reorder.push(batch(3)) == []
    assert reorder.duplicates == 1


def test_the_first_message_of_a_connection_may_be_late_itself() -> None:
    reorder = Reorder()
    assert numbers(reorder.push(batch(2))) == []
    assert numbers(reorder.push(batch(0, 2))) == [0, 1, 2]


def test_messages_that_overlap_give_each_frame_once() -> None:
    reorder = Reorder()
    assert numbers(reorder.push(batch(0, 4))) == [0, 1, 2, 3]
    assert numbers(reorder.push(batch(2, 4))) == [4, 5]
    assert numbers(reorder.push(batch(8, 2))) == []
    assert numbers(reorder.push(batch(8, 4))) == []
    assert numbers(reorder.push(batch(6, 3))) == [6, 7, 8, 9, 10, 11]


def test_frames_left_out_are_not_waited_for() -> None:
    reorder = Reorder()
    reorder.push(batch(0))
    assert reorder.leave_out(batch(1, 3)) == 3
    assert reorder.leave_out(batch(2, 2)) == 0
    assert numbers(reorder.push(batch(4))) == [4]


SUBJECTS = Subjects(shards=1)


@pytest.fixture(scope="module")
def models() -> FleetModels:
    return FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])


def shard_of(models: FleetModels, **pace: float) -> Shard:
    return Shard(0, SUBJECTS, models, BatchScorer(), Pace(**pace))


def deliveries(batches: Sequence[Batch | bytes], first: int = 1) -> list[Delivery]:
    return [
        Delivery(
            "stepvad.poses.0.s0.cam"
            if isinstance(one, bytes)
            else SUBJECTS.poses(one.connection.site, one.connection.camera),
            one if isinstance(one, bytes) else wire.encode(one),
            first + at,
            float(at),
        )
        for at, one in enumerate(batches)
    ]


def interleaved(scripts: Sequence[Script]) -> list[Batch]:
    rows = [(at, i, b) for i, one in enumerate(scripts) for at, b in one.messages]
    return [batch for _, _, batch in sorted(rows, key=lambda row: row[:2])]


def step(
    shard: Shard, some: Sequence[Delivery], now: float = 0.0, clock: float | None = None
) -> None:
    shard.changes += shard.scorer.score(shard.take(some, now, clock))


def feed(shard: Shard, sent: list[Delivery]) -> None:
    """Take the messages in batches of any size."""
    rng = np.random.default_rng(0)
    while sent:
        n = int(rng.integers(1, 60))
        step(shard, sent[:n])
        sent = sent[n:]


def heard(changes: Sequence[Announcement]) -> Heard:
    """As the broker stores them: once for every id of a message."""
    once = {(c.after.id, c.kind, c.slot if c.kind == "update" else 0): c for c in reversed(changes)}
    return Heard(
        [
            EventMessage(site=c.site, kind=c.kind, before=c.after, after=c.after)
            for c in once.values()
        ]
    )


@pytest.mark.ci
@pytest.mark.parametrize("frames", [1, 7])
def test_events_and_windows_are_those_of_a_site(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows], frames: int
) -> None:
    scripts = [script(f"s{i}/cam", clip, frames=frames) for i, clip in enumerate(scenes)]
    expected = quiet(scripts)
    cut_by_stream.clear()
    shard = shard_of(models)
    sent = deliveries(interleaved(scripts))
    feed(shard, sent)
    assert_same(heard(shard.changes), expected)
    assert {d for windows in cut_by_stream for d in digests(windows)} == expected.windows
    assert sum(len(windows) for windows in cut_by_stream) == len(expected.windows)
    assert shard.scorer.counts.frames == sum(clip.n_frames for clip in scenes)


@pytest.mark.parametrize("frames", [1, 10])
def test_a_worker_mutes_the_windows_that_a_site_mutes(
    models: FleetModels, scenes: list[Clip], frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cameras that lose none, some and most of their frames."""
    clips = [_thinned(clip, 1 + i // 2) for i, clip in enumerate(scenes)]
    scripts = [script(f"s{i}/cam", clip, frames=frames) for i, clip in enumerate(clips)]
    expected = quiet(scripts)
    shard, sent = shard_of(models), deliveries(interleaved(scripts))
    feed(shard, sent)
    assert_same(heard(shard.changes), expected)
    assert 0 < shard.scorer.counts.muted_windows < shard.scorer.counts.windows
    told = [record for _, record in expected.changes]
    assert {record.doubt for record in told} >= {None, "50 % of the poses were interpolated"}
    muted = Rules.muted
    monkeypatch.setattr(Rules, "muted", lambda self, windows: muted(self, windows) & False)
    assert len(quiet(scripts).changes) > len(told)


def _thinned(clip: Clip, keep: int) -> Clip:
    """The clip with one of `keep` frames of everybody."""
    tracks = []
    for one in clip.tracks:
        kept = one.frames % keep == 0
        tracks.append(Track(one.id, one.frames[kept], one.keypoints[kept], one.confidence[kept]))
    return replace(clip, tracks=tuple(tracks))


def test_duplicates_and_disorder_leave_no_trace(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows]
) -> None:
    scripts = [script(f"s{i}/cam", clip) for i, clip in enumerate(scenes[:3])]
    expected = quiet(scripts)
    cut_by_stream.clear()
    shard = shard_of(models)
    batches = []
    rng = np.random.default_rng(1)
    for one in scripts:
        own = [batch for _, batch in one.messages]
        body, last = own[:-1], own[-1]
        late = np.arange(len(body)) + np.where(rng.random(len(body)) < 0.05, 4.5, 0)
        body = [body[i] for i in np.argsort(late, kind="stable")]
        batches.append([b for b in body for _ in range(1 + (rng.random() < 0.05))] + [last])
    longest = max(map(len, batches))
    mixed = [own[at] for at in range(longest) for own in batches if at < len(own)]
    for at in range(0, len(mixed), 20):
        step(shard, deliveries(mixed[at : at + 20], at + 1))
    assert_same(heard(shard.changes), expected)
    assert {d for windows in cut_by_stream for d in digests(windows)} == expected.windows
    assert sum(n for (_, why), n in shard.counts.items() if why == "duplicate") > 10
    assert not any(n for (_, why), n in shard.counts.items() if why in ("missed", "late"))


@pytest.mark.parametrize("frames", [1, 10])
def test_a_successor_goes_on_from_any_checkpoint_as_if_nothing_happened(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows], frames: int
) -> None:
    """The owner dies some messages after its checkpoint; what it said by then is said again."""
    scripts = [script(f"s{i}/cam", clip, frames=frames) for i, clip in enumerate(scenes[:3])]
    expected = quiet(scripts)
    cut_by_stream.clear()
    sent = deliveries(interleaved(scripts))
    rng = np.random.default_rng(2)
    shard, done, replayed = shard_of(models), 0, 0
    changes: list[Announcement] = []
    while done < len(sent):
        kept = min(done + int(rng.integers(1, 60)), len(sent))
        step(shard, sent[done:kept])
        value = ShardCheckpoint("w1", shard.state().to_json()).pack()
        died = min(kept + int(rng.integers(0, 40)), len(sent))
        step(shard, sent[kept:died])
        changes += shard.changes
        shard = shard_of(models)
        state = ShardCheckpoint.unpack(value).shard_state()
        assert state is not None
        shard.restore(state, 0.0)
        done = shard.position.sequence
        replayed += kept - done
        step(shard, sent[done:kept])
        assert shard.changes == []
        counts = shard.scorer.counts  # replayed frames complete windows, and are not scored again
        assert (counts.frames, counts.windows) == (0, 0)
        done = kept
    changes += shard.changes
    assert replayed > 0
    assert_same(heard(changes), expected)
    assert {d for windows in cut_by_stream for d in digests(windows)} == expected.windows


def handed_on(models: FleetModels, shard: Shard) -> Shard:
    """The shard as its next owner finds it."""
    state = ShardCheckpoint.unpack(
        ShardCheckpoint("", shard.state().to_json()).pack()
    ).shard_state()
    assert state is not None
    successor = shard_of(models)
    successor.restore(state, 0.0)
    return successor


@pytest.mark.parametrize("replayed", [0, 1, 5])
def test_a_successor_that_hands_the_shard_on_before_it_replayed_all_loses_no_window(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows], replayed: int
) -> None:
    """As when workers take and give back shards faster than brokers deliver."""
    scripts = [script(f"s{i}/cam", clip) for i, clip in enumerate(scenes[:3])]
    expected = quiet(scripts)
    cut_by_stream.clear()
    sent = deliveries(interleaved(scripts))
    shard, done, changes = shard_of(models), 0, []
    while done < len(sent):
        step(shard, sent[shard.position.sequence : done + 50])
        done += 50
        for _ in range(3):
            changes += shard.changes
            shard = handed_on(models, shard)
            at = shard.position.sequence
            step(shard, sent[at : at + replayed])
    changes += shard.changes
    assert_same(heard(changes), expected)
    assert {d for windows in cut_by_stream for d in digests(windows)} == expected.windows


def test_the_floor_keeps_the_frames_that_windows_need_and_no_more(
    models: FleetModels, scenes: list[Clip]
) -> None:
    shard = shard_of(models, silent_s=30.0)
    busy, silent = script("s0/cam", scenes[0]), script("s1/cam", scenes[1], ends=False)
    reach = 2 * next(iter(models._loaded)).detector.config.T
    step(shard, deliveries([silent.messages[0][1]]))
    body = [batch for _, batch in busy.messages[:100]]
    step(shard, deliveries(body, 2), now=1.0)
    assert shard.floor().sequence == 0  # the silent camera's only frame
    step(shard, [], now=31.5)
    shard.end_silent(30.5)
    assert 101 - reach - 3 < shard.floor().sequence < 101 - reach
    assert "s1/cam" not in shard.state().cameras


def test_a_camera_that_was_silent_goes_on_and_frames_before_are_not_scored_again(
    models: FleetModels, scenes: list[Clip]
) -> None:
    shard = shard_of(models, silent_s=5.0)
    other = deliveries([script("s1/cam", scenes[0]).messages[0][1]])  # which needs what is old
    step(shard, other, now=4.0)
    body = [batch for _, batch in script("s0/cam", scenes[1], ends=False).messages]
    step(shard, deliveries(body[:150]), now=0.0)
    shard.end_silent(6.0)
    state = ShardState.from_json(json.loads(json.dumps(shard.state().to_json())))
    began = {c.after.id for c in shard.changes if c.kind == "new"}
    assert began == {c.after.id for c in shard.changes if c.kind == "end"}
    again = shard_of(models)
    again.restore(state, 6.0)
    step(again, deliveries(body[100:150], 101), now=6.0)
    assert again.scorer.counts.frames == 0
    step(again, deliveries(body[150:], 151), now=6.0)
    assert again.scorer.counts.frames == len(body) - 150


def test_a_new_connection_ends_the_one_before_and_ids_stay_unique(
    models: FleetModels, scenes: list[Clip]
) -> None:
    """The camera's clock was moved and its times were set anew; scores are the same."""
    one = script("s0/cam", scenes[1], epoch=7, ends=False)
    other = script("s0/cam", scenes[1], epoch=3, wall0=1_699_996_400.0)
    shard = shard_of(models)
    first = [batch for _, batch in one.messages]
    second = [batch for _, batch in other.messages]
    step(shard, deliveries([*first, *second, first[-1]]))
    ended = [c.after for c in shard.changes if c.kind == "end"]
    assert len({record.id for record in ended}) == len(ended) >= 2
    of = {epoch: [r for r in ended if r.epoch == epoch] for epoch in (7, 3)}
    assert [r.top_score for r in of[3]] == pytest.approx([r.top_score for r in of[7]], rel=1e-5)
    assert of[3][0].start_time == pytest.approx(of[7][0].start_time - 3600.0 - WALL_DIFFERENCE)
    assert shard.counts["s0/cam", "late"] == 1


WALL_DIFFERENCE = 1_700_000_000.0 - 3600.0 - 1_699_996_400.0


def test_poison_is_tried_three_times_and_buried_while_others_go_on(
    models: FleetModels, scenes: list[Clip]
) -> None:
    one = script("s0/cam", scenes[1])
    sent = [batch for _, batch in one.messages]
    good = wire.encode(sent[0])
    nan = msgpack.unpackb(good)
    nan["keypoints"] = np.full(len(nan["keypoints"]) // 4, np.nan, "<f4").tobytes()
    other = replace(sent[0], connection=replace(sent[0].connection, camera="cam2"))
    poison = [good[:50], msgpack.packb(nan), bytes(10_000_000), wire.encode(other)]
    shard = shard_of(models)
    step(shard, deliveries(poison))
    step(shard, deliveries(sent, 5))
    assert shard.dead == []
    assert shard.floor().sequence == 0
    step(shard, [])
    assert [dead.delivery.sequence for dead in shard.dead] == [1, 2, 3, 4]
    assert shard.floor().sequence > 4
    assert_same(heard(shard.changes), quiet([one]))


def test_frames_that_are_too_old_are_shed_whole_and_counted(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows]
) -> None:
    body = [batch for _, batch in script("s0/cam", scenes[1], ends=False).messages]
    shard = shard_of(models, shed_s=1.5)
    sent = [d._replace(time=1000.0 + i / 25) for i, d in enumerate(deliveries(body))]
    step(shard, sent[:50], 0.0, clock=1002.0)  # the youngest is new: only the head is shed
    shed = shard.counts["s0/cam", "shed"]
    assert shed == sum(1002.0 - d.time > (1.5 if i == 0 else 0.5) for i, d in enumerate(sent[:50]))
    assert shard.scorer.counts.frames == 50 - shed
    frames = np.concatenate([windows.frame for windows in cut_by_stream])
    length = next(iter(models._loaded)).detector.config.T
    assert not len(frames) or frames.min() >= shed + length - 1
    step(shard, sent[50:100], 0.0, clock=None)
    assert shard.counts["s0/cam", "shed"] == shed
    # a gap in the middle: no window spans it, however short
    cut_by_stream.clear()
    step(shard, sent[100:104], 0.0, clock=sent[103].time + 2.0)
    step(shard, sent[104:], 0.0, clock=None)
    frames = np.concatenate([windows.frame for windows in cut_by_stream])
    assert frames.min() == 104 + length - 1


def test_a_camera_without_a_model_is_refused_and_others_are_not(
    scenes: list[Clip],
) -> None:
    some = FleetModels.load(
        [ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD, cameras=["s1/*"])]
    )
    shard = shard_of(some)
    scripts = [script(f"s{i}/cam", scenes[1]) for i in range(2)]
    step(shard, deliveries(interleaved(scripts)))
    assert shard.counts["s0/cam", "refused"] == scenes[1].n_frames
    assert {c.after.camera for c in shard.changes} == {"s1/cam"}


def test_a_frame_that_breaks_the_scoring_does_not_end_the_worker(
    models: FleetModels, scenes: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = shard_of(models)
    sent = deliveries([batch for _, batch in script("s0/cam", scenes[1]).messages])
    with monkeypatch.context() as patched:
        patched.setattr(Detector, "score_windows", None)
        step(shard, sent[:30])
    assert shard.scorer.counts.failed == 30
    step(shard, sent[30:])
    assert shard.scorer.counts.frames == len(sent) - 31


def test_a_camera_that_cannot_be_scored_costs_the_others_no_window(
    models: FleetModels, scenes: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [script(f"s{i}/cam", clip, frames=7) for i, clip in enumerate(scenes[:3])]
    bad = script("bad/cam", renumbered(scenes[3], 5000), frames=7)
    expected, scored = quiet(others), set()
    score = Detector.score_windows

    def score_windows(detector: Detector, windows: Windows) -> WindowScores:
        if ((windows.track_id >= 5000) & (windows.frame >= 100) & (windows.frame < 110)).any():
            raise RuntimeError("poison")
        scored.update(digests(windows.part(np.flatnonzero(windows.track_id < 5000))))
        return score(detector, windows)

    monkeypatch.setattr(Detector, "score_windows", score_windows)
    shard = shard_of(models)
    sent = deliveries(interleaved([*others, bad]))
    for at in range(0, len(sent), 40):
        step(shard, sent[at : at + 40])
    assert_same(heard([c for c in shard.changes if c.site != "bad"]), expected)
    assert scored == expected.windows
    counts, frames = shard.scorer.counts, sum(clip.n_frames for clip in scenes[:4])
    assert 0 < counts.failed < 200
    assert counts.frames == frames - counts.failed


def test_a_camera_whose_events_cannot_be_made_costs_the_others_none(
    models: FleetModels, scenes: list[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = [script(f"s{i}/cam", scenes[1]) for i in range(3)]
    expected, observe = quiet([scripts[0], scripts[2]]), CameraEvents.observe

    def broken(watcher: CameraEvents, slot: int, *rest: Any) -> list[RecordChange]:
        if watcher.profile.camera == "s1/cam" and slot % 50 == 40:
            raise RuntimeError("poison")
        return observe(watcher, slot, *rest)

    monkeypatch.setattr(CameraEvents, "observe", broken)
    shard = shard_of(models)
    sent = deliveries(interleaved(scripts))
    for at in range(0, len(sent), 45):
        step(shard, sent[at : at + 45])
    assert_same(heard([c for c in shard.changes if c.site != "s1"]), expected)
    assert shard.scorer.counts.failed > 0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        b"\x91" * 5000,
        ShardCheckpoint("w1").pack()[:-2],
        msgpack.packb([1]),
        msgpack.packb({}),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_told(value: bytes) -> None:
    with pytest.raises(wire.UnreadableError, match="checkpoint: expected"):
        ShardCheckpoint.unpack(value)


@pytest.mark.parametrize(
    "change",
    [
        {"cameras": [1]},
        {"cameras": {"s0/cam": {}}},
        {"floor": "x"},
        {"floor": {"stream": 7}},
        {"floor": {"seen": [1]}},
        {"said": None},
    ],
)
def test_a_state_that_nobody_told_is_refused(
    models: FleetModels, scenes: list[Clip], change: dict[str, object]
) -> None:
    shard = shard_of(models)
    step(shard, deliveries(interleaved([script("s0/cam", scenes[0])]))[:50])
    state = {**shard.state().to_json(), **change}
    with pytest.raises(wire.UnreadableError, match="state: expected that of a shard"):
        ShardState.from_json(state)


def test_a_checkpoint_comes_back_as_it_was(models: FleetModels, scenes: list[Clip]) -> None:
    """At every message: before, in and after events."""
    shard, idle = shard_of(models), set()
    for sent in deliveries(interleaved([script("s0/cam", scenes[0])])):
        step(shard, [sent])
        state = shard.state()
        kept = ShardCheckpoint.unpack(Checkpoint(state, is_last=False).pack("w1", said=7))
        assert (kept.owner, kept.version) == ("w1", 1)
        assert kept.shard_state() == replace(state, said=7)
        idle |= {camera.events is None for camera in state.cameras.values()}
    assert idle == {True, False}


def test_a_checkpoint_without_a_version_is_read_and_a_newer_one_keeps_its_owner(
    models: FleetModels, scenes: list[Clip]
) -> None:
    shard = shard_of(models)
    step(shard, deliveries(interleaved([script("s0/cam", scenes[0])]))[:50])
    state = shard.state()
    facts = {"owner": "w1", "state": state.to_json()}
    assert ShardCheckpoint.unpack(msgpack.packb(facts)).shard_state() == state
    newer = msgpack.packb({**facts, "version": 2})
    kept = ShardCheckpoint.unpack(newer)
    assert kept.owner == "w1"
    assert kept.pack() == newer, "whoever claims the shard leaves the state as it was"
    with pytest.raises(wire.UnreadableError, match="checkpoint: expected version 1, got 2"):
        kept.shard_state()


FIELDS = [
    "site",
    "rate",
    "epoch",
    "wall0",
    "past",
    "scored",
    "first",
    "sequence",
    "is_over",
    "is_lost",
]


@pytest.mark.parametrize("name", [*FIELDS, "events", "reported"])
def test_a_camera_with_a_field_of_another_type_is_refused(
    models: FleetModels, scenes: list[Clip], name: str
) -> None:
    shard = shard_of(models)
    for sent in deliveries(interleaved([script("s0/cam", scenes[0])])):
        step(shard, [sent])
        if shard.cameras[sent.subject].reported is not None:
            break
    facts: Any = shard.state().to_json()
    assert ShardState.from_json(facts) == shard.state()
    for wrong in ({"a": 1}, -1.5, float("nan")):
        facts["cameras"]["s0/cam"][name] = wrong
        if name == "wall0" and wrong == -1.5:
            continue
        with pytest.raises(wire.UnreadableError, match="state: expected that of a shard"):
            ShardState.from_json(facts)


SMALL = Config(K=12, width=16, max_steps=8)


def grown(clip: Clip, skeleton: Skeleton) -> Clip:
    """The clip with COCO-17's joints where they were, and other joints anywhere."""
    rng = np.random.default_rng(5)
    at = [skeleton.joints.index(joint) for joint in COCO17.joints]

    def with_more(track: Track) -> Track:
        n = len(track.frames)
        keypoints = rng.uniform(50, 400, (n, skeleton.V, 2)).astype(np.float32)
        confidence = rng.uniform(0.1, 1, (n, skeleton.V)).astype(np.float32)
        keypoints[:, at], confidence[:, at] = track.keypoints, track.confidence
        return Track(track.id, track.frames, keypoints, confidence)

    return replace(clip, tracks=tuple(map(with_more, clip.tracks)), skeleton=skeleton)


def sent_as(clip: Clip, at: int) -> Script:
    return script(f"s{at}/cam", clip, frames=5)


@pytest.mark.parametrize("skeleton", [HALPE26, BODY25, WHOLEBODY133, MEDIAPIPE33])
def test_scores_of_poses_with_more_joints_have_the_bits_of_coco17(
    models: FleetModels, scenes: list[Clip], cut_by_stream: list[Windows], skeleton: Skeleton
) -> None:
    def run(clips: list[Clip]) -> tuple[list[Any], list[str]]:
        cut_by_stream.clear()
        shard = shard_of(models)
        feed(shard, deliveries(interleaved([sent_as(clip, i) for i, clip in enumerate(clips)])))
        assert (shard.dead, shard.scorer.counts.failed) == ([], 0)
        told = [
            (one.after.id, one.after.score, one.after.top_score)
            for one in heard(shard.changes).told
        ]
        return told, [digest for windows in cut_by_stream for digest in digests(windows)]

    coco17 = run(scenes)
    assert coco17[0], "no event to compare"
    assert run([grown(clip, skeleton) for clip in scenes]) == coco17


def test_poses_that_lack_joints_of_the_model_are_refused_with_their_names(
    scenes: list[Clip], tmp_path: Path
) -> None:
    path = tmp_path / "halpe.safetensors"
    Detector.fit([grown(scenes[0], HALPE26)], SMALL).save(path)
    shard = shard_of(FleetModels.load([ModelSettings(model=path, threshold=1.0)]))
    sent = interleaved([sent_as(scenes[0], 0), sent_as(grown(scenes[1], HALPE26), 1)])
    feed(shard, deliveries(sent))
    for _ in range(3):
        step(shard, [])
    assert {dead.problem for dead in shard.dead} == {
        "poses: expected the joints of halpe26, got coco17 without head, neck, hip"
    }
    assert shard.scorer.counts.frames == scenes[1].n_frames


THREE_VIEWS = Config(K=12, width=16, max_steps=8, ema_warmup=True, clock=True)
LOW_THRESHOLD = 2.0


@pytest.fixture(scope="module")
def model(scenes: list[Clip], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Poses, motion and place, fitted in a second."""
    path = tmp_path_factory.mktemp("views") / "several.safetensors"
    config = THREE_VIEWS.per_view(("pose", "motion", "place"), 25.0)
    Detector.fit(scenes, config).save(path)
    return path


@pytest.mark.parametrize("frames", [1, 7])
def test_every_view_has_the_bits_of_a_site(
    model: Path, scenes: list[Clip], cut_by_stream: list[Windows], frames: int
) -> None:
    scripts = [script(f"s{i}/cam", clip, frames=frames) for i, clip in enumerate(scenes[:4])]
    expected = quiet(scripts, model=model, threshold=LOW_THRESHOLD)
    cut_by_stream.clear()
    shard = shard_of(FleetModels.load([ModelSettings(model=model, threshold=LOW_THRESHOLD)]))
    feed(shard, deliveries(interleaved(scripts)))
    joined = [windows for windows in cut_by_stream if windows.views]
    assert {d for windows in joined for d in digests(windows)} == expected.windows
    assert sum(len(windows) for windows in joined) == len(expected.windows)
    assert expected.changes, "no event to compare"
    assert_same(heard(shard.changes), expected)
