"""From cameras to events: who decodes, who finds people, who scores, wired together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, Protocol

from stepvad.errors import StepvadError
from stepvad.live.board import Board
from stepvad.live.capture import Capture, Said
from stepvad.live.lanes import Frame, Lanes
from stepvad.live.ledger import Entry
from stepvad.live.models import Models
from stepvad.live.posefiles import Player, Scene, open_scene
from stepvad.live.poseworkers import PoseWorker
from stepvad.live.recorder import Recorder
from stepvad.live.scoring import Scorer
from stepvad.live.sections import CameraSettings, Settings
from stepvad.live.watcher import Subject, Watcher
from stepvad.poses import Clip
from stepvad.skeletons import COCO17
from stepvad.stream import Stream

logger = logging.getLogger(__name__)

OnState = Callable[[str, Literal["online", "offline"]], None]


class _Part(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self) -> None: ...


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
        self._next_epoch, self._on_state = next_epoch, on_state
        self._states: dict[str, str] = {}
        self._alive = [*range(settings.pose.workers)]
        """Pose workers that are not given up."""
        self._was_online: set[str] = set()
        self.lanes = Lanes([camera.name for camera in settings.cameras], board.count)
        scenes = {c.name: self._scene(c) for c in settings.cameras if c.kind in ("poses", "demo")}
        self.watchers = {
            camera.name: self._watcher(camera, scenes.get(camera.name))
            for camera in settings.cameras
        }
        self.scorer = Scorer(
            self.lanes,
            self.watchers,
            board,
            announce=announce,
            recorders=self._recorders(),
            recorded=recorded,
        )
        self.players = self._players(scenes)
        self.captures = [
            Capture(camera, settings.logs, put=self._put, said=self._said, count_more=board.count)
            for camera in settings.cameras
            if camera.kind in ("stream", "video")
        ]
        self.workers = self._workers() if self.captures else []

    def start(self) -> None:
        """Begin, from the end backwards."""
        self.scorer.start()
        parts: list[_Part] = [worker.process for worker in self.workers]
        parts += [*(capture.process for capture in self.captures), *self.players]
        for part in parts:
            part.start()

    def stop(self) -> None:
        """End in order: no more frames, the last ones scored, open events over."""
        captures = [capture.process for capture in self.captures]
        workers = [worker.process for worker in self.workers]
        sources: list[_Part] = [*captures, *self.players]
        for source in sources:
            source.stop()
        for source in sources:
            source.join()
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()
        self.scorer.stop()

    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        named = {f"capture-{capture.camera.name}": capture.process.pid for capture in self.captures}
        named |= {
            f"poses-{number}": worker.process.pid for number, worker in enumerate(self.workers)
        }
        return {name: pid for name, pid in named.items() if pid is not None}

    def _put(self, frame: Frame) -> None:
        self._board.count(frame.camera, "frames_in")
        self.lanes.put(frame)

    def _said(self, camera: str, said: Said) -> None:
        """A camera came, went or failed."""
        if self._states.get(camera) == "failed":
            return
        level = logging.INFO if said.state == "online" or said.over else logging.WARNING
        level = logging.ERROR if said.state == "failed" else level
        logger.log(level, "camera %s is %s: %s", camera, said.state, said.reason)
        if said.state == "online":
            if camera in self._was_online and self._states.get(camera) != "online":
                self._board.count(camera, "reconnects")
            self._was_online.add(camera)
        else:
            self.lanes.lose(camera)
        self._states[camera] = said.state
        reason = "" if said.state == "online" else said.reason
        self._board.state(camera, said.state, reason, time.time())
        self._on_state(camera, "online" if said.state == "online" else "offline")

    def _scene(self, camera: CameraSettings) -> Scene | None:
        """What a camera of poses plays; without it the camera fails and the others go on."""
        detector = self._models.load(self._settings.model_of(camera)).detector
        try:
            scene = open_scene(camera)
            Stream(detector, skeleton=scene.clip.skeleton).update(0, scene.first())
            return scene
        except StepvadError as error:
            logger.error("camera %s: %s", camera.name, error)
            self._states[camera.name] = str(error)
            return None

    def _watcher(self, camera: CameraSettings, scene: Scene | None) -> Watcher:
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
        return Watcher(subject, partial(self._next_epoch, camera.name), skeleton)

    def _recorders(self) -> Mapping[str, Recorder]:
        directory = self._settings.data / "poses"
        return {
            camera.name: Recorder(
                directory, camera.name, camera.rate, self.watchers[camera.name].skeleton
            )
            for camera in self._settings.cameras
            if camera.record
        }

    def _players(self, scenes: Mapping[str, Scene | None]) -> list[Player]:
        players = []
        for name, scene in scenes.items():
            camera = self._settings.camera(name)
            if scene is None:
                reason = self._states.pop(name)
                self._said(name, Said("failed", reason, over=True))
                continue
            skipped = partial(self._board.count, name, "skipped")
            players.append(Player(camera, scene, put=self._put, said=self._said, skipped=skipped))
        return players

    def _workers(self) -> list[PoseWorker]:
        pose = self._settings.pose
        return [
            PoseWorker(
                number,
                pose,
                self._settings.logs,
                self.lanes,
                restarted=self._restarted,
                failed=partial(self._worker_failed, number),
            )
            for number in range(pose.workers)
        ]

    def _restarted(self) -> None:
        for capture in self.captures:
            self._board.count(capture.camera.name, "restarts")

    def _worker_failed(self, number: int, reason: str) -> None:
        """A worker is given up; without any, cameras with pictures fail."""
        logger.error("pose worker %d is given up: %s", number, reason)
        self._alive.remove(number)
        if not self._alive:
            for capture in self.captures:
                capture.process.stop()
                self._said(capture.camera.name, Said("failed", reason, over=True))
