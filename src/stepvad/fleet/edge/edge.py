"""A site that sends its poses to a fleet: it detects and tracks people, workers score them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stepvad.errors import DataError
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.edge.batcher import EncodedBatch, FrameBatcher, StreamInfo
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.edge.publisher import Publisher
from stepvad.fleet.settings import EdgeSite
from stepvad.site.cameras import SOURCES_S, Cameras
from stepvad.site.frames import FrameQueues, Lost, QueuedFrame
from stepvad.site.playback import PlayedScene
from stepvad.site.settings.sections import TOKEN
from stepvad.site.stages import CHECK_S, PAGE_S, Heartbeat, Stage, Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.skeletons import BUILT_IN, COCO17

if TYPE_CHECKING:
    from stepvad.events.record import Mark
    from stepvad.explain.event import EventExplanation
    from stepvad.site.app import Serve
    from stepvad.site.settings.sections import CameraSettings
    from stepvad.site.stages import Page

logger = logging.getLogger(__name__)

TICK_S = 0.05
"""How often batches are checked for frames held too long."""
STATUS_S = 1.0
PACKING_S, PACKING_DEADLINE_S = 4.0, 8.0
DRAIN_S = 5.0
"""Longest time to send the last messages on shutdown."""


class Edge:
    """All stages of an edge process."""

    def __init__(self, settings: EdgeSite, supervisor: Supervisor | None = None) -> None:
        self.settings = settings
        self.status = LiveStatus()
        self.store = Store(settings.data / FILE_NAME)
        """Provides unused connection epochs."""
        self.batchers: dict[str, FrameBatcher] = {}
        self.supervisor = supervisor or Supervisor()
        self.cameras = Cameras(settings, self.status, self)
        names = [camera.name for camera in settings.cameras]
        fleet = settings.fleet
        self.buffer = Buffer(names, round(fleet.buffer_mb * 1e6), again_s=fleet.again_s)
        self._told: dict[str, int] = dict.fromkeys(names, 0)

    def run(
        self,
        stop: threading.Event,
        beat: Callable[[], None] = lambda: None,
        open_page: Callable[[Edge], Page] | None = None,
    ) -> list[str]:
        """Send until `stop` is set; return the stages that failed to stop, usually none.

        The last messages get `DRAIN_S` to be sent. A stage that hangs or dies ends the process.
        """
        bus_thread = BusThread(self.settings.fleet.bus, f"edge-{self.settings.name}")
        subjects = self.settings.fleet.bus.subjects
        publisher = Publisher(bus_thread, self.buffer, self.batchers, subjects)
        packing = Packing(self.cameras.frames, self.batchers, self.buffer, self.status)
        page = None if open_page is None else open_page(self)
        try:
            inner: list[Stage] = [publisher, packing, *([page] if page else [])]
            for stage in inner:
                self.supervisor.start(stage)
            self.cameras.start(self.supervisor)
            logger.info(
                "edge %s is sending poses, cameras: %d", self.settings.name, len(self.batchers)
            )
            self._supervise(stop, beat, bus_thread, publisher)
            return self._stop(publisher, packing, page)
        finally:
            bus_thread.close()
            self.store.close()

    def _supervise(
        self,
        stop: threading.Event,
        beat: Callable[[], None],
        bus_thread: BusThread,
        publisher: Publisher,
    ) -> None:
        status_at = time.monotonic()
        while not stop.wait(CHECK_S):
            bus_thread.check()
            self.supervisor.check_stages()
            beat()
            if time.monotonic() >= status_at:
                status_at = time.monotonic() + STATUS_S
                self._tell(publisher)

    def _stop(self, publisher: Publisher, packing: Packing, page: Page | None) -> list[str]:
        """Stop the sources, report every camera as lost and send the last messages."""
        end = self.supervisor.stop
        left = end(self.cameras.stages, SOURCES_S) + end([packing], PACKING_S)
        unsent = publisher.drain(DRAIN_S)
        if unsent:
            logger.error("%d messages with poses could not be sent", unsent)
        return left + end([publisher, *([page] if page else [])], PAGE_S)

    def check_scene(self, camera: CameraSettings, scene: PlayedScene) -> None:
        """Reject poses whose skeleton cannot be named on the bus."""
        name = scene.clip.skeleton.name
        if name not in BUILT_IN:
            raise DataError(
                f"camera {camera.name}: expected a skeleton of {', '.join(BUILT_IN)}, got {name}",
                hint="convert the poses first",
            )

    def _tell(self, publisher: Publisher) -> None:
        """Report buffered and dropped messages to the page and the metrics."""
        self.status.sink("fleet", len(self.buffer), publisher.failures, publisher.last_error)
        for camera, before in self._told.items():
            dropped = self.buffer.dropped[camera]
            if dropped > before:
                self.status.count(camera, "shed", dropped - before)
                self._told[camera] = dropped
                logger.warning(
                    "camera %s: buffer full, %d frames dropped while the broker is unreachable",
                    *(camera, dropped - before),
                )

    def register(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Send the poses of a camera under its name."""
        fleet = self.settings.fleet
        skeleton = COCO17 if scene is None else scene.clip.skeleton
        self.status.camera(
            camera.name,
            rate=camera.rate,
            threshold=camera.threshold or 1.0,
            model="scored elsewhere",
            zones=camera.zones,
            skeleton=skeleton,
        )
        label = StreamInfo(
            site=self.settings.name,
            camera=camera.name,
            rate=camera.rate,
            skeleton=skeleton,
            precision=fleet.precision,
            most=fleet.frames_per_message,
            wait_s=fleet.wait_s,
        )
        self.batchers[camera.name] = FrameBatcher(
            label, partial(self.store.next_epoch, camera.name)
        )


