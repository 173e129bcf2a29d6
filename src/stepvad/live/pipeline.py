"""From cameras to events: what comes in, and who scores it, wired together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from stepvad.live.board import Board
from stepvad.live.intake import Intake, OnState
from stepvad.live.ledger import Entry
from stepvad.live.models import Models
from stepvad.live.posefiles import Scene
from stepvad.live.recorder import Recorder
from stepvad.live.scoring import Scorer
from stepvad.live.sections import CameraSettings, Settings
from stepvad.live.watcher import Subject, Watcher
from stepvad.poses import Clip
from stepvad.skeletons import COCO17
from stepvad.stream import Stream


class Pipeline:
    """All that runs between the cameras and the ledger."""

    def __init__(
        self,
        settings: Settings,
        models: Models,
        board: Board,
        *,
        next_epoch: Callable[[str], int],
        announce: Callable[[Entry], None],
        recorded: Callable[[Recorder, Clip], None],
        on_state: OnState = lambda camera, state: None,
    ) -> None:
        self._settings, self._models, self._board = settings, models, board
        self._next_epoch = next_epoch
        self.watchers: dict[str, Watcher] = {}
        for camera in settings.cameras:  # what has no model is refused, before any camera is opened
            models.load(settings.model_of(camera))
        self.intake = Intake(
            settings, board, check=self._check, register=self._register, on_state=on_state
        )
        self.lanes = self.intake.lanes
        self.scorer = Scorer(
            self.lanes,
            self.watchers,
            board,
            announce=announce,
            recorders=self._recorders(),
            recorded=recorded,
        )

    def start(self) -> None:
        """Begin, from the end backwards."""
        self.scorer.start()
        self.intake.start()

    def stop(self) -> None:
        """End in order: no more frames, the last ones scored, open events over."""
        self.intake.stop()
        self.scorer.stop()

    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        return self.intake.pids()

    def _check(self, camera: CameraSettings, scene: Scene) -> None:
        """Refuse poses that the model cannot score."""
        detector = self._models.load(self._settings.model_of(camera)).detector
        Stream(detector, skeleton=scene.clip.skeleton).update(0, scene.first())

    def _register(self, camera: CameraSettings, scene: Scene | None) -> None:
        """Have somebody watch a camera."""
        model = self._models.load(self._settings.model_of(camera))
        rules = model.rules_of(camera)
        self._board.camera(
            camera.name,
            rate=camera.rate,
            threshold=rules.threshold,
            model=model.name,
            zones=camera.zones,
            skeleton=COCO17 if scene is None else scene.clip.skeleton,
        )
        subject = Subject(
            camera=camera.name,
            rate=camera.rate,
            rules=rules,
            detector=model.detector,
            model_id=model.name,
            model_sha256=model.sha256,
            zones=camera.zones,
            min_confidence=self._settings.pose.min_confidence,
        )
        skeleton = COCO17 if scene is None else scene.clip.skeleton
        epochs = partial(self._next_epoch, camera.name)
        self.watchers[camera.name] = Watcher(subject, epochs, skeleton)

    def _recorders(self) -> Mapping[str, Recorder]:
        directory = self._settings.data / "poses"
        return {
            camera.name: Recorder(
                directory, camera.name, camera.rate, self.watchers[camera.name].skeleton
            )
            for camera in self._settings.cameras
            if camera.record
        }
