"""Drawings of the places that cameras see, one per camera, made when nobody is in view.

A pose worker draws, because it has the pixels; the site says when, and keeps the drawing.
"""

from __future__ import annotations

import logging
import struct
import threading
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from stepvad.errors import DataError, StepvadError
from stepvad.files import remove_leftovers, replacing
from stepvad.people import People
from stepvad.retries import Backoff
from stepvad.site.intake.frame_queues import QueuedFrame
from stepvad.site.intake.place_drawing import drawing_bytes, drawing_size
from stepvad.site.intake.status import LiveStatus
from stepvad.site.settings.sections import SiteSettings

logger = logging.getLogger(__name__)

PLACES = "places"
"""Directory of the drawings in the data directory."""
EMPTY_S = 3.0
"""How long nobody must be in view before a place is drawn."""
EMPTY_LOOKS = 3
"""How many frames in a row must show nobody."""
FIRST_RETRY_S, LONGEST_RETRY_S = 10.0, 600.0
"""Delays after a drawing that could not be written."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(slots=True)
class _Watch:
    """What was seen of a place that is yet to be drawn."""

    since: float | None = None
    """Arrival of the first of the latest frames without anybody."""
    looks: int = 0
    connection: int = -1
    not_before: float = 0.0
    retries: Backoff = field(default_factory=lambda: Backoff(FIRST_RETRY_S, LONGEST_RETRY_S))

    def is_empty(self, frame: QueuedFrame) -> bool:
        """Whether nobody has been in view for long enough before a frame."""
        if self.since is None or frame.connection != self.connection:
            return False
        long_enough = frame.arrived - self.since >= EMPTY_S and self.looks >= EMPTY_LOOKS
        return long_enough and frame.arrived >= self.not_before

    def update(self, frame: QueuedFrame, *, is_empty: bool) -> None:
        """Count frames in a row without anybody."""
        if not is_empty or frame.connection != self.connection:
            self.since, self.looks, self.connection = None, 0, frame.connection
        if is_empty:
            self.looks += 1
            self.since = frame.arrived if self.since is None else self.since


class PlaceDrawings:
    """The drawings of a site's cameras that have `draw_place`; thread-safe."""

    def __init__(self, settings: SiteSettings, status: LiveStatus) -> None:
        """Find the drawings there are, and delete those that the settings no longer ask for."""
        self._directory, self._status = settings.data / PLACES, status
        self._cameras = {one.name for one in settings.cameras if one.draw_place}
        self._min_confidence = settings.pose.min_confidence
        self._lock = threading.Lock()
        self._missing: dict[str, _Watch] = {}
        self._clean()
        for camera in self._cameras:
            if (version := self._version(camera)) is None:
                self._missing[camera] = _Watch()
            self._status.place(camera, version)

    def wants(self, frame: QueuedFrame) -> bool:
        """Whether a frame is to be drawn if nobody is in it."""
        with self._lock:
            watch = self._missing.get(frame.camera)
            return watch is not None and watch.is_empty(frame)

    def update(self, frame: QueuedFrame, people: People, drawing: bytes | None) -> None:
        """Take in who was seen in a frame, and keep its drawing if there is one."""
        with self._lock:
            watch = self._missing.get(frame.camera)
            if watch is None:
                return
            is_empty = not people.certain(self._min_confidence).any()
            if drawing is not None and is_empty and watch.is_empty(frame):
                self._keep(frame, drawing, watch)
            else:
                watch.update(frame, is_empty=is_empty)

    def read(self, camera: str) -> bytes | None:
        """The drawing of a camera as PNG; None if there is none."""
        if camera not in self._cameras:
            return None
        try:
            return self._path(camera).read_bytes()
        except FileNotFoundError:
            return None

    def delete(self, camera: str) -> bool:
        """Delete the drawing of a camera, which is then drawn again; whether there was one."""
        with self._lock:
            if camera not in self._cameras or camera in self._missing:
                return False
            self._path(camera).unlink(missing_ok=True)
            self._missing[camera] = _Watch()
            self._status.place(camera, None)
            return True

    def _keep(self, frame: QueuedFrame, drawing: bytes, watch: _Watch) -> None:
        path = self._path(frame.camera)
        try:
            content = to_png(drawing, frame.size)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with replacing(path, DataError) as temporary:
                temporary.write_bytes(content)
        except (StepvadError, OSError) as error:
            watch.not_before = frame.arrived + watch.retries.next_s()
            logger.warning("camera %s: the place could not be drawn: %s", frame.camera, error)
            return
        del self._missing[frame.camera]
        self._status.place(frame.camera, self._version(frame.camera))
        logger.info("camera %s: the place is drawn, in %s", frame.camera, path)

    def _clean(self) -> None:
        """Delete drawings of cameras that are not to be drawn."""
        remove_leftovers(self._directory)
        for path in self._directory.glob("*.png"):
            if path.stem not in self._cameras:
                path.unlink(missing_ok=True)
                logger.info("%s is deleted: its camera has no draw_place", path)

    def _version(self, camera: str) -> int | None:
        """When a drawing was made, in milliseconds."""
        try:
            return self._path(camera).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def _path(self, camera: str) -> Path:
        return self._directory / f"{camera}.png"


def to_png(bits: bytes, size: tuple[int, int]) -> bytes:
    """A black and white PNG of the drawing of a picture of this width and height."""
    if len(bits) != drawing_bytes(size):
        raise DataError(f"drawing: expected {drawing_bytes(size)} bytes, got {len(bits)}")
    width, height = drawing_size(size)
    row = len(bits) // height
    rows = b"".join(b"\0" + bits[n : n + row] for n in range(0, len(bits), row))
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)  # a bit per pixel, grey
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
