"""The cameras of a site: dealt to camera processes, which are started, supervised and divided."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from stepvad.codec import decode
from stepvad.errors import StepvadError
from stepvad.executors import usable_cores
from stepvad.poses import Pose
from stepvad.retries import Backoff
from stepvad.site.camera_process import (
    BEAT,
    PEOPLE,
    READY,
    STATE,
    Beat,
    CameraSource,
    Networks,
    SentFrame,
    SourceState,
    decode_beat,
    decode_frame,
    run_cameras,
)
from stepvad.site.frames import CameraStates, FrameQueues, QueuedFrame
from stepvad.site.playback import PlayedScene, Player, open_scene
from stepvad.site.processes import ChildProcess, HungError, SupervisedProcess
from stepvad.site.settings.sections import CameraSettings, PoseSettings, SiteSettings
from stepvad.site.stages import Stage, Supervisor
from stepvad.site.status import CaptureState, LiveStatus
from stepvad.video.camera import LONGEST_ATTEMPT_S

logger = logging.getLogger(__name__)

SOURCES_S = 4.0
"""Seconds that cameras have to stop."""
LOAD_S = 600.0
"""Deadline for loading the networks, including a download."""
LOOK_S = 15.0
"""Longest look at one frame; a process that takes longer counts as hung."""
NO_FRAME_S = 20.0
"""If an online stream sends nothing for this long, its decoder counts as hung."""
NO_ATTEMPT_S = 4 * LONGEST_ATTEMPT_S
"""The same for a stream that is not online, which tells of its attempts, and for a file."""
HANGS_S = 2.5
"""A process that is silent for longer, keep-alives included, is said to hang."""
DIVIDE_S = 60.0
"""A process that ends twice within this time is divided: one of its cameras may be the cause."""
FIRST_REFUSAL_S, LONGEST_REFUSAL_S = 1.0, 30.0
"""Waits before networks that do not load are tried again."""
WAIT_S = 0.2


class CameraUser(Protocol):
    """How a site or an edge uses its cameras."""

    def check_scene(self, camera: CameraSettings, scene: PlayedScene) -> None:
        """Raise a StepvadError if the poses that a camera plays cannot be used."""
        ...

    def register(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Register a camera before its first state report, with its scene if it plays poses."""
        ...


class Cameras:
    """All cameras of a site; `frames` queues their frames with the people in them."""

    def __init__(self, settings: SiteSettings, status: LiveStatus, user: CameraUser) -> None:
        self.frames = FrameQueues([camera.name for camera in settings.cameras], status)
        self.states = CameraStates(status, self.frames)
        self.status = status
        self.numbers = count()
        """Numbers of sources, none of which comes twice."""
        self.last_ids = {camera.name: 0 for camera in settings.cameras}
        """The highest track id of each camera so far."""
        self.stages: list[Stage] = []
        """One for each camera process, and for each camera that plays poses."""
        self.processes: list[CameraProcess] = []
        self._settings = settings
        self._supervisor: Supervisor | None = None
        # cameras that play or send poses need no process; the others are dealt in turn
        for camera in settings.cameras:
            if camera.has_pictures or camera.kind == "nats":
                user.register(camera, None)
            else:
                self._add_player(camera, user)
        pictures = [camera for camera in settings.cameras if camera.has_pictures]
        n = process_count(settings.pose, len(pictures))
        for first in range(n):
            self._add_process(pictures[first::n])

    def start(self, supervisor: Supervisor) -> None:
        """Start all stages."""
        self._supervisor = supervisor
        for stage in [*self.stages]:
            supervisor.start(stage)

    def reopen(self, names: Collection[str], settings: SiteSettings) -> None:
        """Open cameras with pictures again, by other settings."""
        for process in self.processes:
            for name in process.names & {*names}:
                process.open(settings.camera(name))

    def isolate(self, process: CameraProcess, names: Iterable[str]) -> None:
        """Give each of these cameras of a process one of its own, until the site restarts."""
        for name in names:
            camera = process.give_up(name)
            alone = self._add_process([camera])
            logger.warning("camera %s is watched by a process of its own: %s", name, alone.name)
            if self._supervisor is not None:
                self._supervisor.start(alone.stage)

    def pids(self) -> dict[str, int]:
        """The ids of running processes by name."""
        return {p.name: pid for p in self.processes if (pid := p.stage.pid) is not None}

    def process_of(self, camera: str) -> str:
        """The name of the process that watches a camera."""
        return next(process.name for process in self.processes if camera in process.names)

    def _add_process(self, cameras: list[CameraSettings]) -> CameraProcess:
        process = CameraProcess(f"cameras-{len(self.processes)}", cameras, self._settings, self)
        self.processes.append(process)
        self.stages.append(process.stage)
        return process

    def _add_player(self, camera: CameraSettings, user: CameraUser) -> None:
        """Play a camera's poses; one that fails does not stop the others."""
        try:
            scene = open_scene(camera)
            user.check_scene(camera, scene)
        except StepvadError as error:
            user.register(camera, None)
            self.states.report(camera.name, "failed", str(error), is_over=True)
            return
        user.register(camera, scene)
        self.stages.append(Player(camera, scene, self.frames, self.states, self.status))


def process_count(pose: PoseSettings, cameras: int) -> int:
    """Camera processes: on a processor one for each core, on an accelerator one."""
    usual = usable_cores() if pose.device == "cpu" else 1
    return min(cameras, pose.processes or usual)


def idle_cores(settings: SiteSettings) -> int:
    """Cores that each camera process has to itself: a crowd before one camera uses several."""
    cameras = sum(camera.has_pictures for camera in settings.cameras)
    if settings.pose.device != "cpu" or not cameras:
        return 1
    return max(usable_cores() // process_count(settings.pose, cameras), 1)


@dataclass(slots=True, eq=False)
class _Source:
    """A camera as a process has it open."""

    camera: CameraSettings
    first_id: int
    """What its track ids begin after, since ids of a camera never recur."""
    state: CaptureState = "offline"


class CameraProcess:
    """Supervises one camera process: tells it what to open, and hands on what it sends."""

    def __init__(
        self, name: str, cameras: list[CameraSettings], settings: SiteSettings, site: Cameras
    ) -> None:
        pose = settings.pose
        networks = Networks(
            detector=pose.detector,
            pose=pose.pose,
            engine=pose.engine,
            precision=pose.precision,
            device=pose.device,
            threads=pose.threads or idle_cores(settings),
            min_confidence=pose.min_confidence,
        )
        self.name = name
        self.stage = SupervisedProcess(
            name, settings.logs, self.serve, self.died, run_cameras, networks
        )
        self._site = site
        self._cameras = {camera.name: camera for camera in cameras}
        self._over: set[str] = set()
        """Cameras of which nothing will follow."""
        self._to_open: deque[CameraSettings] = deque()
        self._sources: dict[int, _Source] = {}
        self._child: ChildProcess | None = None
        self._is_ready = False
        self._refusal = ""
        """Why its networks do not load."""
        self._refusals = Backoff(FIRST_REFUSAL_S, LONGEST_REFUSAL_S)
        self._died_at: float | None = None
        self._reopened: set[str] = set()
        """Cameras whose decoder hung before."""

    @property
    def names(self) -> set[str]:
        """Its cameras."""
        return {*self._cameras}

    def open(self, camera: CameraSettings) -> None:
        """Open one of its cameras by other settings soon; called from any thread."""
        self._to_open.append(camera)

    def give_up(self, name: str) -> CameraSettings:
        """Watch a camera no more."""
        self._close(name)
        return self._cameras.pop(name)

    def died(self, reason: str) -> None:
        """Report a process that ended; it is restarted, or divided if that happens too often."""
        self._site.status.hang(self._cameras, False)
        was_running, self._child = self._child is not None, None
        if self._refusal:
            return
        logger.warning("%s %s, restarted", self.name, reason)
        for name in self.names - self._over:
            self._site.status.count(name, "restarts")
            self._site.states.report(name, "offline", f"its camera process {reason}")
        if not was_running:  # it could not even be started: that is nobody's fault
            return
        before, self._died_at = self._died_at, time.monotonic()
        if before is not None and self._died_at - before <= DIVIDE_S:
            self._site.isolate(self, [*self._cameras][1:])

    def serve(self, child: ChildProcess, stopping: threading.Event) -> bool:
        """Open the cameras and hand on what comes until stopped; False to start another process."""
        self._child, self._is_ready, self._sources = child, False, {}
        while self._to_open:  # asked for while no process ran
            camera = self._to_open.popleft()
            self._cameras[camera.name] = camera
            self._over.discard(camera.name)
        for name in self.names - self._over:
            self._open(self._cameras[name])
        began = time.monotonic()
        while not stopping.is_set():
            while self._to_open:
                self._open(self._to_open.popleft())
            data = child.receive(WAIT_S)
            if data is not None:
                self._hear(data)
            elif child.silent_s > HANGS_S:
                self._site.status.hang(self._cameras, True)
            if not self._is_ready and time.monotonic() - began > LOAD_S:
                raise HungError(f"loaded no networks for {LOAD_S:g} s")
            if self._is_ready and self._refusal:
                until = time.monotonic() + self._refusals.next_s()
                while time.monotonic() < until and not stopping.wait(WAIT_S):
                    self.stage.heartbeat.beat()
                return stopping.is_set()
        return True

    def _open(self, camera: CameraSettings) -> None:
        """Have the process open a camera; a source of the same one is closed."""
        name = camera.name
        self._close(name)
        self._cameras[name] = camera
        self._over.discard(name)
        try:
            source = camera.live_source() if camera.is_live else Path(camera.url)
        except StepvadError as error:
            self._over.add(name)
            self._site.states.report(name, "failed", str(error), is_over=True)
            return
        number = next(self._site.numbers)
        self._sources[number] = _Source(camera, self._site.last_ids[name])
        opened = CameraSource(
            number=number,
            name=name,
            source=source,
            rate=camera.rate,
            picture_rate=camera.picture_rate,
            loop=camera.loop,
        )
        self._send(opened)

    def _close(self, name: str) -> None:
        """Listen to the source of a camera no more, and have the process close it, if it can."""
        for number in [n for n, source in self._sources.items() if source.camera.name == name]:
            del self._sources[number]
            self._send(number)

    def _send(self, message: CameraSource | int) -> None:
        if self._child is not None:
            self._child.pipe.send(message)

    def _hear(self, data: bytes) -> None:
        """Handle a message; raises if it is malformed, which costs the process."""
        kind = data[:1]
        if kind == PEOPLE:
            self._put(decode_frame(data))
        elif kind == BEAT:
            self._check(decode_beat(data))
        elif kind == STATE:
            self._report(decode(SourceState, data[1:], "camera process"))
        elif kind == READY:
            self._note_ready(data[1:].decode(errors="replace"))
        else:
            raise ValueError(f"expected one of its messages, got {kind!r}")

    def _note_ready(self, problem: str) -> None:
        """Note that the networks are loaded, or why not."""
        self._is_ready = True
        if problem and problem != self._refusal:
            for name in self.names - self._over:
                self._site.states.report(name, "failed", problem)
        if not problem:
            self._refusals.reset()
        self._refusal = problem

    def _report(self, message: SourceState) -> None:
        """Publish the state of a source."""
        source = self._sources.get(message.number)
        if source is None:  # closed meanwhile
            return
        name, source.state = source.camera.name, message.state
        if message.over:
            self._over.add(name)
            del self._sources[message.number]
        self._site.states.report(name, message.state, message.reason, is_over=message.over)

    def _put(self, frame: SentFrame) -> None:
        """Queue a frame for scoring, with ids and a connection that no other process gave."""
        source = self._sources.get(frame.number)
        if source is None:  # closed meanwhile
            return
        name, last_ids = source.camera.name, self._site.last_ids
        poses = [
            Pose(source.first_id + pose.track_id, pose.keypoints, pose.confidence)
            for pose in frame.poses
        ]
        last_ids[name] = max([last_ids[name], *(pose.track_id for pose in poses)])
        self._site.frames.put(
            QueuedFrame(
                camera=name,
                connection=frame.number << 32 | frame.epoch,
                rate=source.camera.rate,
                wall0=frame.wall0,
                slot=frame.slot,
                arrived=frame.arrived,
                size=frame.size,
                poses=poses,
            )
        )

    def _check(self, beat: Beat) -> None:
        """Count what was left out, and find a looker or a decoder that hangs."""
        self._site.status.hang(self._cameras, beat.looking_s > LOOK_S / 2)
        if beat.looking_s > LOOK_S:
            raise HungError(f"looked at one frame for {LOOK_S:g} s")
        for number, age_s, shed, skipped, divisor in beat.sources:
            source = self._sources.get(number)
            if source is None:
                continue
            camera = source.camera
            self._site.status.count(camera.name, "shed", shed)
            self._site.status.count(camera.name, "skipped", skipped)
            self._site.status.lower_rate(camera.name, divisor)
            is_streaming = source.state == "online" and camera.is_live
            limit_s = max(
                NO_FRAME_S if is_streaming else NO_ATTEMPT_S,
                3 / camera.rate,
                3 / camera.picture_rate,
            )
            if age_s > limit_s:
                self._replace(source, f"showed nothing for {limit_s:g} s")

    def _replace(self, source: _Source, why: str) -> None:
        """Replace a decoder that hangs at no cost to the other cameras of the process."""
        if len(self._cameras) == 1:
            raise HungError(why)
        # its thread stays, and nobody listens to it; it gets another, the second time a process
        name = source.camera.name
        self._site.states.report(name, "offline", f"its decoder {why}")
        if name in self._reopened:
            self._site.isolate(self, [name])
        else:
            self._reopened.add(name)
            self._open(source.camera)
