"""Events while the disk fails: sinks get them from memory, once, and the disk gets them later."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import DataError
from stepvad.events.record import DeliveryError, SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.site.event_writer import EventWriter, TaskQueue
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.changes import PendingChange
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import OutboxMessage, SinkDelivery
from tests.disks import small_disk
from tests.site.records import SINKS, record
from tests.video.servers import SLOWER, wait_until


class Collector:
    """A sink that keeps what it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[SinkMessage] = []
        self.is_down = False

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        if self.is_down:
            raise DeliveryError("down")
        self.got.append(message)

    def close(self) -> None: ...


def opened(path: Path, clock: Callable[[], float] = time.time) -> Store:
    return Store(path, SINKS, later=True, busy_s=0.05, patience_s=0.2, clock=clock)


class Site:
    """A writer and two sinks, as in a site."""

    def __init__(self, store: Store) -> None:
        self.store, self._running = store, Supervisor()
        self.sinks = [Collector(name) for name in SINKS]
        self.deliveries = [SinkDelivery(store.outbox, sink, longest_s=0.1) for sink in self.sinks]
        status = LiveStatus()
        status.camera("yard", rate=10.0, threshold=2.0, model="m", zones={})
        self._writer = EventWriter(store.changes, store.change, status, TaskQueue())
        for stage in (self._writer.stage, *(one.stage for one in self.deliveries)):
            self._running.start(stage)

    def play(self, number: int) -> None:
        """An event that begins, changes and ends."""
        one = record(number=number)
        put(self.store, "new", number)
        put(self.store, "update", number, score=6.0)
        self.store.changes.put(PendingChange("end", one.ended("calm", 2000.0), time.monotonic()))

    def has_told(self, number: int, *, sinks: int = len(SINKS)) -> bool:
        """True if so many sinks have heard of the end of an event."""
        ends = [
            any((m.type, m.after.id) == ("end", record(number=number).id) for m in [*sink.got])
            for sink in self.sinks
        ]
        return sum(ends) >= sinks

    def stop(self) -> None:
        assert self._running.stop([self._writer.stage], 2.0) == []
        assert self._running.stop([one.stage for one in self.deliveries], 5.0) == []


def put(store: Store, kind: ChangeKind, number: int, **facts: Any) -> None:
    store.changes.put(PendingChange(kind, record(number=number, **facts), time.monotonic()))


@contextmanager
def site_on(store: Store) -> Iterator[Site]:
    site = Site(store)
    try:
        yield site
    finally:
        site.stop()
        store.close()


def run(*words: str | Path) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def turned_read_only(path: Path) -> Iterator[Iterator[None]]:
    """An ext4 that finds an error in itself, as on a failing SD card; only a restart helps."""
    image = Path("/dev/shm") / f"image-{os.getpid()}"
    with image.open("wb") as file:
        file.truncate(24 << 20)
    path.mkdir()
    device = ""
    try:
        run("mkfs.ext4", "-q", image)
        device = run("losetup", "-f", "--show", image)
        run("mount", "-o", "errors=remount-ro", device, path)
    except (OSError, subprocess.CalledProcessError) as error:
        if device:
            run("losetup", "-d", device)
        image.unlink()
        pytest.skip(f"an ext4 cannot be mounted: {error}")

    def fault() -> Iterator[None]:
        yield
        name = Path(device).name
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("1")
        yield

    try:
        yield fault()
    finally:
        run("umount", "-l", path)
        run("losetup", "-d", device)
        image.unlink()


@contextmanager
def filled(path: Path) -> Iterator[Iterator[None]]:
    with small_disk(4) as disk:
        path.symlink_to(disk.path)

        def fault() -> Iterator[None]:
            yield
            disk.fill()
            yield
            disk.free()

        yield fault()


