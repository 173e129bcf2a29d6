"""Positions of cameras whose frames can be had again: the same events after a restart anywhere."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.events.camera import CameraProfile
from stepvad.events.record import Record
from stepvad.events.rules import Rules
from stepvad.poses import Clip, Pose
from stepvad.site import scoring
from stepvad.site.event_writer import EventWriter, TaskQueue, background_stage, explain_event
from stepvad.site.frames import FrameQueues, Lost, QueuedFrame
from stepvad.site.scoring import CameraPeople, ScoringQueues, SiteScorer, Trail, Watcher
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.changes import ChangeQueue, EventPoses, PendingChange
from stepvad.site.store.events import Store
from stepvad.site.store.positions import Position, PositionBatch
from tests.site.records import record
from tests.video.servers import wait_until

EPOCH, RATE, SIZE = 1_700_000_000_000, 25.0, (1280, 720)
STREAM = list[QueuedFrame]


@dataclass(slots=True, eq=False)
class Run:
    """A site from its start to its kill, without its threads."""

    store: Store
    scorer: SiteScorer
    watcher: Watcher
    changes: ChangeQueue

    def write(self) -> None:
        """Store what is queued, explanations and positions included."""

        def no_rank(record: Record, clip: Clip) -> None:
            return None

        profiles = {"yard": self.watcher.profile}
        while True:
            while (batch := self.changes.due_positions()) is not None:
                if batch.is_explained:
                    self.store.positions.store(batch.positions)
                    batch.is_over = True
                else:  # words are changes, too
                    batch.is_explained = True
                    self.changes.put_positions(batch)
            change = self.changes.first(0)
            if change is None:
                return
            if change.is_news:
                self.store.change(change.kind, change.record)
            self.changes.done()
            if change.poses is not None:
                explain_event(self.store, profiles, self.changes, no_rank, change, True)


def begin(path: Path, profile: CameraProfile) -> tuple[Run, Position | None]:
    store = Store(path)
    position = store.positions.load(["yard"]).get("yard")
    store.check()
    watcher = Watcher(profile, lambda: 0)
    watcher.trail = Trail(position)
    if position is not None:
        watcher.resume(position)
    status = LiveStatus()
    status.camera("yard", rate=RATE, threshold=1.0, model="m", zones={})
    tasks, frames = TaskQueue(), FrameQueues(["yard"], status)
    queues = ScoringQueues(frames, store.changes, tasks, deque())
    return Run(store, SiteScorer(queues, {"yard": watcher}, status), watcher, store.changes), (
        position
    )


def play(path: Path, profile: CameraProfile, stream: STREAM, kills: set[int], seed: int) -> None:
    """Score all frames; before some of them the site is killed, with all that is not stored."""
    rng, at = random.Random(seed), 0
    run, _ = begin(path, profile)
    done = -1
    while at < len(stream):
        if at in kills:
            kills = kills - {at}
            run.store.close()
            run, position = begin(path, profile)
            at, done = (0, -1) if position is None else (position.seq - 1, position.done)
        frame = stream[at]
        run.scorer.score([("yard", replace(frame, is_replayed=frame.slot <= done))])
        at += 1
        if rng.random() < 0.2:
            run.write()
    run.scorer.score([("yard", Lost())])
    run.write()
    run.store.close()


def events(path: Path) -> dict[str, Record]:
    with closing(Store(path)) as store:
        return {one.id: replace(one, version=0) for one in store.events(limit=None)}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "POSITIONS_S", 0.0)


@pytest.fixture(scope="module")
def stream() -> STREAM:
    """Two people who do what is unusual, and a hole in which no frame came."""
    clip = next(iter(make_clips(1, seed=5, seconds=24.0, anomalies=True)))[0]
    return [
        QueuedFrame(
            camera="yard",
            connection=1,
            rate=RATE,
            wall0=EPOCH / 1000,
            slot=slot,
            arrived=0.0,
            size=SIZE,
            poses=people,
            epoch=EPOCH,
            seq=number,
        )
        for number, (slot, people) in enumerate(without_hole(clip.by_frame()), 1)
    ]


def without_hole(frames: Iterator[tuple[int, list[Pose]]]) -> list[tuple[int, list[Pose]]]:
    return [(slot, people) for slot, people in frames if not 300 <= slot < 380]


@pytest.fixture
def profile(small_model: Detector, stream: STREAM) -> CameraProfile:
    clip = next(iter(make_clips(1, seed=5, seconds=24.0, anomalies=True)))[0]
    threshold = float(np.quantile(small_model.score(clip).A, 0.85))
    return CameraProfile(
        camera="yard",
        rate=RATE,
        rules=Rules(threshold=threshold, min_s=0.2, gap_s=1.0),
        detector=small_model,
        model_id="small",
        model_sha256="0" * 64,
        zones={"left": [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)]},
        went_down=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_anywhere_a_site_makes_the_same_events(
    tmp_path: Path, profile: CameraProfile, stream: STREAM, seed: int
) -> None:
    play(tmp_path / "whole.db", profile, stream, set(), 0)
    expected = events(tmp_path / "whole.db")
    kills = {*random.Random(seed).sample(range(1, len(stream)), 12)}
    play(tmp_path / "killed.db", profile, stream, kills, seed)
    found = events(tmp_path / "killed.db")
    assert len(expected) > 1
    assert all(one.why for one in expected.values())
    assert {*found} == {*expected}
    for id, one in expected.items():
        assert found[id] == one


@pytest.mark.slow
def test_killed_before_any_other_position_a_site_makes_the_same_first_event(
    tmp_path: Path, profile: CameraProfile, stream: STREAM, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path / "whole.db", profile, stream, set(), 0)
    expected = events(tmp_path / "whole.db")
    monkeypatch.setattr(scoring, "POSITIONS_S", 3600.0)
    run, _ = begin(tmp_path / "killed.db", profile)
    frames = iter(stream)
    while not run.store.events(open=True):
        run.scorer.score([("yard", next(frames))])
        run.write()
    run.store.close()
    run, position = begin(tmp_path / "killed.db", profile)
    assert position is not None
    assert len(run.store.events(open=True)) == 1
    run.store.close()
    play(tmp_path / "killed.db", profile, stream, {0}, 0)
    assert events(tmp_path / "killed.db") == expected


def test_positions_that_are_due_come_before_the_next_change() -> None:
    changes, batch = ChangeQueue(), PositionBatch([position("yard")], is_explained=True)
    changes.put_positions(batch)
    changes.put(PendingChange("new", record(), 0.0))
    assert changes.first(0) is None
    assert changes.due_positions() is batch
    assert changes.first(0) is not None


def test_an_event_goes_on_with_its_position_and_ends_if_that_is_lost(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "events.db")) as store:
        for camera in ("yard", "door", "gone"):
            store.change("new", record(camera, version=1))
        store.positions.store([position("yard"), position("gone")])
    with closing(Store(tmp_path / "events.db")) as store:
        assert store.positions.load(["yard", "door"]) == {"yard": position("yard")}
        store.check()
        assert [one.camera for one in store.events(open=True)] == ["yard"]
        assert [one.camera for one in store.end_interrupted(2000.0, "yard")] == ["yard"]
    with closing(Store(tmp_path / "events.db")) as store:
        assert store.positions.load(["gone"]) == {}, "it was no camera of the last run"


def test_a_position_that_cannot_be_read_interrupts_the_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Store(tmp_path / "events.db")) as store:
        store.change("new", record("yard", version=1))
        store._database.change("INSERT INTO positions VALUES ('yard', '{\"version\": 9}')")
        assert store.positions.load(["yard"]) == {}
        assert "position of camera yard: expected version 1, got 9" in caplog.text
    with closing(Store(tmp_path / "events.db")) as store:
        store.positions.load(["yard"])
        assert [one.camera for one in store.end_interrupted(2000.0)] == ["yard"]


def test_a_position_waits_for_the_changes_that_it_follows_from() -> None:
    changes, batch = ChangeQueue(), PositionBatch([position("yard")])
    changes.put(PendingChange("new", record(), 0.0))
    changes.put_positions(batch)
    changes.put(PendingChange("end", record().ended("calm", 1005.0), 0.0))
    assert changes.due_positions() is None
    changes.done()
    assert changes.due_positions() is batch
    assert changes.due_positions() is None


def test_a_position_is_stored_behind_changes_explanations_and_their_words(tmp_path: Path) -> None:
    told, supervisor = list[str](), Supervisor()
    changes, tasks = ChangeQueue(), TaskQueue()
    release = threading.Event()

    def store(kind: str, one: Record) -> None:
        told.append(one.why or kind)

    def explain(change: PendingChange, is_stored: bool) -> None:
        release.wait(20)
        changes.put(PendingChange("update", change.record, 0.0, words=("lying", None)))

    def store_positions(positions: Sequence[Position]) -> None:
        told.append("position")

    status = LiveStatus()
    status.camera("yard", rate=RATE, threshold=1.0, model="m", zones={})
    writer = EventWriter(*(changes, store, status, tasks, explain), store_positions=store_positions)
    stages = [background_stage(tasks), writer.stage]
    for stage in stages:
        supervisor.start(stage)
    poses = EventPoses(Clip("yard", RATE, 0, ()), 0, 1)
    changes.put(PendingChange("new", record(), 0.0, poses))
    batch = PositionBatch([position("yard")])
    changes.put_positions(batch)
    wait_until(lambda: told == ["new"])
    time.sleep(0.6)
    assert told == ["new"], "its words are not there yet"
    release.set()
    wait_until(lambda: batch.is_over)
    assert told == ["new", "lying", "position"]
    assert supervisor.stop(stages, 10) == []


def test_a_camera_without_a_model_takes_no_frame_twice() -> None:
    people = CameraPeople("yard", RATE)
    people.trail = Trail(None)
    status = LiveStatus()
    status.camera("yard", rate=RATE, threshold=None, model="", zones={})
    changes = ChangeQueue()
    queues = ScoringQueues(FrameQueues(["yard"], status), changes, TaskQueue(), deque())
    scorer = SiteScorer(queues, {"yard": people}, status)
    frame = QueuedFrame(
        camera="yard", connection=7, rate=RATE, wall0=0.0, slot=5, arrived=0.0, size=SIZE,
        poses=(), epoch=EPOCH, seq=12,
    )  # fmt: skip
    scorer.score([("yard", replace(frame, slot=4, seq=11))])
    scorer.score([("yard", frame)])
    assert status.snapshot().cameras[0].counts["scored"] == 2
    for is_last in (False, True):  # one batch at a time
        batch = changes.due_positions()
        assert batch is not None
        batch.is_over = True
        if not is_last:
            scorer.score([("yard", replace(frame, slot=5, is_replayed=True))])
    scorer.score([("yard", replace(frame, slot=6, seq=13))])
    assert status.snapshot().cameras[0].counts["scored"] == 3
    last = changes.due_positions()
    assert last is not None
    (one,) = last.positions
    assert (one.connection, one.done, one.first, one.seq) == (7, 6, 6, 13)
    assert one.state is None


def position(camera: str) -> Position:
    return Position(
        camera=camera, connection=1, epoch=EPOCH, former=-1, rate=RATE, done=9, first=3, seq=4,
        state=None,
    )  # fmt: skip
