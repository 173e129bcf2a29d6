"""A site that sends its poses to a fleet: cameras, networks and trackers here, scores elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from stepvad.errors import DataError
from stepvad.fleet.buffer import Buffer
from stepvad.fleet.line import Line
from stepvad.fleet.packing import Label, Packer, Parcel
from stepvad.fleet.publishing import Publisher
from stepvad.fleet.settings import EdgeSite
from stepvad.live.board import Board
from stepvad.live.intake import Intake
from stepvad.live.lanes import Frame, Lost
from stepvad.live.posefiles import Scene
from stepvad.live.site import TOKEN
from stepvad.live.store import FILE_NAME, Store
from stepvad.skeletons import BUILT_IN, COCO17

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepvad.live.sections import CameraSettings
    from stepvad.live.site import Page, Serve

logger = logging.getLogger(__name__)

TICK_S = 0.05
"""How often frames are looked at that wait for others."""
TELL_S = 1.0
DRAIN_S = 5.0
"""How long the last messages may take at the end."""


class Edge:
    """Everything that one process runs."""

    def __init__(self, settings: EdgeSite) -> None:
        self.settings = settings
        self.board = Board()
        self.store = Store(settings.data / FILE_NAME)
        """Knows which numbers of connections were used."""
        self.packers: dict[str, Packer] = {}
        self.intake = Intake(settings, self.board, check=_check, register=self._register)
        names = [camera.name for camera in settings.cameras]
        fleet = settings.fleet
        self.buffer = Buffer(names, round(fleet.buffer_mb * 1e6), again_s=fleet.again_s)
        self._told: dict[str, int] = dict.fromkeys(names, 0)
        self._stopping = threading.Event()
        self._packing = threading.Thread(target=self._pack, name="packing", daemon=True)

    def run(self, stop: threading.Event, open_page: Callable[[Edge], Page] | None = None) -> None:
        """Send until told to stop; the last messages get some seconds."""
        with ExitStack() as running:
            running.callback(self.store.close)
            line = Line(self.settings.fleet.bus, f"edge-{self.settings.name}")
            running.callback(line.close)
            publisher = Publisher(line, self.buffer, self.packers)
            publisher.start()
            running.callback(publisher.stop)
            if open_page is not None:
                running.callback(open_page(self).stop)
            running.callback(self._end, publisher)
            self._packing.start()
            self.intake.start()
            logger.info("edge %s sends poses, cameras: %d", self.settings.name, len(self.packers))
            while not stop.wait(TELL_S):
                line.check()
                self._tell(publisher)

    def _end(self, publisher: Publisher) -> None:
        """No more frames, the last ones sent, every camera said to be gone."""
        self.intake.stop()
        self._stopping.set()
        self.intake.lanes.close()
        self._packing.join()
        left = publisher.drain(DRAIN_S)
        if left:
            logger.error("%d messages with poses could not be sent", left)

    def _pack(self) -> None:
        while True:
            items = self.intake.lanes.next(timeout_s=TICK_S)
            now = time.monotonic()
            for camera, item in items:
                packer = self.packers[camera]
                if isinstance(item, Lost):
                    self._send(packer.lose("camera lost"))
                else:
                    self._take(packer, item, now)
            for packer in self.packers.values():
                self._send(packer.due(now))
            if not items and self._stopping.is_set():
                break
        for packer in self.packers.values():
            self._send(packer.lose("stopped"))

    def _take(self, packer: Packer, frame: Frame, now: float) -> None:
        camera, board = frame.camera, self.board
        try:
            self._send(packer.add(frame, now))
        except Exception:  # above all a store that cannot give an epoch: the next frame tries again
            logger.exception("camera %s: a frame could not be sent", camera)
            board.count(camera, "skipped")
            return
        board.frame(camera, frame.slot, packer.wall(frame.slot), frame.size, packer.seen, {})
        board.observe_latency(camera, time.monotonic() - frame.arrived)

    def _send(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            self.buffer.put(parcel)

    def _tell(self, publisher: Publisher) -> None:
        """Let the page and the metrics know what waits, and what there was no room for."""
        self.board.sink("fleet", len(self.buffer), publisher.failures, publisher.last_error)
        for camera, before in self._told.items():
            dropped = self.buffer.dropped[camera]
            if dropped > before:
                self.board.count(camera, "shed", dropped - before)
                self._told[camera] = dropped
                logger.warning(
                    "camera %s: no room for %d frames while the broker is away",
                    *(camera, dropped - before),
                )

    def _register(self, camera: CameraSettings, scene: Scene | None) -> None:
        fleet = self.settings.fleet
        skeleton = COCO17 if scene is None else scene.clip.skeleton
        self.board.camera(
            camera.name,
            rate=camera.rate,
            threshold=camera.threshold or 1.0,
            model="scored elsewhere",
            zones=camera.zones,
            skeleton=skeleton,
        )
        label = Label(
            site=self.settings.name,
            camera=camera.name,
            rate=camera.rate,
            skeleton=skeleton,
            subjects=fleet.bus.subjects,
            precision=fleet.precision,
            most=fleet.frames_per_message,
            wait_s=fleet.wait_s,
            min_confidence=self.settings.pose.min_confidence,
        )
        self.packers[camera.name] = Packer(label, partial(self.store.next_epoch, camera.name))


def _check(camera: CameraSettings, scene: Scene) -> None:
    """Refuse poses that have no name on the bus."""
    name = scene.clip.skeleton.name
    if name not in BUILT_IN:
        raise DataError(
            f"camera {camera.name}: expected a skeleton of {', '.join(BUILT_IN)}, got {name}",
            hint="convert the poses first",
        )


def page_of(edge: Edge, serve: Serve, token: str) -> Page:
    """The page of an edge: people and health, no events."""

    def explain(id: str) -> dict[str, Any]:
        raise DataError(f"event {id}: expected an event of this site, got poses alone")

    def mark(id: str, normal: bool) -> None:
        explain(id)

    page = serve(edge.settings, edge.store, edge.board, token, explain, mark)
    where = edge.settings.web.token or edge.settings.data / TOKEN
    logger.info("the page is at %s and asks for the token in %s", page.url, where)
    return page