@contextmanager
def locked(path: Path) -> Iterator[Iterator[None]]:
    """Another process has an exclusive transaction, and nobody else may even read."""

    def fault() -> Iterator[None]:
        yield
        code = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
            "c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", code, str(path / "events.db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"locked\n"
            yield
            assert other.stdin is not None
            other.stdin.close()

    path.mkdir()
    yield fault()


@contextmanager
def moved_away(path: Path) -> Iterator[Iterator[None]]:
    """As when the disk is unmounted, or its directory removed."""

    def fault() -> Iterator[None]:
        yield
        path.rename(path.with_name("elsewhere"))
        yield
        path.with_name("elsewhere").rename(path)

    path.mkdir()
    yield fault()


@contextmanager
def unwritable(path: Path) -> Iterator[Iterator[None]]:
    """Every write beyond the first bytes of a file fails: SQLite says "disk I/O error"."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fault() -> Iterator[None]:
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    path.mkdir()
    try:
        yield fault()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextmanager
def damaged(path: Path) -> Iterator[Iterator[None]]:
    """Every page but the first is overwritten; then a copy from before takes the file's place."""

    def fault() -> Iterator[None]:
        yield
        database, copy = path / "events.db", path / "copy"
        with closing(Store(database)) as store:
            store.backup(copy)
            store._database._usable().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        noise = path / "noise"
        noise.write_bytes(copy.read_bytes()[:4096] + b"\xa5" * 40960)
        noise.rename(database)
        yield
        copy.rename(database)

    path.mkdir()
    yield fault()


Fault = Callable[[Path], AbstractContextManager[Iterator[None]]]
FAULTS: list[Fault] = [turned_read_only, filled, locked, moved_away, unwritable, damaged]


@pytest.mark.parametrize("played", FAULTS, ids=lambda one: one.__name__)
def test_events_reach_sinks_while_the_disk_fails_and_are_stored_once_it_is_back(
    played: Fault, tmp_path: Path
) -> None:
    with played(tmp_path / "data") as fault:
        next(fault)
        with site_on(opened(tmp_path / "data" / "events.db")) as site:
            site.play(0)
            wait_until(lambda: site.has_told(0), 10)
            next(fault)
            began = time.monotonic()
            for number in range(1, 6):
                site.play(number)
            wait_until(lambda: site.has_told(5), 10)
            assert time.monotonic() - began < 2.0 * SLOWER
            assert site.store.trouble
            assert site.store.event(record(number=5).id) is not None, "it waits for the disk"
            if played is turned_read_only:
                return
            next(fault, None)
            wait_until(lambda: len(site.store.changes) == 0, 10)
            site.play(6)
            wait_until(lambda: site.has_told(6), 10)
            wait_until(lambda: all(one.is_idle for one in site.deliveries), 10)
            assert site.store.trouble == ""
            stored = {one.id: one for one in site.store.events(limit=None)}
            assert {record(number=n).id for n in range(7)} <= stored.keys()
            for sink in site.sinks:
                told = [(one.after.id, one.after.version) for one in sink.got]
                assert len(told) == len({*told}), "nothing comes twice"
                assert sorted(told, key=lambda one: one[1]) == told
                last = {one.after.id: one.after for one in sink.got}
                assert last == {id: stored[id] for id in last}
                unstored = {one.after.frame_seq for one in sink.got if not one.stored}
                assert {2, 3, 4, 5} <= unstored <= {1, 2, 3, 4, 5}


@contextmanager
def none(path: Path) -> Iterator[Iterator[None]]:
    """There is no disk yet: another file is where its directory is to be."""

    def fault() -> Iterator[None]:
        path.write_text("")
        yield
        yield
        path.unlink()

    yield fault()


@contextmanager
def without_inodes(path: Path) -> Iterator[Iterator[None]]:
    with small_disk(4) as disk:
        path.symlink_to(disk.path)

        def fault() -> Iterator[None]:
            run("mount", "-o", "remount,nr_inodes=4", disk.path)
            with suppress(OSError):
                for number in range(10):
                    (disk.path / f"file {number}").touch()
            yield
            yield
            for file in disk.path.glob("file *"):
                file.unlink()
            run("mount", "-o", "remount,nr_inodes=1000", disk.path)

        yield fault()


@contextmanager
def read_only(path: Path) -> Iterator[Iterator[None]]:
    with small_disk(4) as disk:
        path.symlink_to(disk.path)

        def fault() -> Iterator[None]:
            run("mount", "-o", "remount,ro", disk.path)
            yield
            yield
            run("mount", "-o", "remount,rw", disk.path)

        yield fault()


@pytest.mark.parametrize("played", [none, without_inodes, read_only], ids=lambda one: one.__name__)
def test_a_site_starts_without_a_disk_and_its_events_are_stored_later(
    played: Fault, tmp_path: Path
) -> None:
    with played(tmp_path / "data") as fault:
        next(fault)
        with site_on(opened(tmp_path / "data" / "events.db")) as site:
            assert site.store.trouble
            assert site.store.next_epoch("yard") < site.store.next_epoch("yard")
            site.play(1)
            wait_until(lambda: site.has_told(1), 10)
            next(fault)
            next(fault, None)
            wait_until(lambda: len(site.store.changes) == 0, 10)
            (stored,) = site.store.events()
            assert stored == site.sinks[0].got[-1].after
            assert stored.ended_by == "calm"


def test_a_file_of_another_kind_is_refused_all_the_same(tmp_path: Path) -> None:
    shutil.copy(Path(__file__), tmp_path / "events.db")
    with closing(opened(tmp_path / "events.db")) as damaged:
        assert "not a database" in damaged.trouble
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE a (b)")
    with pytest.raises(DataError, match="expected an event store"):
        opened(tmp_path / "other.db")


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Store]:
    """A store that takes nothing until `mend` is called."""
    store = opened(tmp_path / "events.db")
    store._database._usable().execute("PRAGMA query_only = ON")
    yield store
    store.close()


