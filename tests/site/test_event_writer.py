"""Changes of events on their way to the disk, and work in the background."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.events.record import Record
from stepvad.events.rules import ChangeKind
from stepvad.site import event_writer, recorder
from stepvad.site.event_writer import EventWriter, TaskQueue, background_stage
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.changes import MOST_POSES, ChangeQueue, EventPoses, PendingChange
from stepvad.site.store.database import StoreError
from tests.site.sites import one_person
from tests.video.servers import wait_until

NEW = Record(
    id="a-1",
    camera="door",
    score=3.0,
    top_score=3.0,
    start_time=100.0,
    model_id="m",
    model_sha256="0",
    track_id=1,
    epoch=1,
    frame_seq=0,
    confidence=1.0,
    threshold=2.0,
)


class Disk:
    """A store on a disk that refuses while `refuses` is set."""

    def __init__(self, error: Exception) -> None:
        self.kept: list[tuple[ChangeKind, Record]] = []
        self.refuses = threading.Event()
        self.tries = 0
        self._error = error

    def change(self, kind: ChangeKind, record: Record) -> None:
        self.tries += 1
        if self.refuses.is_set():
            raise self._error
        self.kept.append((kind, record))


FULL = OSError(errno.ENOSPC, "No space left on device")
READ_ONLY = OSError(errno.EROFS, "Read-only file system")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(event_writer, "LONGEST_RETRY_S", 0.02)


@pytest.fixture
def status() -> LiveStatus:
    status = LiveStatus()
    status.camera("door", rate=10.0, threshold=2.0, model="m", zones={})
    return status


@contextmanager
def writing(
    disk: Disk, status: LiveStatus, recordings: Path | None = None
) -> Iterator[tuple[ChangeQueue, EventWriter]]:
    changes, supervisor = ChangeQueue(), Supervisor()
    writer = EventWriter(changes, disk.change, status, TaskQueue(), recordings=recordings)
    supervisor.start(writer.stage)
    yield changes, writer
    assert supervisor.stop([writer.stage], 5) == []


def change(kind: ChangeKind, record: Record) -> PendingChange:
    return PendingChange(kind, record, time.monotonic())


def test_a_full_disk_loses_nothing_and_needs_no_restart(status: LiveStatus) -> None:
    disk = Disk(FULL)
    disk.refuses.set()
    with writing(disk, status) as (changes, _):
        changes.put(change("new", NEW))
        for score in range(4, 50):
            changes.put(change("update", replace(NEW, top_score=score)))
        changes.put(change("end", NEW.ended("calm", 101.0)))
        wait_until(lambda: disk.tries > 2, 5)
        (sink,) = status.snapshot().sinks
        assert (sink.name, sink.lag) == ("store", 3)
        assert "No space left" in sink.last_error
        assert disk.kept == []
        disk.refuses.clear()
    assert [kind for kind, _ in disk.kept] == ["new", "update", "end"]
    assert disk.kept[1][1].top_score == 49
    (sink,) = status.snapshot().sinks
    assert (sink.lag, sink.failures, sink.last_error) == (0, 0, "")
    assert status.snapshot().cameras[0].counts["events"] == 1


@pytest.mark.parametrize(
    "error", [TypeError("a bug"), READ_ONLY, OSError(errno.EIO, "Input/output error")], ids=str
)
def test_an_error_that_is_not_a_full_disk_deletes_no_recording(
    status: LiveStatus, tmp_path: Path, error: Exception
) -> None:
    for number in range(5):
        path = tmp_path / "door" / f"door-{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    disk = Disk(error)
    disk.refuses.set()
    with writing(disk, status, tmp_path) as (changes, _):
        changes.put(change("new", NEW))
        wait_until(lambda: disk.tries > 10, 5)
        assert len([*(tmp_path / "door").iterdir()]) == 5
        disk.refuses.clear()
    assert len(disk.kept) == 1


def test_a_writer_whose_disk_cannot_even_be_cleared_goes_on(
    status: LiveStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(directories: object) -> list[Path]:
        raise READ_ONLY

    monkeypatch.setattr(recorder, "make_room", fails)
    disk = Disk(FULL)
    disk.refuses.set()
    with writing(disk, status, tmp_path) as (changes, _):
        changes.put(change("new", NEW))
        wait_until(lambda: disk.tries > 3, 5)
        disk.refuses.clear()
    assert len(disk.kept) == 1


@pytest.mark.parametrize("error", [FULL, StoreError("disk I/O error")])
def test_a_disk_that_is_really_full_loses_the_oldest_recording(
    error: StoreError, status: LiveStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    (tmp_path / "door").mkdir()
    (tmp_path / "door" / "door-0.parquet").write_bytes(b"x")
    disk = Disk(error)
    disk.refuses.set()
    with writing(disk, status, tmp_path) as (changes, _):
        changes.put(change("new", NEW))
        wait_until(lambda: not [*(tmp_path / "door").iterdir()], 5)
        disk.refuses.clear()


def test_what_cannot_be_stored_in_the_end_is_told(
    status: LiveStatus, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(FULL)
    disk.refuses.set()
    changes, supervisor = ChangeQueue(), Supervisor()
    writer = EventWriter(changes, disk.change, status, TaskQueue())
    supervisor.start(writer.stage)
    changes.put(change("new", NEW))
    assert supervisor.stop([writer.stage], 1.0) == []
    assert "1 changes of events could not be stored" in caplog.text


def test_a_queue_that_waits_long_keeps_every_beginning_and_end_but_not_all_poses() -> None:
    changes, poses = ChangeQueue(), EventPoses(one_person(1.0), 0, 1)
    for number in range(300):
        record = replace(NEW, id=f"a-{number}")
        changes.put(PendingChange("new", record, 0.0, poses))
        changes.put(PendingChange("end", record.ended("calm", 101.0), 0.0, poses))
    assert len(changes) == 600
    with_poses = 0
    while (one := changes.first(0)) is not None:
        with_poses += one.poses is not None
        changes.done()
    assert with_poses == MOST_POSES


def note(done: list[int], number: int) -> None:
    """A task that writes its number down; 2 fails."""
    done.append(1 // (number - 2) and number)


def test_tasks_are_done_in_order_and_one_that_fails_stops_no_other() -> None:
    tasks, done, supervisor = TaskQueue(), list[int](), Supervisor()
    stage = background_stage(tasks)
    supervisor.start(stage)
    for number in range(5):
        tasks.put("explanation", partial(note, done, number))
    assert supervisor.stop([stage], 5) == []
    assert len(done) == 4


class Flaky:
    """A task that fails some times before it works."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors, self.runs = errors, 0

    def __call__(self) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)


