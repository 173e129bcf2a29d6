"""Whole sites for tests: settings, processes, and what is in their store."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.events.record import Record
from stepvad.formats import read_clip, write_clip
from stepvad.poses import Clip, Track
from stepvad.site import demo
from stepvad.site.settings.sections import CameraSettings
from stepvad.site.store.events import FILE_NAME, Store
from tests.video.clips import write_walker
from tests.video.graphs import movenet, yolox
from tests.video.servers import SLOWER, wait_until

RATE = demo.RATE
WATCHDOG_S, RESTART_S = 8.0, 0.2
NO_PAGE = "[web]\nenabled = false\n"


def camera(**more: object) -> CameraSettings:
    """A camera of the demo, with other settings."""
    return CameraSettings.model_validate({"name": "door", "url": "demo:"} | more)


def jumble() -> NDArray[np.float32]:
    """A pose that nobody takes."""
    return np.random.default_rng(3).uniform(100, 160, (17, 2)).astype(np.float32)


def one_person(
    seconds: float,
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


PERIOD_S = 7.0
"""Seconds from one event to the next: with fewer, two events would be one."""


def busy_person() -> Clip:
    """Somebody with an event in each `PERIOD_S`, to be played in a loop."""
    return one_person(PERIOD_S, every_s=PERIOD_S)


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


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit of systemd says about a service that ends or hangs."""

    watchdog_s: float = WATCHDOG_S
    restart_s: float = RESTART_S
    always: bool = False
    """Whether a command is started again that fails before it reported to be ready."""


class ServiceManager:
    """Keeps a command running as systemd does with `Restart=always` and `WatchdogSec`."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], unit: Unit
    ) -> None:
        self._command, self._log, self._unit = command, log, unit
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind("")  # the system finds a name that is free
        self._notified.settimeout(0.05)
        address = self._notified.getsockname().decode().replace("\0", "@")
        self._environment = {**environment, "NOTIFY_SOCKET": address}
        self._stopping, self._lock = False, threading.Lock()
        self.exit_code: int | None = None
        self.process = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def _keep(self) -> None:
        is_ready = False
        alive_at = time.monotonic()
        while True:
            with suppress(TimeoutError):
                is_ready |= b"READY=1" in self._notified.recv(100)
                alive_at = time.monotonic()
            code = self.process.poll()
            is_late = is_ready and time.monotonic() - alive_at > self._unit.watchdog_s
            if code is None and is_late and not self._stopping:
                self.process.kill()
            if code is not None:
                time.sleep(self._unit.restart_s)
                with self._lock:
                    failed = code > 0 and not is_ready and not self._unit.always
                    if self._stopping or code == 0 or failed:
                        self.exit_code = code
                        self._notified.close()
                        return
                    self.process = self._start()
                is_ready = False

    def send_signal(self, number: int) -> int:
        """Send a signal and do not start again; the exit code."""
        with self._lock:
            self._stopping = True
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until the command has ended for good; its exit code."""
        self._thread.join(60 * SLOWER)
        assert self.exit_code is not None
        return self.exit_code


class Running:
    """`stepvad watch` in a process of its own, started again when it fails."""

    def __init__(
        self,
        settings: Path,
        *,
        before: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
        unit: Unit = Unit(),
    ) -> None:
        """`before` goes before the command, `more` into its environment."""
        self.data = settings.parent / "site-data"
        self.log = settings.parent / "log.txt"
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict(more or {})
        command = [*before, sys.executable, "-m", "stepvad", "watch", str(settings)]
        self.service = ServiceManager(command, self.log, environment, unit)

    def processes(self) -> dict[str, int]:
        """All of its processes by name: site, cameras-N."""
        site = self.service.process
        found = {"site": site.pid} if site.poll() is None else {}
        for pid in _descendants(site.pid):
            words = _command(pid)
            if "stepvad.site.processes" in words:
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
        over = self.service
        wait_until(lambda: len(self.events()) >= n or over.exit_code is not None, limit_s)
        assert over.exit_code is None, self.log.read_text()
        return self.events()

    def stop(self) -> int:
        """End it as systemd does; its exit code."""
        return self.service.send_signal(signal.SIGTERM)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        left = list(_descendants(self.service.process.pid))
        self.service.send_signal(signal.SIGKILL)
        for pid in left:
            if "stepvad" in " ".join(_command(pid)):
                with suppress(ProcessLookupError):
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


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
"""Wait for threads as well (`__WALL`)."""


def threads(pid: int) -> dict[str, int]:
    """The threads of a process by name, as far as they have one of their own."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[(task / "comm").read_text().strip()] = int(task.name)
        except OSError:
            continue
    return found


@contextmanager
def frozen(pid: int, name: str) -> Iterator[None]:
    """Keep a thread from running until the block or the process is over."""
    release, ready, tracer = threading.Event(), threading.Event(), list[OSError]()

    def trace() -> None:  # the system knows a tracer by its thread
        tid = threads(pid)[name]
        try:
            _ptrace(PTRACE_SEIZE, tid)
            _ptrace(PTRACE_INTERRUPT, tid)
            os.waitpid(tid, WALL)
        except OSError as error:
            tracer.append(error)
            return
        finally:
            ready.set()
        while not release.wait(0.05):
            done, status = os.waitpid(tid, WALL | os.WNOHANG)
            if done and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
                return  # what a tracer does not wait for never quite ends
        try:
            _ptrace(PTRACE_DETACH, tid)
        except ProcessLookupError:
            return

    thread = threading.Thread(target=trace, daemon=True)
    thread.start()
    ready.wait(10)
    if tracer:
        raise tracer[0]
    try:
        yield
    finally:
        release.set()
        thread.join(10)


def _ptrace(request: int, tid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, tid, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
