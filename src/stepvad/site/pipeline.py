"""The way of a frame, from a camera to the stored event: all stages and queues.

    cameras ──► camera process ──► CameraProcess ──► FrameQueues
                (decodes, finds     (a stage)             │
                and tracks people)                        │
    file of poses ──► Player ─────────────────────────────┤
    poses of a device ──► PoseSource ─────────────────────┤
                                                          ▼
                       ┌─────────────────────────── SiteScorer
                       │                                  │
                       │    background ────────────► ChangeQueue ──► EventWriter ──► Store
                       │        ▲        words                            │            │
                       ▼        │                                         │            ▼
                       TaskQueue ◄────────────────────────────────────────┘      SinkDelivery
                   (recordings, explanations)                                    (to sinks)

Pixels never leave the camera process (`site/camera_process.py`); people with track ids do.

Each stage is a thread with a name and a heartbeat (`site/stages.py`); each queue is an
object shared by its producer and consumer. A camera process that dies or hangs is restarted
by its stage (`site/cameras.py`). If a stage dies or hangs, the site exits, and systemd or
Docker restarts it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from stepvad.errors import StepvadError
from stepvad.events.camera import CameraProfile
from stepvad.site import event_writer
from stepvad.site.cameras import SOURCES_S, Cameras
from stepvad.site.frames import PoseSource
from stepvad.site.housekeeping import CameraDrift
from stepvad.site.marks import MarkFollower
from stepvad.site.models import Limit, Models
from stepvad.site.playback import PlayedScene
from stepvad.site.recorder import FIRST_PART_S, PART_S, RECORDINGS, Recorder
from stepvad.site.scoring import (
    CameraPeople,
    ScoringQueues,
    SiteScorer,
    Trail,
    Watcher,
    show_limit,
)
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.stages import Stage, Supervisor
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import Store
from stepvad.skeletons import COCO17
from stepvad.stream import Stream

logger = logging.getLogger(__name__)

SCORING_S, WRITER_S, BACKGROUND_S = 4.0, 4.0, 3.0
"""Stop timeouts of the stages after the cameras, in the order of stopping."""
NO_MODEL = "No limit yet: people are shown and recorded, nobody is judged."
MOST_RETURNED = 1000
"""Limits on their way to scoring; beyond it the oldest is dropped."""


class Pipeline:
    """All stages between the cameras and the store, and what others use of them."""

    def __init__(
        self,
        settings: SiteSettings,
        models: Models,
        status: LiveStatus,
        store: Store,
        poses: PoseSource | None = None,
    ) -> None:
        """Connect all stages of a site; nothing runs yet."""
        # what is wrong with a model is known before any camera is opened
        self.watched = WatchedCameras(settings, models, status, store)
        people = self.watched.people
        # from the cameras to people: registers each camera, with its watcher
        self.cameras = Cameras(settings, status, self.watched)
        addresses = {one.name: one.subject for one in settings.cameras if one.kind == "nats"}
        if poses is not None and addresses:
            queues = self.cameras.frames, self.cameras.states
            self.cameras.stages.append(poses.stage(addresses, self.watched.positions, *queues))
        profiles = {name: one.profile for name, one in people.items() if isinstance(one, Watcher)}
        # from people to changes of events; changed limits come back to it
        self.recordings = settings.data / RECORDINGS
        """Directory of recorded poses, with one subdirectory per camera."""
        self.changes, self.tasks = store.changes, event_writer.TaskQueue()
        self.models, self.limits = models, deque[Limit](maxlen=MOST_RETURNED)
        self.drifting = self.watched.drifting(profiles)

        def interrupt(camera: str) -> None:
            self.tasks.put("upkeep", partial(store.end_interrupted, store.now(), camera))

        self.scorer = SiteScorer(
            ScoringQueues(self.cameras.frames, self.changes, self.tasks, self.limits),
            people,
            status,
            recorders=self.watched.recorders(self.recordings),
            drift={one.profile.camera: one.add_footage for one in self.drifting},
            interrupt=interrupt,
        )
        self.marks = MarkFollower(settings, store, models, self.limits)
        # from changes to the store, explanations in the background, and their words to the store
        explain = partial(
            event_writer.explain_event, store, profiles, self.changes, models.strangest
        )
        writer = event_writer.EventWriter(
            *(self.changes, store.change, status, self.tasks, explain),
            recordings=self.recordings,
            store_positions=store.positions.store,
        )
        self.way: tuple[tuple[Sequence[Stage], float], ...] = (
            (self.cameras.stages, SOURCES_S),
            ([self.scorer.stage], SCORING_S),
            ([writer.stage], WRITER_S),
            ([event_writer.background_stage(self.tasks)], BACKGROUND_S),
        )
        """Stages in the order of a frame, with the seconds that they have to stop."""

    def start(self, supervisor: Supervisor) -> None:
        """Start the stages, consumers before producers."""
        for stages, _ in reversed(self.way[1:]):
            for stage in stages:
                supervisor.start(stage)
        self.cameras.start(supervisor)

    def use(self, settings: SiteSettings, reopen: Collection[str]) -> list[str]:
        """Watch by other settings; returns why only a restart would apply them, if that is so."""
        # a camera whose model did not load may have one now, which only a restart loads
        left = [f"camera {name}, which has no model" for name in self.watched.unscored]
        if not left:
            self.watched.use(settings)
            self.marks.use(settings)
            self.cameras.reopen(reopen, settings)
        return left

    def stop(self, supervisor: Supervisor) -> list[str]:
        """Stop in order: no more frames, queued frames scored, open events ended and stored.

        Returns the stages that did not stop in time.
        """
        return [name for stages, within_s in self.way for name in supervisor.stop(stages, within_s)]


class WatchedCameras:
    """The cameras of a site: those that a model scores, and those that wait for a first one."""

    def __init__(
        self, settings: SiteSettings, models: Models, status: LiveStatus, store: Store
    ) -> None:
        self._settings, self._models, self._status, self._store = settings, models, status, store
        self.people: dict[str, CameraPeople] = {}
        """By name: a `Watcher` where there is a model, once the camera is registered."""
        self.unusable = ""
        """Reason why the learned model cannot be used; empty if it can, or if there is none."""
        self.unscored: dict[str, str] = {}
        """Cameras whose model does not load, and why; people are shown there and not scored."""
        self.positions = store.positions.load(
            [camera.name for camera in settings.cameras if camera.kind == "nats"]
        )
        """From which on the frames of cameras are had again."""
        self._learning: dict[str, str] = {}
        """Cameras that no model judges, for want of one or of a limit, and why."""
        for camera in settings.cameras:
            self._load(camera)
        if self.unusable:
            logger.error("%s", self.unusable)

    def check_scene(self, camera: CameraSettings, scene: PlayedScene) -> None:
        """Raise if the model cannot score the poses of a scene."""
        if camera.name in self._learning:
            return
        detector = self._models.load(self._settings.model_of(camera)).detector
        stream = Stream(detector, skeleton=scene.clip.skeleton, fps=camera.rate)
        stream.update(0, scene.first())

    def register(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Follow the people of a camera, with its model if it has one, before its first frame."""
        skeleton = COCO17 if scene is None else scene.clip.skeleton
        if camera.name in self._learning:
            self._follow(camera, CameraPeople(camera.name, camera.rate, skeleton))
            self._show_learning(camera)
            return
        model = self._models.load(self._settings.model_of(camera))
        limit = model.limit(camera)
        note = model.calibration_note(camera.name, camera.rate, camera.threshold)
        if note is not None:
            logger.warning("camera %s: %s", camera.name, note)
        # what the windows and events of this camera follow from
        profile = CameraProfile(
            camera=camera.name,
            rate=camera.rate,
            rules=limit.rules,
            detector=model.detector,
            model_id=model.name,
            model_sha256=model.sha256,
            zones=camera.zones,
        )
        epochs = partial(self._store.next_epoch, camera.name)
        watcher = Watcher(limit.applied_to(profile), epochs, skeleton)
        # what the page shows from the start: limits and zones
        show_limit(self._status, watcher, limit)
        self._follow(camera, watcher)

    def _follow(self, camera: CameraSettings, people: CameraPeople) -> None:
        """Follow the people of a camera; from its position on if its frames can be had again."""
        self.people[camera.name] = people
        if camera.kind == "nats":
            position = self.positions.get(camera.name)
            people.trail = Trail(position)
            if position is not None:
                people.resume(position)

    def use(self, settings: SiteSettings) -> None:
        """Show what changed of cameras without a model; the others' limits take another way."""
        for camera in settings.cameras:
            if camera.name in self._learning:
                self._show_learning(camera)

    def _show_learning(self, camera: CameraSettings) -> None:
        """Show a camera that has no model yet."""
        self._status.camera(
            camera.name,
            rate=camera.rate,
            threshold=None,
            model="",
            zones=camera.zones,
            skeleton=self.people[camera.name].skeleton,
        )
        self._status.limit(camera.name, None, self._learning[camera.name])

    def recorders(self, directory: Path) -> dict[str, Recorder]:
        """Recorders of cameras that are recorded; learning needs the first footage soon."""
        made = {}
        for camera in self._settings.cameras:
            if camera.record or self._settings.learns(camera):
                part_s = FIRST_PART_S if camera.name in self._learning else PART_S
                skeleton = self.people[camera.name].skeleton
                made[camera.name] = Recorder(
                    directory, camera.name, camera.rate, skeleton, part_s=part_s
                )
        return made

    def drifting(self, profiles: Mapping[str, CameraProfile]) -> list[CameraDrift]:
        """Comparisons of the cameras that have a calibration with their recent footage."""
        found = []
        for name, profile in profiles.items():
            model = self._models.load(self._settings.model_of(self._settings.camera(name)))
            if model.calibration is not None:
                found.append(CameraDrift(profile, model.calibration, self._status))
        return found

    def _load(self, camera: CameraSettings) -> None:
        """Load the model of a camera, and note why it is not judged if that is so."""
        # a site that learns its models starts without one, and with one that is damaged
        path = self._settings.model_of(camera)
        try:
            model = self._models.load(path)
            model.rules_of(camera)
            waits = model.no_limit(camera)
        except StepvadError as error:
            waits = NO_MODEL
            if not self._settings.learns(camera):
                # the site says so and watches: one that ends would tell nobody
                self.unscored[camera.name] = waits = error.problem
                logger.error("camera %s is not scored: %s", camera.name, error)
            elif path.exists():
                said = "the learned model cannot be used, a new one is learned"
                self.unusable = f"{said}: {error.problem}"
        if waits:
            self._learning[camera.name] = waits
