"""The camera process: decodes some cameras, finds and tracks people, and sends them to the site.

    camera ─► decoding thread ─► time slot ─► worth a look? ── no ──► a frame without people ──┐
                                                  │ yes                                        ▼
                                       the latest frame of the camera                       the site
                                                  │                                            ▲
                                              looker: RGB ─► boxes ─► joints ─► tracker ───────┘

One looker goes round all cameras, so a crowd before one delays the others by one frame at most. A
frame that comes before the last one is taken replaces it. Pixels stay in this process.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from stepvad import codec
from stepvad.codec import Count
from stepvad.config import PoseDevice, PoseRuntime, Precision
from stepvad.errors import DataError, StepvadError
from stepvad.poses import Pose
from stepvad.site.load import RateYield
from stepvad.site.processes import GONE, ChildPipe
from stepvad.site.slots import JUMP_S, PlayPace, SlotAnchor, TimeSlots
from stepvad.site.stages import Repeats
from stepvad.site.status import CaptureState
from stepvad.tracker import Tracker
from stepvad.video.camera import Camera, Device
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.graphs import prepare_networks
from stepvad.video.networks import choose_engine
from stepvad.video.source import Frame, open_footage, opencv
from stepvad.video.url import Url
from stepvad.video.watching import Watch

logger = logging.getLogger(__name__)

MOST_SIDE = 16384
"""Largest side of an image in pixels."""
ImageSide = Annotated[int, Meta(ge=1, le=MOST_SIDE)]
READY, STATE, BEAT, PEOPLE = b"R", b"S", b"B", b"P"
"""First byte of a message to the site; it sends a `CameraSource` to open, or a number to close."""
PROGRESS = struct.Struct("<qfIII")
FRAME = struct.Struct("<cqIqddIIHH")
LAST_S = 0.02
"""How often a file that ends looks whether its last frame was sent."""
BURST = 0.5
"""Frames of a burst are closer than this, in time slots."""
UNUSABLE = (StepvadError, ValueError, RuntimeError, ArithmeticError)
"""Errors of a frame that cannot be used; the next one may be."""


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks of a camera process, and how sure their people must be."""

    detector: str
    pose: str
    engine: PoseRuntime
    precision: Precision
    device: PoseDevice
    threads: int
    min_confidence: float

    def open(self) -> PoseEstimator:
        """Load them."""
        prepare_networks(self.detector, self.pose)
        engine = choose_engine(self.engine, self.precision, self.device)
        return open_estimator(self.detector, self.pose, runtime=engine, threads=self.threads)


@dataclass(frozen=True, slots=True)
class CameraSource:
    """A camera to open: a live one, or a file to play."""

    number: int
    """Counts all sources that a site ever opened: no other has it, nor had."""
    name: str
    source: Url | Device | Path
    rate: float
    picture_rate: float
    loop: bool


@dataclass(frozen=True, slots=True)
class SourceState:
    """State of a source; `over` means nothing will follow."""

    number: Count
    state: CaptureState
    reason: str
    over: bool = False


class Progress(NamedTuple):
    """What a source did since the last beat."""

    number: int
    age_s: float
    """Seconds since its decoder last gave a sign of life."""
    shed: int
    """Frames dropped because others were newer."""
    skipped: int
    """Frames whose time slot was taken, or that could not be used."""
    divisor: int
    """One of so many frames that are asked for is used: more than 1 while the machine is busy."""


class Beat(NamedTuple):
    """Sign of life of a camera process, every second."""

    looking_s: float
    """Seconds since the looker took the frame that it is looking at; 0 if it waits."""
    sources: list[Progress]


class SentFrame(NamedTuple):
    """A frame as the site gets it: its time slot, and the people in it."""

    number: int
    """Of its source."""
    epoch: int
    """Counts the connections of the source."""
    slot: int
    wall0: float
    """Wall-clock time of slot 0."""
    arrived: float
    """Arrival by the monotonic clock, which all processes share."""
    size: tuple[int, int]
    poses: Sequence[Pose]