class Packing:
    """The stage that packs frames with their poses into messages."""

    name = "packing"

    def __init__(
        self,
        frames: FrameQueues,
        batchers: Mapping[str, FrameBatcher],
        buffer: Buffer,
        status: LiveStatus,
    ) -> None:
        self.heartbeat = Heartbeat(PACKING_DEADLINE_S)
        self._frames, self._batchers, self._buffer, self._status = frames, batchers, buffer, status
        self._stopping = threading.Event()

    def run(self) -> None:
        """Pack until stopped and drained, then report every camera as lost."""
        while True:
            self.heartbeat.beat()
            items = self._frames.next(timeout_s=TICK_S)
            now = time.monotonic()
            for camera, item in items:
                batcher = self._batchers[camera]
                if isinstance(item, Lost):
                    self._send(batcher.lose("camera lost"))
                else:
                    self._take(batcher, item, now)
            for batcher in self._batchers.values():
                self._send(batcher.due(now))
            if not items and self._stopping.is_set():
                break
        for batcher in self._batchers.values():
            self._send(batcher.lose("stopped"))

    def stop(self, deadline: float) -> None:
        """Pack the queued frames, then exit."""
        self._stopping.set()
        self._frames.close()

    def _take(self, batcher: FrameBatcher, frame: QueuedFrame, now: float) -> None:
        camera, status = frame.camera, self._status
        try:
            self._send(batcher.add(frame, now))
        except Exception:  # mostly a store that cannot give an epoch: the next frame retries
            logger.exception("camera %s: a frame could not be sent", camera)
            status.count(camera, "skipped")
            return
        status.frame(camera, frame.slot, batcher.wall(frame.slot), frame.size, batcher.seen, {})
        status.observe_latency(camera, time.monotonic() - frame.arrived)

    def _send(self, batches: Sequence[EncodedBatch]) -> None:
        for batch in batches:
            self._buffer.put(batch)


def page_of(edge: Edge, serve: Serve, token: str) -> Page:
    """Serve the page of an edge: people and health, no events."""
    from stepvad.site.app import PageParts

    def explain(id: str) -> EventExplanation:
        raise DataError(f"event {id}: expected an event of this site, got poses alone")

    def mark(id: str, mark: Mark | None, by: str) -> None:
        explain(id)

    parts = edge.settings, edge.store, edge.status, explain, mark
    page_parts = PageParts(*parts)
    page = serve(page_parts, token, edge.supervisor)
    where = edge.settings.web.token or edge.settings.data / TOKEN
    logger.info("the page is at %s and asks for the token in %s", page.url, where)
    return page
