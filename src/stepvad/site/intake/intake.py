"""The stages that decode cameras and find people, and the queues they fill."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from stepvad.errors import StepvadError
from stepvad.site.intake.camera_followers import CameraFollowers
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.capture import Capture
from stepvad.site.intake.child_messages import StatusMessage
from stepvad.site.intake.frame_queues import WAITING, FrameQueues
from stepvad.site.intake.pose_workers import PoseWorker
from stepvad.site.playback import PlayedScene, Player, open_scene
from stepvad.site.settings.sections import CameraSettings, PoseSettings, SiteSettings
from stepvad.site.stages import Stage, Supervisor
from stepvad.site.status import LiveStatus

logger = logging.getLogger(__name__)


class CameraUser(Protocol):
    """How a site or an edge uses its cameras."""

    def check_scene(self, camera: CameraSettings, scene: PlayedScene) -> None:
        """Raise a StepvadError if the poses that a camera plays cannot be used."""
        ...

    def register(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Register a camera before its first state report, with its scene if it plays poses."""
        ...


SOURCES_S, POSES_S = 4.0, 3.0
"""Seconds that cameras, then pose workers, have to stop."""
REOPEN_S = 12.0
"""Seconds that a camera has to stop before it is opened again; longer than its process has."""
ON_THE_WAY = 3
"""Buffers that are being filled, announced or lent again."""


def buffers_per_camera(pose: PoseSettings) -> int:
    """Buffers of a camera: those queued and taken by workers, and some on their way.

    With fewer a capture process would drop new frames before the queues drop old ones.
    """
    return WAITING + pose.workers * min(pose.batch, WAITING) + ON_THE_WAY


class Intake:
    """All cameras of a site; `frames` queues their frames with the people in them."""

    def __init__(self, settings: SiteSettings, status: LiveStatus, user: CameraUser) -> None:
        self.frames = FrameQueues([camera.name for camera in settings.cameras], status)
        self.states = CameraStates(status, self.frames, workers=settings.pose.workers)
        scenes: dict[str, PlayedScene | StepvadError] = {
            c.name: _scene(c, user) for c in settings.cameras if c.kind in ("poses", "demo")
        }
        for camera in settings.cameras:
            scene = scenes.get(camera.name)
            user.register(camera, None if isinstance(scene, StepvadError) else scene)
        self.players = self._players(settings, status, scenes)
        self.captures = [
            Capture(
                camera,
                settings.logs,
                self.frames,
                self.states,
                status,
                buffers=buffers_per_camera(settings.pose),
            )
            for camera in settings.cameras
            if camera.has_pictures
        ]
        pictures = [capture.camera.name for capture in self.captures]
        self.states.need_poses(pictures)
        followers = CameraFollowers(pictures if settings.pose.follow else ())
        self.workers = [
            PoseWorker(
                n,
                settings,
                self.frames,
                self.states,
                status,
                pictures,
                followers,
            )
            for n in range(settings.pose.workers if pictures else 0)
        ]

    @property
    def sources(self) -> list[Stage]:
        """The stages that produce frames."""
        return [*(capture.process for capture in self.captures), *self.players]

    @property
    def pose_stages(self) -> list[Stage]:
        """The stages that find people."""
        return [worker.process for worker in self.workers]

    def close(self, cameras: Collection[str], supervisor: Supervisor) -> list[str]:
        """Close some cameras with pictures; returns the stages that did not stop in time."""
        return supervisor.stop([one.process for one in self._captures(cameras)], REOPEN_S)

    def open(
        self, cameras: Collection[str], settings: SiteSettings, supervisor: Supervisor
    ) -> None:
        """Open cameras that were closed, by other settings."""
        for one in self._captures(cameras):
            one.use(settings.camera(one.camera.name))
            supervisor.start(one.process)

    def _captures(self, cameras: Collection[str]) -> list[Capture]:
        return [one for one in self.captures if one.camera.name in cameras]

    def pids(self) -> dict[str, int]:
        """The ids of running processes by name."""
        processes = [c.process for c in self.captures] + [w.process for w in self.workers]
        return {one.name: one.pid for one in processes if one.pid is not None}

    def _players(
        self,
        settings: SiteSettings,
        status: LiveStatus,
        scenes: Mapping[str, PlayedScene | StepvadError],
    ) -> list[Player]:
        players = []
        for name, scene in scenes.items():
            if isinstance(scene, StepvadError):
                self.states.report(name, StatusMessage("failed", str(scene), over=True))
            else:
                camera = settings.camera(name)
                players.append(Player(camera, scene, self.frames, self.states, status))
        return players


def _scene(camera: CameraSettings, user: CameraUser) -> PlayedScene | StepvadError:
    """The scene that a camera plays, or the error; one failed camera does not stop the others."""
    try:
        scene = open_scene(camera)
        user.check_scene(camera, scene)
        return scene
    except StepvadError as error:
        return error