def run_cameras(site: ChildPipe, networks: Networks) -> None:
    """Main loop of a camera process: open and close what the site says, until the pipe closes."""
    try:
        estimator = networks.open()
    except StepvadError as error:
        site.send(READY + (str(error) or type(error).__name__).encode())
        return
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # loading took much that running does not need
    opencv("a camera").setNumThreads(1)  # cameras share the cores already
    site.send(READY)
    looker = Looker(site, estimator, networks.min_confidence)
    site.beat = looker.beat
    _start(looker.run, "looker")
    sources: dict[int, Source] = {}
    try:
        while True:
            message: CameraSource | int = site.receive()
            if isinstance(message, int):
                sources.pop(message).close()
            else:
                sources[message.number] = source = Source(message, looker)
                _start(source.run, f"source-{message.name}")
    except GONE:
        pass
    os._exit(0)  # without waiting for decoders, which may never return


class Source:
    """One camera: a thread that decodes it, puts its frames into time slots and asks for looks."""

    def __init__(self, camera: CameraSource, looker: Looker) -> None:
        self.camera, self._looker = camera, looker
        self.watch = Watch(looker.estimator, camera.rate)
        self.tracker = Tracker()
        self.epoch: int | None = None
        self.waiting: _Waiting | None = None
        """The latest frame, until the looker takes it."""
        self.is_in_hand = False
        """True while the looker looks at a frame of it."""
        self.seen_at = time.monotonic()
        self.shed = self.skipped = 0
        """Frames since the last beat."""
        self.rate_yield = RateYield(camera.rate)
        self._tracked: int | None = None
        """The connection of the people that the tracker knows."""
        self._closed = threading.Event()
        self._live = None
        if not isinstance(camera.source, Path):
            self._live = Camera(
                camera.name,
                camera.source,
                on_state=lambda change: self.say(change.state, change.reason),
                on_attempt=self._on_attempt,
            )
        looker.add(self)

    def close(self) -> None:
        """End it: nothing more is sent, and its thread ends as soon as its decoder returns."""
        self._closed.set()
        if self._live is not None:
            self._live.stop()
        self._looker.remove(self)

    def run(self) -> None:
        """Decode until closed or over."""
        try:
            if self._live is None:
                self._play()
            else:
                self._stream(self._live)
        except StepvadError as error:
            self.say("failed", str(error), over=True)

    def say(self, state: CaptureState, reason: str, *, over: bool = False) -> None:
        """Send the state of the camera, after what was counted until then."""
        if not self._closed.is_set():
            message = SourceState(self.camera.number, state, reason, over)
            self._looker.send(self._looker.beat(), STATE + codec.encode(message))

    def _on_attempt(self) -> None:
        self.seen_at = time.monotonic()

    def _stream(self, live: Camera) -> None:
        logging.getLogger("stepvad.video.camera").setLevel(logging.ERROR)  # the site logs states
        before = 0
        for frame in live:
            # frames that were pushed out of the buffer before this thread got to them
            dropped = live.counts.dropped
            self._looker.count(self, shed=dropped - before)
            before = dropped
            self._take(frame)

    def _play(self) -> None:
        """Play a video in real time, without the gaps where its timestamps jump."""
        camera = self.camera
        video = open_footage(Path(str(camera.source)), picture_rate=camera.picture_rate)
        while True:
            pace = PlayPace(camera.rate, jump_s=max(JUMP_S, 2 / camera.picture_rate))
            is_online = False
            for frame in video:
                if not is_online:
                    height, width, _ = frame.picture.shape
                    self.say("online", f"{width} x {height} pixels")
                    is_online = True
                at = frame.number / (video.fps or camera.rate)
                due = pace.due(at if frame.pts is None else frame.pts, time.monotonic())
                if self._closed.wait(max(due - time.monotonic(), 0.0)):
                    return
                # it comes now, whenever it was decoded
                self._take(replace(frame, wall=time.time(), arrived=time.monotonic()))
            if not camera.loop:
                while self._looker.is_busy_with(self):  # with its last frame
                    time.sleep(LAST_S)
                self.say("offline", "the file is over", over=True)
                return
            self.say("offline", "the file begins again")

    def _take(self, frame: Frame) -> None:
        """Put a frame into its time slot, and have it looked at if that is worth it."""
        self.seen_at = time.monotonic()
        if frame.epoch != self.epoch:
            self.epoch, rate = frame.epoch, self.camera.rate
            self._slots, self._anchor = TimeSlots(rate), SlotAnchor(rate)
        slot = self._slots.place(frame.pts, frame.arrived)
        if slot is None:
            self._looker.count(self, skipped=1)
            return
        if not self.rate_yield.takes(slot):
            return
        try:
            asks = self.watch.asks(frame.picture.luma(), slot / self.camera.rate)
        except UNUSABLE as error:
            self._looker.skip(self, error)
            return
        waiting = _Waiting(frame, slot, self._anchor.wall0(slot, frame.wall))
        if asks:
            self._looker.ask(self, waiting)
        elif self._looker.is_busy_with(self):
            # nobody can be said to be absent before it is known
            self.rate_yield.count(frame.arrived, shed=1)
            self._looker.count(self, shed=1)
        else:
            self.rate_yield.count(frame.arrived, kept=1)
            self._looker.send(encode_frame(self._sent(waiting, ())))

    def look(self, waiting: _Waiting) -> bytes:
        """Find and track the people of a frame."""
        # by the time of the stream: frames may arrive in bursts
        (frame, slot, _), (height, width, _) = waiting, waiting.frame.picture.shape
        time_s = slot / self.camera.rate
        people = self.watch.look(frame.image, time_s, (frame.epoch, width, height))
        # people that are sure enough, (n,), then who is who in this connection
        if self._tracked != frame.epoch:
            self._tracked = frame.epoch
            self.tracker.reset()
        certain = people.certain(self._looker.min_confidence)
        poses = self.tracker.update(people.select(certain), time_s=time_s)
        return encode_frame(self._sent(waiting, poses))

    def _sent(self, waiting: _Waiting, poses: Sequence[Pose]) -> SentFrame:
        frame, slot, wall0 = waiting
        height, width, _ = frame.picture.shape
        size, number = (width, height), self.camera.number
        return SentFrame(number, frame.epoch, slot, wall0, frame.arrived, size, poses)