def test_a_task_that_the_system_fails_is_tried_again_and_one_that_is_wrong_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_writer, "FIRST_TASK_RETRY_S", 0.01)
    out_of_files = DataError("event.parquet: expected a place that can be written")
    out_of_files.__cause__ = OSError(24, "Too many open files")
    full = StoreError("events.db: full", fault="full")
    passing, wrong = Flaky([out_of_files, full]), Flaky([ValueError("a bug")] * 5)
    tasks, supervisor = TaskQueue(), Supervisor()
    stage = background_stage(tasks)
    for task in (passing, wrong):
        tasks.put("recording", task)
    supervisor.start(stage)
    wait_until(lambda: wrong.runs > 0, 10)
    assert supervisor.stop([stage], 5) == []
    assert (passing.runs, wrong.runs) == (3, 1)
    assert "ValueError: a bug" in caplog.text


def test_too_many_tasks_drop_the_oldest_of_their_kind_and_never_a_recording() -> None:
    done = list[int]()
    tasks = TaskQueue({"recording": 3, "explanation": 2, "upkeep": 9, "position": 1})
    for number in (10, 11):
        tasks.put("recording", partial(done.append, number))
    for number in range(20, 25):
        tasks.put("explanation", partial(done.append, number))
    assert len(tasks) == 4
    assert tasks.dropped() == {"recording": 0, "explanation": 3, "upkeep": 0, "position": 0}
    while (task := tasks.take(0)) is not None:
        task[1]()
    assert done == [10, 11, 23, 24]


def test_the_words_of_an_event_that_ends_with_the_site_are_stored(status: LiveStatus) -> None:
    disk, changes, tasks, supervisor = Disk(FULL), ChangeQueue(), TaskQueue(), Supervisor()

    def explain(change: PendingChange, is_stored: bool) -> None:
        time.sleep(0.5)
        changes.put(PendingChange("update", NEW, 0.0, words=("lying", None)))

    writer = EventWriter(changes, disk.change, status, tasks, explain)
    background = background_stage(tasks)
    for stage in (background, writer.stage):
        supervisor.start(stage)
    over = NEW.ended("stopped", 101.0)
    changes.put(change("new", NEW))
    changes.put(PendingChange("end", over, 0.0, EventPoses(one_person(1.0), 0, 1)))
    for stage in (writer.stage, background):
        assert supervisor.stop([stage], 5) == []
    assert disk.kept[1:] == [("end", over), ("update", replace(over, why="lying"))]


def test_later_changes_keep_the_words_and_words_keep_later_changes(status: LiveStatus) -> None:
    disk, higher = Disk(FULL), replace(NEW, top_score=9.0)
    disk.refuses.set()
    with writing(disk, status) as (changes, _):
        for one in (change("new", NEW), change("update", higher)):
            changes.put(one)
        changes.put(
            PendingChange("update", NEW, 0.0, words=("lying", "the strangest of the last 9 days"))
        )
        changes.put(change("end", higher.ended("calm", 101.0)))
        disk.refuses.clear()
    lying = replace(higher, why="lying", strangest="the strangest of the last 9 days")
    expected = [lying, lying.ended("calm", 101.0)]
    assert [record for _, record in disk.kept[1:]] == expected
