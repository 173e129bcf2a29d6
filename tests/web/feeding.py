"""A site that lives: people of a clip walk before its cameras, and what they do makes events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stepvad.detector import Detector
from stepvad.events.record import Record, event_id
from stepvad.events.rules import Change, Event, EventDetector, Rules
from stepvad.explain.event import ExplainedPeak, explain_peak
from stepvad.poses import Clip
from stepvad.stream import Stream
from tests.web.sites import ServerThread, Site, serve, site

FPS = 25.0
PICTURE = (1280, 720)


class Feeder:
    """Plays a clip to one camera, as fast as it happened, again and again."""

    def __init__(self, site: Site, camera: str, detector: Detector, clip: Clip) -> None:
        self.site, self.camera, self.detector, self.clip = site, camera, detector, clip
        scores = detector.score(clip).A
        threshold = max(float(np.quantile(scores, 0.93)), 0.1)
        self.rules = Rules(threshold=threshold, min_s=0.2, gap_s=1.0)
        site.status.camera(
            camera,
            rate=FPS,
            threshold=threshold,
            model="walkers",
            zones={"gate": [(0.05, 0.35), (0.3, 0.35), (0.3, 0.95), (0.05, 0.95)]},
        )
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"feed {camera}")

    def _run(self) -> None:
        self.site.status.state(self.camera, "online", "", time.time())
        round_ = 0
        while not self.stopped.is_set():
            round_ += 1
            self._play(round_, time.time())
        for one in self.site.store.events(camera=self.camera, open=True):
            self.site.store.change("end", one.ended("stopped", time.time()))

    def _play(self, epoch: int, began: float) -> None:
        stream, watch = Stream(self.detector), EventDetector(self.rules)
        for frame, poses in self.clip.by_frame():
            wall = began + frame / FPS
            if self.stopped.wait(max(wall - time.time(), 0)):
                break
            windows = stream.update(frame, poses)
            scores = dict(zip(windows.track_id.tolist(), windows.A.tolist(), strict=True))
            status = self.site.status
            status.frame(self.camera, frame, wall, PICTURE, poses, scores)
            status.count(self.camera, "frames_in")
            status.count(self.camera, "scored")
            status.count(self.camera, "windows", len(windows))
            status.observe_latency(self.camera, max(time.time() - wall, 0.0))
            for change in watch.update(frame / FPS, windows, FPS):
                self._change(change, epoch, began)
        for change in watch.finish():
            self._change(change, epoch, began)

    def _change(self, change: Change, epoch: int, began: float) -> None:
        event = change.event
        frame = round(event.peak_s * FPS)
        look = explain_peak(self.detector, self.clip, event.peak_track, frame, calm=self.rules.calm)
        record = self._record(event, look, epoch, began)
        if change.kind == "end":
            record = record.ended("calm", began + event.last_s)
        self.site.store.change(change.kind, record)
        if change.kind == "new":
            self.site.status.count(self.camera, "events")
            self.site.status.observe_alert(
                self.camera, max(time.time() - began - event.last_s, 0.0)
            )
        self.site.explanations[record.id] = look.explanation(FPS)

    def _record(self, event: Event, look: ExplainedPeak, epoch: int, began: float) -> Record:
        first = round(event.first_s * FPS)
        return Record(
            id=event_id(self.camera, epoch, event.tracks[0], first),
            camera=self.camera,
            score=event.peak,
            top_score=event.peak,
            start_time=began + event.first_s,
            zones=("gate",) if event.peak_track % 2 else (),
            model_id="walkers",
            model_sha256="ab" * 32,
            track_id=event.peak_track,
            tracks=event.tracks,
            epoch=epoch,
            frame_seq=first,
            confidence=look.peak.confidence,
            threshold=self.rules.threshold,
            why=look.findings[0].says if look.findings else None,
        )


@contextmanager
def living(
    directory: Path, detector: Detector, clips: dict[str, Clip]
) -> Iterator[tuple[Site, ServerThread]]:
    """A site with a camera for each clip, and its server."""
    with site(directory, tuple(clips)) as made:
        feeders = [Feeder(made, name, detector, clip) for name, clip in clips.items()]
        server = serve(made.app(), "127.0.0.1", 0)
        for feeder in feeders:
            feeder.thread.start()
        try:
            yield made, server
        finally:
            for feeder in feeders:
                feeder.stopped.set()
            for feeder in feeders:
                feeder.thread.join()
            server.stop()