class _Waiting(NamedTuple):
    """A frame in its time slot, and the wall-clock time of slot 0."""

    frame: Frame
    slot: int
    wall0: float


class Looker:
    """The one thread of a process that runs the networks: it goes round the cameras that ask."""

    def __init__(self, site: ChildPipe, estimator: PoseEstimator, min_confidence: float) -> None:
        self.send, self.min_confidence = site.send, min_confidence
        self.estimator = estimator
        self._sources: list[Source] = []
        self._asked = threading.Condition(threading.RLock())
        self._since: float | None = None
        """When it took the frame that it is looking at."""
        self._lines = Repeats()

    def add(self, source: Source) -> None:
        """Take a source into the round."""
        with self._asked:
            self._sources.append(source)

    def remove(self, source: Source) -> None:
        """Look at a source no more."""
        with self._asked:
            self._sources.remove(source)

    def ask(self, source: Source, waiting: _Waiting) -> None:
        """Have a frame looked at; one that waits already is dropped for it."""
        with self._asked:
            arrived, before = waiting.frame.arrived, source.waiting
            if before is None:
                source.rate_yield.count(arrived, kept=1)
            else:
                # one that hardly waited came in a burst, which a lower rate does not prevent
                waited_s = arrived - before.frame.arrived
                source.rate_yield.count(arrived, shed=waited_s * source.camera.rate > BURST)
                source.shed += 1
            source.waiting = waiting
            self._asked.notify()

    def is_busy_with(self, source: Source) -> bool:
        """Tell if a frame of a source waits or is looked at."""
        with self._asked:
            return source.waiting is not None or source.is_in_hand

    def count(self, source: Source, *, shed: int = 0, skipped: int = 0) -> None:
        """Count frames that are left out."""
        with self._asked:
            source.shed += shed
            source.skipped += skipped

    def skip(self, source: Source, error: Exception) -> None:
        """Count a frame that cannot be used, and say why once a minute."""
        self.count(source, skipped=1)
        words = "camera %s: a frame could not be processed: %s"
        self._lines.log(logger.warning, type(error).__name__, words, source.camera.name, error)

    def run(self) -> None:
        """Look at frames for ever."""
        while True:
            source, waiting = self._next()
            try:
                self.send(source.look(waiting))
            except UNUSABLE as error:
                self.skip(source, error)
            with self._asked:
                self._since, source.is_in_hand = None, False

    def _next(self) -> tuple[Source, _Waiting]:
        """The next frame, once there is one; its source goes to the end of the round."""
        with self._asked:
            while True:
                for source in self._sources:
                    if (waiting := source.waiting) is not None:
                        source.waiting, source.is_in_hand = None, True
                        self._since = time.monotonic()
                        self._sources.remove(source)
                        self._sources.append(source)
                        return source, waiting
                self._asked.wait()

    def beat(self) -> bytes:
        """The message that says how far all threads are, and what was dropped since the last."""
        with self._asked:
            now, parts = time.monotonic(), []
            looking_s = 0.0 if self._since is None else now - self._since
            for source in self._sources:
                number, age_s = source.camera.number, now - source.seen_at
                counts = source.shed, source.skipped, source.rate_yield.divisor
                parts.append(PROGRESS.pack(number, age_s, *counts))
                source.shed = source.skipped = 0
            return BEAT + struct.pack("<f", looking_s) + b"".join(parts)


