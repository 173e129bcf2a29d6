"""From cameras to people: the stages that decode and find people, and the queues they fill."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from stepvad.errors import StepvadError
from stepvad.intake.camera_states import CameraStates
from stepvad.intake.capture import Capture
from stepvad.intake.child_messages import StatusMessage
from stepvad.intake.frame_queues import FrameQueues
from stepvad.intake.playback import Player, Scene, open_scene
from stepvad.intake.pose_workers import PoseWorker
from stepvad.intake.status import Board
from stepvad.settings.sections import CameraSettings, Settings
from stepvad.supervision.stages import Stage

logger = logging.getLogger(__name__)


class CameraUser(Protocol):
    """What a site or an edge does with a camera."""

    def check(self, camera: CameraSettings, scene: Scene) -> None:
        """Raise a StepvadError if nobody can use the poses that a camera plays."""
        ...

    def register(self, camera: CameraSettings, scene: Scene | None) -> None:
        """Hear of a camera before anything is said of it, with its poses if it plays some."""
        ...


SOURCES_S, POSES_S = 4.0, 3.0
"""How long cameras, then pose workers, may take to end."""


class Intake:
    """All cameras of a site; `frames` hands out their frames with the people in them."""

    def __init__(self, settings: Settings, board: Board, user: CameraUser) -> None:
        self.frames = FrameQueues([camera.name for camera in settings.cameras], board)
        self.states = CameraStates(board, self.frames, workers=settings.pose.workers)
        scenes: dict[str, Scene | StepvadError] = {
            c.name: _scene(c, user) for c in settings.cameras if c.kind in ("poses", "demo")
        }
        for camera in settings.cameras:
            scene = scenes.get(camera.name)
            user.register(camera, None if isinstance(scene, StepvadError) else scene)
        self.players = self._players(settings, board, scenes)
        self.captures = [
            Capture(camera, settings.logs, self.frames, self.states, board)
            for camera in settings.cameras
            if camera.kind in ("stream", "video")
        ]
        pictures = [capture.camera.name for capture in self.captures]
        self.states.need_poses(pictures)
        self.workers = [
            PoseWorker(n, settings, self.frames, self.states, board, pictures)
            for n in range(settings.pose.workers if pictures else 0)
        ]

    @property
    def sources(self) -> list[Stage]:
        """The stages that frames come from."""
        return [*(capture.process for capture in self.captures), *self.players]

    @property
    def pose_stages(self) -> list[Stage]:
        """The stages that find people."""
        return [worker.process for worker in self.workers]

    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        processes = [c.process for c in self.captures] + [w.process for w in self.workers]
        return {one.name: one.pid for one in processes if one.pid is not None}

    def _players(
        self, settings: Settings, board: Board, scenes: Mapping[str, Scene | StepvadError]
    ) -> list[Player]:
        players = []
        for name, scene in scenes.items():
            if isinstance(scene, StepvadError):
                self.states.report(name, StatusMessage("failed", str(scene), over=True))
            else:
                camera = settings.camera(name)
                players.append(Player(camera, scene, self.frames, self.states, board))
        return players


def _scene(camera: CameraSettings, user: CameraUser) -> Scene | StepvadError:
    """What a camera of poses plays; without it the camera fails and the others go on."""
    try:
        scene = open_scene(camera)
        user.check(camera, scene)
        return scene
    except StepvadError as error:
        return error
