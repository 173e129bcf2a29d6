"""Changes of events on their way to the disk."""

from __future__ import annotations

import threading
from dataclasses import replace

from stepvad.events import Kind
from stepvad.live.ledger import Entry, Ledger
from stepvad.live.record import Record
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
    """A store on a disk that is full while `full` is set."""

    def __init__(self) -> None:
        self.kept: list[tuple[Kind, Record]] = []
        self.full = threading.Event()

    def change(self, kind: Kind, record: Record) -> None:
        if self.full.is_set():
            raise OSError(28, "No space left on device")
        self.kept.append((kind, record))


def test_a_full_disk_loses_nothing_and_needs_no_restart() -> None:
    disk = Disk()
    stored: list[Entry] = []
    trouble: list[tuple[int, str]] = []
    ledger = Ledger(
        disk, stored=stored.append, trouble=lambda n, why: trouble.append((n, why)), retry_s=0.02
    )
    disk.full.set()
    ledger.start()
    ledger.put(Entry("new", NEW, 0.0))
    for score in range(4, 50):
        ledger.put(Entry("update", replace(NEW, top_score=score), 0.0))
    ledger.put(Entry("end", NEW.ended("calm", 101.0), 0.0))
    wait_until(lambda: len(trouble) > 2, 5)
    assert "No space left" in trouble[0][1]
    assert disk.kept == []
    assert len(ledger) <= 4  # updates that wait together are one
    disk.full.clear()
    assert ledger.stop() == 0
    assert [kind for kind, _ in disk.kept] == ["new", "update", "end"]
    assert disk.kept[1][1].top_score == 49
    assert len(stored) == 3
    assert trouble[-1] == (0, "")


def test_what_cannot_be_stored_in_the_end_is_told() -> None:
    disk = Disk()
    disk.full.set()
    ledger = Ledger(disk, stored=lambda e: None, trouble=lambda n, why: None, retry_s=0.02)
    ledger.start()
    ledger.put(Entry("new", NEW, 0.0))
    assert ledger.stop() == 1