def decode_beat(data: bytes) -> Beat:
    """Parse a sign of life."""
    try:
        (looking_s,) = struct.unpack_from("<f", data, 1)
        sources = [Progress(*row) for row in PROGRESS.iter_unpack(data[1 + 4 :])]
    except struct.error as error:
        raise DataError(f"camera process: expected a beat, got: {error}") from None
    return Beat(looking_s, sources)


def encode_frame(frame: SentFrame) -> bytes:
    """Serialize a frame: header, ids `(n,)`, joints `(n, V, 2)` and their confidence `(n, V)`."""
    poses = frame.poses
    joints = len(poses[0].keypoints) if poses else 0
    head = FRAME.pack(PEOPLE, *frame[:5], *frame.size, len(poses), joints)
    ids = np.array([pose.track_id for pose in poses], np.int32)
    keypoints = np.array([pose.keypoints for pose in poses], np.float32)
    confidence = np.array([pose.confidence for pose in poses], np.float32)
    return head + ids.tobytes() + keypoints.tobytes() + confidence.tobytes()


def decode_frame(data: bytes) -> SentFrame:
    """Parse and check a frame."""
    try:
        _, number, epoch, slot, wall0, arrived, *size, n, joints = FRAME.unpack_from(data)
    except struct.error as error:
        raise DataError(f"camera process: expected a frame, got: {error}") from None
    length = FRAME.size + 4 * n * (1 + 3 * joints)
    if len(data) != length:
        raise DataError(f"camera process: expected {length} bytes, got {len(data)}")
    ids = np.frombuffer(data, np.int32, n, FRAME.size)
    numbers = np.frombuffer(data, np.float32, 3 * n * joints, FRAME.size + 4 * n)
    is_finite = np.isfinite(numbers).all() and np.isfinite([wall0, arrived]).all()
    if not is_finite or slot < 0 or not all(1 <= side <= MOST_SIDE for side in size):
        raise DataError("camera process: expected finite numbers and sides of an image")
    width, height = size
    keypoints, confidence = np.split(numbers, [2 * n * joints])
    shapes = keypoints.reshape(n, joints, 2), confidence.reshape(n, joints)
    poses = [Pose(*row) for row in zip(ids.tolist(), *shapes, strict=True)]
    return SentFrame(number, epoch, slot, wall0, arrived, (width, height), poses)


def _start(work: Callable[[], None], name: str) -> None:
    """Run something in a thread; if it fails, the process ends, and the site starts another."""
    threading.Thread(target=partial(_run, work), name=name, daemon=True).start()


def _run(work: Callable[[], None]) -> None:
    try:
        work()
    except GONE:
        os._exit(0)
    except BaseException:
        logger.exception("a thread of a camera process failed")
        os._exit(1)