def mend(store: Store) -> None:
    store._database._usable().execute("PRAGMA query_only = OFF")


def keys(messages: list[OutboxMessage]) -> list[tuple[str, bool]]:
    return [(one.kind, one.message.stored) for one in messages]


def test_what_was_delivered_from_memory_does_not_come_again_once_it_is_stored(
    tmp_path: Path,
) -> None:
    with closing(opened(tmp_path / "events.db")) as store:
        put(store, "new", 0)
        store.changes.give_up()  # the disk takes other writes
        for message in store.outbox.pending("mqtt"):
            store.outbox.delivered(message)
        change = store.changes.first(0)
        assert change is not None
        store.change(change.kind, change.record)
        store.changes.done()
        assert store.outbox.pending("mqtt") == store.outbox.waiting("mqtt") == []
        assert store.outbox.lag("file") == 1


def test_a_message_that_is_on_its_way_while_its_change_is_stored_does_not_come_again(
    broken: Store,
) -> None:
    put(broken, "new", 0)
    broken.changes.give_up()
    (message,) = broken.outbox.pending("mqtt")
    assert keys([message]) == [("new", False)]
    mend(broken)
    change = broken.changes.first(0)
    assert change is not None
    broken.change(change.kind, change.record)
    assert keys(broken.outbox.pending("mqtt")) == [("new", True)], "once, though it is in both"
    broken.changes.done()
    broken.outbox.delivered(message)
    assert broken.outbox.pending("mqtt") == []
    assert broken.outbox.waiting("mqtt") == []
    assert keys(broken.outbox.pending("file")) == [("new", True)]


def test_a_sink_that_is_down_gets_what_others_got_from_memory_from_the_disk(
    broken: Store,
) -> None:
    put(broken, "new", 0)
    put(broken, "update", 0, score=5.0)
    put(broken, "update", 0, score=6.0)
    broken.changes.give_up()
    assert keys(broken.outbox.pending("mqtt")) == [("new", False), ("update", False)]
    for message in broken.outbox.pending("mqtt"):
        broken.outbox.delivered(message)
    assert broken.outbox.lag("mqtt") == 0
    assert broken.outbox.lag("file") == 2
    assert [one.score for one in broken.events(open=True)] == [6.0], "the page shows it"
    assert broken.events(camera="gate") == broken.events(open=False) == []
    mend(broken)
    while (change := broken.changes.first(0)) is not None:
        broken.change(change.kind, change.record)
        broken.changes.done()
    assert broken.outbox.pending("mqtt") == broken.outbox.waiting("mqtt") == []
    assert keys(broken.outbox.pending("file")) == [("new", True), ("update", True)]


def test_a_change_waits_for_the_disk_before_sinks_take_it_from_memory(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "events.db", SINKS, patience_s=0.3)) as store:
        put(store, "new", 0)
        assert store.outbox.pending("mqtt") == []
        began = time.monotonic()
        store.outbox.wait(store.outbox.posted(), 5.0)
        assert 0.2 < time.monotonic() - began < 2.0 * SLOWER
        assert keys(store.outbox.pending("mqtt")) == [("new", False)]


def test_what_is_left_at_a_stop_gets_its_moment(broken: Store) -> None:
    broken.changes._patience_s = 60.0
    site = Site(broken)
    site.play(0)
    site.stop()
    assert site.has_told(0)


def test_a_clock_set_back_a_day_changes_nothing(tmp_path: Path) -> None:
    now = [200_000.0]
    with site_on(opened(tmp_path / "events.db", lambda: now[0])) as site:
        for number in range(3):
            site.play(number)
            wait_until(lambda number=number: site.has_told(number), 10)  # type: ignore[misc]
            now[0] -= 86_400.0
        told = [one.after.version for one in site.sinks[0].got]
        assert told == sorted({*told})
        assert all(one.stored for one in site.sinks[0].got)
