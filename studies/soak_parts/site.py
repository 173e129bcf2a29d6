"""A simulated site of eight cameras, and what can be seen of it from outside."""

from __future__ import annotations

import http.client
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepvad.site.settings.sections import TOKEN
from stepvad.site.store.events import FILE_NAME
from studies.soak_parts.clock import WallClock
from studies.soak_parts.receiver import Receiver
from tests.fleet.servers import Disk
from tests.site.sites import (
    Running,
    one_person,
    pose_camera,
    video_camera,
    write_networks,
    write_site,
)
from tests.video.servers import free_port

POSE_CAMERAS = ("ape", "bee", "cat", "dog", "elk", "fox")
VIDEO_CAMERAS = ("left", "right")
RECORDED = ("ape", "bee")
JUMBLE_S = 3.0
LOOP_FRAMES = 250
"""Frames of the videos, ten a second: then the camera connects again and its event is over."""
CHILDREN = (*(f"capture-{name}" for name in VIDEO_CAMERAS), "poses-0")
SINK_FILE = "events.jsonl"
METRIC = re.compile(r'^stepvad_frames_(in|scored|shed)_total\{camera="(\w+)"\} (\S+)$', re.M)

Counts = dict[str, dict[str, int]]
"""Frames by what became of them (in, scored, shed) and camera."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One stored event."""

    id: str
    camera: str
    start_time: float
    is_open: bool


@dataclass
class FrameTotals:
    """Frames of all sites one after the other: each counts from 0."""

    totals: dict[str, int] = field(default_factory=lambda: {"in": 0, "scored": 0, "shed": 0})
    _latest: dict[str, int] = field(default_factory=dict)

    def add(self, counts: Counts) -> None:
        now = {what: sum(by_camera.values()) for what, by_camera in counts.items()}
        is_new = now["in"] < self._latest.get("in", 0)
        for what, n in now.items():
            self.totals[what] += n - (0 if is_new else self._latest.get(what, 0))
        self._latest = now


class SoakSite:
    """A running site with its disk, its clock, and the receiver of its webhook."""

    def __init__(self, directory: Path, disk: Disk, rate: float) -> None:
        self.directory, self.disk = directory, disk
        self.receiver, self.clock = Receiver(), WallClock(directory)
        self.port = free_port()
        self.frames = FrameTotals()
        self.seen: set[int] = set()
        """Every process that there was."""
        (directory / "site-data").symlink_to(disk.path)
        self._settings = _write_settings(directory, rate, self.receiver.address, self.port)
        self.running: Running

    @contextmanager
    def run(self) -> Iterator[None]:
        """Run it; whatever happens, nothing of it is left."""
        self.receiver.start()
        try:
            with Running(self._settings, more=self.clock.environment) as self.running:
                yield
        finally:
            self.receiver.stop()

    @property
    def data(self) -> Path:
        return self.disk.path

    @property
    def log(self) -> Path:
        return self.running.log

    def processes(self) -> dict[str, int]:
        """Its processes by name."""
        found = self.running.processes()
        self.seen |= {*found.values()}
        return found

    def counts(self) -> Counts | None:
        """What became of frames; None if the page does not answer."""
        try:
            token = (self.data / TOKEN).read_text().strip()
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as page:
                page.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
                answer = page.getresponse()
                body = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return None
        if answer.status != 200:
            return None
        counts: Counts = {"in": {}, "scored": {}, "shed": {}}
        for what, camera, n in METRIC.findall(body):
            counts[what][camera] = int(float(n))
        self.frames.add(counts)
        return counts

    def events(self) -> list[EventRow] | None:
        """What is stored; None if it cannot be read now."""
        rows = self._rows("SELECT id, camera, start_time, end_time IS NULL FROM events")
        return (
            None
            if rows is None
            else [EventRow(id, camera, at, bool(open)) for id, camera, at, open in rows]
        )

    def undelivered(self) -> dict[str, int]:
        """Messages that wait, by sink."""
        return dict(self._rows("SELECT sink, count(*) FROM outbox GROUP BY sink") or [])

    def events_without_poses(self) -> int:
        """Events that can be looked at less closely than others."""
        query = "SELECT count(*) FROM events WHERE id NOT IN (SELECT id FROM poses)"
        rows = self._rows(query)
        return int(rows[0][0]) if rows else 0

    def _rows(self, query: str) -> list[Any] | None:
        with suppress(sqlite3.Error):
            uri = f"file:{self.data / FILE_NAME}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
                return connection.execute(query).fetchall()
        return None


def _write_settings(directory: Path, rate: float, receiver: str, port: int) -> Path:
    cameras = []
    for i, name in enumerate(POSE_CAMERAS):
        every_s = 20.0 + 4 * i
        clip = one_person(
            4 * every_s, every_s=every_s, for_s=JUMBLE_S, phase_s=every_s - 3 * i - 4, rate=rate
        )
        more = "record = true" if name in RECORDED else ""
        cameras.append(pose_camera(name, clip, directory, more))
    cameras += [video_camera(name, directory, n_frames=LOOP_FRAMES) for name in VIDEO_CAMERAS]
    more = (
        f"[web]\nport = {port}\n[retention]\nposes_mb = 40\n"
        f'[sinks.file]\npath = "site-data/{SINK_FILE}"\n'
        f'[[sinks.webhooks]]\nname = "soak"\nurl = "{receiver}"\n'
    )
    return write_site(directory, *cameras, write_networks(directory), more=more)
