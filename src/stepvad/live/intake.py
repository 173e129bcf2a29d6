"""From cameras to people: who decodes and who finds people, up to where frames are ready."""

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
from stepvad.live.posefiles import Player, Scene, open_scene
from stepvad.live.poseworkers import PoseWorker
from stepvad.live.sections import CameraSettings, Settings

logger = logging.getLogger(__name__)

OnState = Callable[[str, Literal["online", "offline"]], None]
Check = Callable[[CameraSettings, Scene], None]
"""Raises a StepvadError if nobody can use what a camera of poses shows."""


class _Part(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self) -> None: ...


class Intake:
    """All cameras of a site; `lanes` hands out their frames with the people in them.

    `register` hears of every camera before anything is said of it, with its poses if it plays some.
    """

    def __init__(
        self,
        settings: Settings,
        board: Board,
        *,
        check: Check,
        register: Callable[[CameraSettings, Scene | None], None],
        on_state: OnState = lambda camera, state: None,
    ) -> None:
        self._settings, self._board, self._on_state = settings, board, on_state
        self._check = check
        self._states: dict[str, str] = {}
        self._alive = [*range(settings.pose.workers)]
        """Pose workers that are not given up."""
        self._was_online: set[str] = set()
        self.lanes = Lanes([camera.name for camera in settings.cameras], board.count)
        scenes = {c.name: self._scene(c) for c in settings.cameras if c.kind in ("poses", "demo")}
        for camera in settings.cameras:
            register(camera, scenes.get(camera.name))
        self.players = self._players(scenes)
        self.captures = [
            Capture(camera, settings.logs, put=self._put, said=self._said, count_more=board.count)
            for camera in settings.cameras
            if camera.kind in ("stream", "video")
        ]
        self.workers = self._workers() if self.captures else []

    def start(self) -> None:
        """Begin, from the end backwards."""
        parts: list[_Part] = [worker.process for worker in self.workers]
        parts += [*(capture.process for capture in self.captures), *self.players]
        for part in parts:
            part.start()

    def stop(self) -> None:
        """No more frames; those that are there are in the lanes with their people."""
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
        try:
            scene = open_scene(camera)
            self._check(camera, scene)
            return scene
        except StepvadError as error:
            logger.error("camera %s: %s", camera.name, error)
            self._states[camera.name] = str(error)
            return None

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
