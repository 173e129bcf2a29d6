"""Whole sites for tests: settings, processes, and what is in their store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.formats import read_clip, write_clip
from stepvad.incidents.record import Record
from stepvad.intake import demo
from stepvad.poses import Clip, Track
from stepvad.settings.sections import CameraSettings
from stepvad.site.store.eventstore import FILE_NAME, Store
from tests.video.clips import write_walker
from tests.video.graphs import movenet, yolox
from tests.video.servers import wait_until

RATE = demo.RATE
NO_PAGE = "[web]\nenabled = false\n"


def camera(**more: object) -> CameraSettings:
    """A camera of the demo, with other settings."""
    return CameraSettings.model_validate({"name": "door", "url": "demo:"} | more)


def jumble() -> NDArray[np.float32]:
    """A pose that nobody takes."""
    return np.random.default_rng(3).uniform(100, 160, (17, 2)).astype(np.float32)


def one_person(
    seconds: float = 9.0,
    *,
    every_s: float = 9.0,
    for_s: float = 2.0,
    phase_s: float = 0.0,
    rate: float = RATE,
) -> Clip:
    """Somebody of the demo who walks to and fro, and now and then is a jumble for a while.

    Frame by frame the walk is the same at every `rate`: at a higher one it is played faster.
    """
    track = max(read_clip(demo.POSES).tracks[1:9], key=len)
    n = round(seconds * rate)
    there = np.concatenate([np.arange(len(track)), np.arange(len(track) - 1)[::-1]])
    rows = np.resize(there, n)
    keypoints = track.keypoints[rows].copy()
    odd = (np.arange(n) / rate + phase_s) % every_s < for_s
    keypoints[odd] = jumble()
    one = Track(1, np.arange(n), keypoints, track.confidence[rows])
    return Clip("one", rate, n, (one,))


def pose_camera(name: str, clip: Clip, directory: Path, more: str = "") -> str:
    """A camera that plays poses, as settings."""
    write_clip(clip, directory / f"{name}.parquet")
    return (
        f'[[cameras]]\nname = "{name}"\nurl = "{name}.parquet"\nrate = {clip.fps}\n'
        f"threshold = 20.0\nloop = true\n{more}\n"
    )


def write_networks(directory: Path) -> str:
    """Networks that see one person in every picture, always the same, as settings."""
    cell = [0.0, 0.0, float(np.log(3)), float(np.log(4)), 0.95, 0.95]
    yolox(directory / "yolox_tiny.onnx", {36: cell})
    joints = np.random.default_rng(3).uniform(0.1, 0.9, (17, 3)).astype(np.float32)
    joints[:, 2] = 0.9
    movenet(directory / "movenet_tiny.onnx", joints)
    return '[pose]\ndetector = "yolox_tiny.onnx"\npose = "movenet_tiny.onnx"\n'


def video_camera(name: str, directory: Path, *, n_frames: int = 600) -> str:
    """A camera that plays a video again and again, as settings."""
    path = directory / f"{name}.mkv"
    if not path.exists():
        write_walker(path, n_frames=n_frames)
    return (
        f'[[cameras]]\nname = "{name}"\nurl = "{name}.mkv"\nrate = 10.0\n'
        "threshold = 20.0\nloop = true\n"
    )


def write_site(directory: Path, *parts: str, more: str = NO_PAGE, head: str = "") -> Path:
    path = directory / "site.toml"
    text = f'name = "test"\nmodel = "{demo.MODEL}"\n{head}\n' + "\n".join(parts) + more
    path.write_text(text)
    return path


class Running:
    """`stepvad watch` in a process of its own."""

    def __init__(
        self, settings: Path, *, before: Sequence[str] = (), more: Mapping[str, str] | None = None
    ) -> None:
        """`before` goes before the command, `more` into its environment."""
        self.data = settings.parent / "site-data"
        self.log = settings.parent / "log.txt"
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict(more or {})
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "stepvad", "watch", str(settings)],
                stdout=log,
                stderr=log,
                env=environment,
            )

    def processes(self) -> dict[str, int]:
        """All of its processes by name: supervisor, site, capture-NAME, poses-N."""
        found = {"supervisor": self.process.pid}
        for pid in _descendants(self.process.pid):
            words = _command(pid)
            if "stepvad.services.site" in words:
                found["site"] = pid
            elif "stepvad.supervision.process" in words:
                found[words[-1]] = pid
        return found

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = Store(self.data / FILE_NAME, create=False)
        try:
            yield store
        finally:
            store.close()

    def events(self) -> list[Record]:
        """What is stored, the oldest first."""
        if not (self.data / FILE_NAME).exists():
            return []
        with self.store() as store:
            return store.events(limit=None)[::-1]

    def wait_for_events(self, n: int, limit_s: float = 60.0) -> list[Record]:
        wait_until(lambda: len(self.events()) >= n or self.process.poll() is not None, limit_s)
        assert self.process.poll() is None, self.log.read_text()
        return self.events()

    def stop(self) -> int:
        """End it as systemd does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        left = list(_descendants(self.process.pid))
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in left:
            if "stepvad" in " ".join(_command(pid)):
                os.kill(pid, signal.SIGKILL)


def lines(path: Path) -> list[dict[str, Any]]:
    """What the file sink was told."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []
