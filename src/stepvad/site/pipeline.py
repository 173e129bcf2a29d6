"""The pipeline from a camera's socket to the stored event: all stages and queues.

    camera ──► capture process ──► Capture ──► FrameQueues ◄──► PoseWorker ◄──► pose process
    (socket)   (decodes)           (a stage)       │            (a stage)       (finds people)
    file of poses ──► Player ──────────────────────┤
                                                   ▼
                  ExplainedQueue ───────► ScoringStage ──► ChangeQueue ──► EventWriter ──► Store
                        ▲                          │                            │            │
                        │                          ▼                            │            ▼
                    Explainer ◄── Background ◄── TaskQueue ◄────────────────────┘      SinkDelivery
                                  Tasks                                                (to sinks)

Images do not take this way: the capture process writes them into shared memory, the queues hold
their buffers, and the pose process reads them there (`site/intake/frame_buffers.py`).

Each stage is a thread with a name and a heartbeat (`site/stages.py`); each queue is an
object shared by its producer and consumer. A capture or pose process that dies or hangs is
restarted by its stage. If a stage dies or hangs, the site exits, and
systemd or Docker restarts it.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from stepvad.errors import StepvadError
from stepvad.events.camera import CameraProfile
from stepvad.events.rules import WatchHours
from stepvad.site.event_writer import (
    BackgroundTasks,
    ChangeQueue,
    EventWriter,
    ExplainedQueue,
    Explainer,
    TaskQueue,
)
from stepvad.site.housekeeping import CameraDrift
from stepvad.site.intake.intake import POSES_S, SOURCES_S, Intake
from stepvad.site.intake.playback import PlayedScene
from stepvad.site.intake.status import LiveStatus
from stepvad.site.marks import LimitQueue, MarkFollower, limit_of
from stepvad.site.models import Models
from stepvad.site.recorder import FIRST_PART_S, PART_S, RECORDINGS, Recorder
from stepvad.site.scoring import CameraPeople, ScoringQueues, ScoringStage, Watcher
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.stages import Stage, Supervisor
from stepvad.site.store.events import Store
from stepvad.skeletons import COCO17
from stepvad.stream import Stream

logger = logging.getLogger(__name__)

SCORING_S, WRITER_S, BACKGROUND_S = 4.0, 4.0, 3.0
"""Stop timeouts of the stages after the intake, in the order of stopping."""


class Pipeline:
    """All stages between the cameras and the store."""

    def __init__(
        self, settings: SiteSettings, models: Models, status: LiveStatus, store: Store
    ) -> None:
        self._settings, self._models, self._store = settings, models, store
        # fail on a missing model before any camera is opened
        self.cameras = SiteCameras(settings, models, status, store)
        self.unusable = self.cameras.unusable
        # queues between the stages
        self.changes, self.tasks = ChangeQueue(), TaskQueue()
        explained, self.limits = ExplainedQueue(), LimitQueue()
        # the intake registers each camera, whose watchers the stages behind it need
        self.intake = Intake(settings, status, self.cameras)
        self.frames = self.intake.frames
        self.watchers = self.cameras.watchers
        self.drifting = self.cameras.drifting()
        self.scorer = ScoringStage(
            ScoringQueues(self.frames, self.changes, self.tasks, explained, self.limits),
            self.watchers,
            status,
            unscored=self.cameras.unscored,
            recorders=self.cameras.recorders(self.recordings),
            drifting=self.drifting,
        )
        profiles = {name: watcher.profile for name, watcher in self.watchers.items()}
        self.explainer = Explainer(store, profiles, explained)
        self.writer = EventWriter(
            self.changes, store, status, self.tasks, self.explainer, recordings=self.recordings
        )
        self.background = BackgroundTasks(self.tasks)

    def mark_follower(self) -> MarkFollower:
        """Applies marks on events to the thresholds of the cameras."""
        return MarkFollower(self._settings, self._store, self._models, self.limits)

    @property
    def recordings(self) -> Path:
        """Directory of recorded poses, with one subdirectory per camera."""
        return self._settings.data / RECORDINGS

    def start(self, supervisor: Supervisor) -> None:
        """Start the stages, consumers before producers."""
        inner: list[Stage] = [self.background, self.writer, self.scorer]
        for stage in (*inner, *self.intake.pose_stages, *self.intake.sources):
            supervisor.start(stage)

    def stop(self, supervisor: Supervisor) -> list[str]:
        """Stop in order: no more frames, queued frames scored, open events ended and stored."""
        intake = self.intake
        left = supervisor.stop(intake.sources, SOURCES_S)
        left += supervisor.stop(intake.pose_stages, POSES_S)
        left += supervisor.stop([self.scorer], SCORING_S)
        left += supervisor.stop([self.writer], WRITER_S)
        return left + supervisor.stop([self.background], BACKGROUND_S)

    def pids(self) -> dict[str, int]:
        """The ids of running processes by name."""
        return self.intake.pids()


class SiteCameras:
    """The cameras of a site: those that a model scores, and those that wait for a first one."""

    def __init__(
        self, settings: SiteSettings, models: Models, status: LiveStatus, store: Store
    ) -> None:
        self._settings, self._models, self._status, self._store = settings, models, status, store
        self.watchers: dict[str, Watcher] = {}
        self.unscored: dict[str, CameraPeople] = {}
        """Cameras whose model the site has yet to learn."""
        self.unusable = ""
        """Reason why the learned model cannot be used; empty if it can, or if there is none."""
        self._learning: set[str] = set()
        for camera in settings.cameras:
            problem = self._load(camera)
            if problem is not None:
                self._learning.add(camera.name)
                self.unusable = problem or self.unusable
        if self.unusable:
            logger.error("%s", self.unusable)

    def check_scene(self, camera: CameraSettings, scene: PlayedScene) -> None:
        """Raise if the model cannot score the poses of a scene; the intake asks."""
        if camera.name in self._learning:
            return
        detector = self._models.load(self._settings.model_of(camera)).detector
        stream = Stream(detector, skeleton=scene.clip.skeleton, fps=camera.rate)
        stream.update(0, scene.first())

    def register(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Create the watcher of a camera with its model, before its first frame."""
        if camera.name in self._learning:
            self._register_unscored(camera, scene)
            return
        model = self._models.load(self._settings.model_of(camera))
        limit = limit_of(model, camera.name, camera.threshold)
        note = model.calibration_note(camera.name, camera.rate, camera.threshold)
        if note is not None:
            logger.warning("camera %s: %s", camera.name, note)
        skeleton = COCO17 if scene is None else scene.clip.skeleton
        self._status.camera(
            camera.name,
            rate=camera.rate,
            threshold=limit.rules.threshold,
            model=model.name,
            zones=camera.zones,
            skeleton=skeleton,
            max_interpolated=limit.rules.max_interpolated,
        )
        self._status.limit(camera.name, limit.rules.threshold, limit.words, limit.is_provisional)
        profile = CameraProfile(
            camera=camera.name,
            rate=camera.rate,
            rules=limit.rules,
            detector=model.detector,
            model_id=model.name,
            model_sha256=model.sha256,
            zones=camera.zones,
            min_confidence=self._settings.pose.min_confidence,
            went_down=camera.went_down,
            hours=None if camera.hours is None else WatchHours.parse(camera.hours),
            zone_hours={zone: WatchHours.parse(h) for zone, h in camera.zone_hours.items()},
        )
        epochs = partial(self._store.next_epoch, camera.name)
        self.watchers[camera.name] = Watcher(profile, epochs, skeleton)

    def recorders(self, directory: Path) -> dict[str, Recorder]:
        """Recorders of cameras that are recorded; learning needs the first footage soon."""
        made = {}
        for camera in self._settings.cameras:
            if camera.record or self._settings.learns(camera):
                people = self.unscored.get(camera.name) or self.watchers[camera.name]
                part_s = FIRST_PART_S if camera.name in self.unscored else PART_S
                made[camera.name] = Recorder(
                    *(directory, camera.name, camera.rate, people.skeleton), part_s=part_s
                )
        return made

    def drifting(self) -> list[CameraDrift]:
        """Comparisons of the cameras that have a calibration with their recent footage."""
        found = []
        for camera in self._settings.cameras:
            if camera.name in self._learning:
                continue
            calibration = self._models.load(self._settings.model_of(camera)).calibration
            if calibration is not None:
                profile = self.watchers[camera.name].profile
                found.append(CameraDrift(profile, calibration, self._status))
        return found

    def _register_unscored(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Watch a camera without a model: its people are shown and recorded."""
        skeleton = COCO17 if scene is None else scene.clip.skeleton
        self._status.camera(
            camera.name,
            rate=camera.rate,
            threshold=None,
            model="",
            zones=camera.zones,
            skeleton=skeleton,
        )
        self.unscored[camera.name] = CameraPeople(
            camera.name, camera.rate, self._settings.pose.min_confidence, skeleton
        )

    def _load(self, camera: CameraSettings) -> str | None:
        """Load the model of a camera; None if it works.

        For a site that has yet to learn one that works: the reason, empty if there is none so far.
        """
        path = self._settings.model_of(camera)
        try:
            self._models.load(path).rules_of(camera)
        except StepvadError as error:
            if not self._settings.learns(camera):
                raise
            said = "the learned model cannot be used, a new one is learned"
            return f"{said}: {error.problem}" if path.exists() else ""
        return None
