"""Play the poses of a file like a live camera, in a loop if requested."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from stepvad.errors import DataError
from stepvad.formats import read_clip
from stepvad.poses import Clip, Pose
from stepvad.site import demo
from stepvad.site.frames import CameraStates, FrameQueues, QueuedFrame
from stepvad.site.settings.sections import CameraSettings
from stepvad.site.stages import Heartbeat
from stepvad.site.status import LiveStatus

PAUSE_S = 0.5
"""Pause between the end of a file and its restart."""
DEADLINE_S = 30.0
WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class PlayedScene:
    """Poses to play, and the size of the image they come from."""

    clip: Clip
    fps: float
    size: tuple[int, int]

    def __post_init__(self) -> None:
        """Reject a clip without poses."""
        if not self.clip.n_poses:
            raise DataError(
                f"clip {self.clip.name}: expected poses, got none", hint="choose another file"
            )

    def first(self) -> list[Pose]:
        """The poses of the first frame that has any."""
        return next(poses for _, poses in self.clip.by_frame() if poses)


def open_scene(camera: CameraSettings) -> PlayedScene:
    """Open the scene that a camera plays."""
    if camera.kind == "demo":
        return PlayedScene(read_clip(demo.POSES), demo.RATE, demo.SIZE)
    clip = read_clip(Path(camera.url))
    farthest = [track.keypoints.max(axis=(0, 1)) for track in clip.tracks if len(track)]
    width, height = np.ceil(np.max([(1.0, 1.0), *farthest], axis=0)).astype(int).tolist()
    return PlayedScene(clip, clip.fps or camera.rate, (width, height))


class Player:
    """The stage that plays the poses of a scene in real time.

    When the file restarts, people get new ids: no track spans the restart.
    """

    def __init__(
        self,
        camera: CameraSettings,
        scene: PlayedScene,
        frames: FrameQueues,
        states: CameraStates,
        status: LiveStatus,
    ) -> None:
        self.camera = camera
        self.name = f"player-{camera.name}"
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._scene = scene
        self._frames, self._states, self._status = frames, states, status
        self._stopping = threading.Event()

    def stop(self, deadline: float) -> None:
        """Request the stage to stop."""
        self._stopping.set()

    def run(self) -> None:
        """Play the scene until it ends or is stopped."""
        camera, (width, height) = self.camera, self._scene.size
        self._states.report(camera.name, "online", f"{width} x {height} pixels")
        began, wall0 = time.monotonic(), time.time()
        for slot, poses in self._slots():
            due = began + slot / camera.rate
            if self._waited_in_vain(due):
                return
            self._frames.put(
                QueuedFrame(
                    camera=camera.name,
                    connection=0,
                    rate=camera.rate,
                    wall0=wall0,
                    slot=slot,
                    arrived=max(due, time.monotonic()),
                    size=self._scene.size,
                    poses=poses,
                )
            )
        self._states.report(camera.name, "offline", "the file is over", is_over=True)

    def _waited_in_vain(self, due: float) -> bool:
        """Wait until a monotonic time; return whether the player was stopped first."""
        while True:
            self.heartbeat.beat()
            wait_s = due - time.monotonic()
            if self._stopping.wait(min(max(wait_s, 0.0), WAIT_S)):
                return True
            if wait_s <= WAIT_S:
                return False

    def _slots(self) -> Iterator[tuple[int, list[Pose]]]:
        """Yield time slots with their poses."""
        clip, rate = self._scene.clip, self.camera.rate
        ids = max(track.id for track in clip.tracks) + 1
        length = math.ceil((clip.n_frames / self._scene.fps + PAUSE_S) * rate)
        for turn in count() if self.camera.loop or self.camera.kind == "demo" else (0,):
            latest = -1
            for frame, poses in clip.by_frame():
                slot = math.floor(frame / self._scene.fps * rate + 0.5)
                if slot == latest:
                    self._status.count(self.camera.name, "skipped")
                    continue
                latest = slot
                yield (
                    slot + turn * length,
                    [
                        Pose(pose.track_id + turn * ids, pose.keypoints, pose.confidence)
                        for pose in poses
                    ],
                )
