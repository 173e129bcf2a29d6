"""What it costs a site to pass frames of 1080p from capture processes to pose workers.

Capture processes play noise at 10 frames a second and pose workers find nobody in it at once: the
transport is measured, not decoders or networks. Everything between is the site's own.

    python -m studies frames --rounds 7 --cameras 4
    python -m studies frames --rounds 1 --cameras 8 16 32    until frames are lost
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from stepvad.people import LastPoses, People, no_boxes
from stepvad.site.intake import capture, demo, pose_workers
from stepvad.site.intake.intake import Intake
from stepvad.site.intake.playback import PlayedScene
from stepvad.site.intake.status import LiveStatus
from stepvad.site.processes import ChildPipe, SupervisedProcess
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import CameraSettings, PoseSettings, SiteSettings
from stepvad.site.stages import Supervisor
from stepvad.video.source import Frame, Image
from studies.figures import cpu_s

SIZE = (1920, 1080)
MARKS = 251


class SyntheticVideo:
    """Noise without end; the first and the last pixel of a frame tell its number."""

    fps = 10.0

    def __init__(self, *_: object, **__: object) -> None:
        width, height = SIZE
        self._image = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)

    def __iter__(self) -> Iterator[Frame]:
        for number in count():
            self._image[0, 0] = self._image[-1, -1] = number % MARKS
            yield Frame("", number, number / self.fps, time.time(), self._image, 0)


def capture_noise(site: ChildPipe, camera: CameraSettings) -> None:
    """A capture process that plays noise."""
    vars(capture)["open_footage"] = SyntheticVideo
    capture.capture(site, camera)


def look_at_nothing(site: ChildPipe, settings: PoseSettings) -> None:
    """A pose worker without networks: it reads two pixels, and finds nobody in a whole image."""
    nobody = People(no_boxes(), np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32))

    def look(
        estimator: object, images: Sequence[Image], last: Sequence[LastPoses]
    ) -> Iterator[People]:
        for image in images:
            if (image[0, 0] != image[-1, -1]).any():
                raise ValueError("parts of two frames")
            yield nobody

    def open_nothing(*_: object, **__: object) -> None:
        return None

    vars(pose_workers).update(
        detect_and_recover=look, open_estimator=open_nothing, choose_engine=open_nothing
    )
    pose_workers.find_people(site, settings)


FPS = SyntheticVideo.fps
START_S = 120.0


@dataclass(frozen=True)
class Passed:
    """Frames that passed, and the seconds that took: of the clock, the site and all processes."""

    frames: int
    lost: int
    took: float
    site: float
    all: float

    def since(self, before: Passed) -> Passed:
        """The difference to an earlier state."""
        return Passed(
            self.frames - before.frames,
            self.lost - before.lost,
            self.took - before.took,
            self.site - before.site,
            self.all - before.all,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cameras", type=int, nargs="+", default=[4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    print("cameras  ms of the site a frame    ms of all a frame  frames/s  lost  cameras a core")
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as own_process:
        for cameras in given.cameras:
            work = [
                own_process.submit(_measured, cameras, given.seconds) for _ in range(given.rounds)
            ]
            _report(cameras, [one.result() for one in work])


def _report(cameras: int, runs: list[Passed]) -> None:
    site = [1000 * one.site / one.frames for one in runs]
    everybody = [1000 * one.all / one.frames for one in runs]
    rate = float(np.median([one.frames / one.took for one in runs]))
    lost = sum(one.lost for one in runs) / sum(one.lost + one.frames for one in runs)
    carried = 1000 / (FPS * float(np.median(site)))
    print(
        f"{cameras:7}  {_spread(site):>22}  {_spread(everybody):>19}  {rate:8.1f}  "
        f"{lost:4.0%}  {carried:14.0f}",
        flush=True,
    )


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _measured(cameras: int, seconds: float) -> Passed:
    """Pass frames for some seconds, after all cameras have begun."""
    with tempfile.TemporaryDirectory() as name:
        settings = _settings(Path(name), cameras)
        status, supervisor = LiveStatus(), Supervisor()
        intake = Intake(settings, status, _Registered(status))
        _replace_children(intake, settings)
        scored = _Scored(intake)
        for stage in (*intake.pose_stages, *intake.sources):
            supervisor.start(stage)
        try:
            until = time.monotonic() + START_S
            while scored.cameras < cameras:
                if time.monotonic() > until:
                    raise TimeoutError("not every camera has begun")
                time.sleep(0.1)
            before = _state(intake, status, scored)
            time.sleep(seconds)
            after = _state(intake, status, scored)
        finally:
            supervisor.stop([*intake.sources], 20)
            supervisor.stop([*intake.pose_stages], 20)
            intake.frames.close()
    return after.since(before)


class _Registered:
    """Registers cameras; they play no poses."""

    def __init__(self, status: LiveStatus) -> None:
        self._status = status

    def check_scene(self, camera: CameraSettings, scene: PlayedScene) -> None:
        """Nothing to check."""

    def register(self, camera: CameraSettings, scene: PlayedScene | None) -> None:
        """Show the camera."""
        self._status.camera(camera.name, rate=FPS, threshold=1.0, model="m", zones={})


class _Scored:
    """Takes the frames that pose workers have finished, and counts them."""

    def __init__(self, intake: Intake) -> None:
        self.frames = 0
        self._seen: set[str] = set()
        self._intake = intake
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def cameras(self) -> int:
        """Cameras of which a frame has come."""
        return len(self._seen)

    def _run(self) -> None:
        while True:
            items = self._intake.frames.next(0.2)
            self.frames += len(items)
            self._seen.update(camera for camera, _ in items)


def _settings(directory: Path, cameras: int) -> SiteSettings:
    text = f'name = "measured"\nmodel = "{demo.MODEL}"\n[web]\nenabled = false\n'
    for number in range(cameras):
        (directory / f"{number}.mkv").touch()
        text += f'[[cameras]]\nname = "c{number}"\nurl = "{number}.mkv"\nrate = {FPS}\n'
        text += "threshold = 1.0\n"
    path = directory / "site.toml"
    path.write_text(text)
    return load(path)


def _replace_children(intake: Intake, settings: SiteSettings) -> None:
    for one in intake.captures:
        name = one.process.name
        one.process = SupervisedProcess(name, "text", one, capture_noise, one.camera)
    for worker in intake.workers:
        name = worker.process.name
        worker.process = SupervisedProcess(name, "text", worker, look_at_nothing, settings.pose)


def _state(intake: Intake, status: LiveStatus, scored: _Scored) -> Passed:
    views = status.snapshot().cameras
    site = time.process_time()
    return Passed(
        frames=scored.frames,
        lost=sum(view.counts["shed"] + view.counts["skipped"] for view in views),
        took=time.monotonic(),
        site=site,
        all=site + sum(cpu_s(pid) for pid in intake.pids().values()),
    )
