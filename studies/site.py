"""What one machine carries: real cameras through a whole site, or simulated poses through one core.

Four RTSP cameras that GStreamer plays on the loopback interface, for some minutes:

    python -m studies site VIDEO --detector D.onnx --pose P.onnx --minutes 30

How many streams of poses, 15 frames a second with 5 people each, one core keeps up with:

    python -m studies site --simulate

How much a camera that sends poison delays the others:

    python -m studies site --poison
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.events.camera import CameraProfile
from stepvad.events.rules import Rules
from stepvad.formats import read_clip
from stepvad.poses import Pose
from stepvad.site import demo
from stepvad.site.app import Site
from stepvad.site.event_writer import ChangeQueue, TaskQueue
from stepvad.site.frames import FrameQueues, QueuedFrame
from stepvad.site.scoring import ScoringQueues, SiteScorer, Watcher
from stepvad.site.settings.file import load
from stepvad.site.stages import Supervisor
from stepvad.site.status import Delays, LiveStatus
from studies.figures import cpu_s, resident_mb
from tests.video.clips import h264_copy
from tests.video.servers import RtspServer

PEOPLE, FPS = 5, 15.0
Keypoints = NDArray[np.float32]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("clip", nargs="?", type=Path, help="a video, played in a loop")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--poison", action="store_true")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--cameras", type=int, default=4)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--threshold", type=float, default=8.0)
    parser.add_argument("--detector", default="yolox-nano")
    parser.add_argument("--pose", default="rtmpose-s")
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--processes", type=int, help="camera processes")
    parser.add_argument("--model", type=Path, default=demo.MODEL)
    options = parser.parse_args(arguments)
    if options.simulate:
        simulate(options.model)
    elif options.poison:
        poison(options.model)
    else:
        cameras(options)


def cameras(options: argparse.Namespace) -> None:
    """Real cameras for some minutes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        clip = h264_copy(options.clip, directory / "clip.mkv")
        servers = [RtspServer(clip, directory / f"rtsp-{n}.log") for n in range(options.cameras)]
        try:
            for server in servers:
                server.start()
            site = Site(load(_settings(directory, servers, options)))
            stop = threading.Event()
            thread = threading.Thread(target=site.run, args=(stop,))
            thread.start()
            _observe(site, options.minutes * 60)
            stop.set()
            thread.join()
            _report(site)
        finally:
            for server in servers:
                server.kill()


def _settings(directory: Path, servers: list[RtspServer], options: argparse.Namespace) -> Path:
    text = f'name = "measured"\nmodel = "{options.model.absolute()}"\n'
    for number, server in enumerate(servers):
        user, address = server.address.removeprefix("rtsp://").split("@")
        os.environ[f"CAMERA_{number}"] = user
        text += (
            f'[[cameras]]\nname = "camera-{number}"\nurl = "rtsp://{address}"\n'
            f'credentials = "env:CAMERA_{number}"\nrate = {options.rate}\n'
            f"threshold = {options.threshold}\n"
        )
    text += f'[pose]\ndetector = "{options.detector}"\npose = "{options.pose}"\n'
    text += f'engine = "{options.engine}"\n'
    text += "" if options.processes is None else f"processes = {options.processes}\n"
    text += "[web]\nenabled = false\n"
    path = directory / "site.toml"
    path.write_text(text)
    return path


def _observe(site: Site, seconds: float) -> None:
    """Print memory and processor time of all processes, some twenty times."""
    began, before = time.monotonic(), time.monotonic()
    cpu = _usage(site)[1]
    print("minute  MB (site)  MB (all)  cores  people")
    while (now := time.monotonic()) - began < seconds:
        time.sleep(min(max(seconds / 20, 5.0), seconds))
        sizes, used = _usage(site)
        took, before = time.monotonic() - before, time.monotonic()
        people = sum(view.people for view in site.status.snapshot().cameras)
        print(
            f"{(now - began) / 60:6.1f}  {sizes[0]:9.0f}  {sum(sizes):8.0f}  "
            f"{(used - cpu) / took:5.2f}  {people:6}",
            flush=True,
        )
        cpu = used


def _usage(site: Site) -> tuple[list[float], float]:
    """Megabytes of each process, the site first, and seconds of processor time of all."""
    sizes, seconds = [], 0.0
    for pid in (os.getpid(), *site.pipeline.cameras.pids().values()):
        try:
            size, used_s = resident_mb(pid), cpu_s(pid)
        except OSError:
            continue
        sizes.append(size)
        seconds += used_s
    return sizes, seconds


def _report(site: Site) -> None:
    print(
        "\ncamera      in  scored  shed  skipped  events   frame to score p50 p95 p99 s   to event"
    )
    for view in site.status.snapshot().cameras:
        count: Any = view.counts
        late = "  ".join(_seconds(s) for s in _quantiles(view.latency))
        alert = "  ".join(_seconds(s) for s in _quantiles(view.alerts))
        print(
            f"{view.name}  {count['frames_in']:6}  {count['scored']:6}  {count['shed']:4}  "
            f"{count['skipped']:7}  {count['events']:6}   {late}   {alert}"
        )


def _quantiles(delays: Delays) -> tuple[float | None, ...]:
    return delays.p50, delays.p95, delays.p99


def _seconds(value: float | None) -> str:
    return "   -" if value is None else f"{value:.3f}"


def simulate(model: Path) -> None:
    """Add streams until frames are shed."""
    _keep_to_one_core()
    detector = Detector.load(model, threads=1)
    print("streams  windows/s  shed  cpu  p99 s")
    carried = 0
    for streams in (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384):
        found = _play(detector, streams, seconds=12)
        print(
            f"{streams:7}  {found.windows / found.took:9.0f}  {found.shed:4}  "
            f"{found.used / found.took:.2f}  {_seconds(found.p99)}",
            flush=True,
        )
        if found.shed:
            break
        carried = streams
    print(f"one core carries {carried} streams of {FPS:g} frames a second with {PEOPLE} people")


def _keep_to_one_core() -> None:
    """All threads, those that numpy has started too."""
    core = {min(os.sched_getaffinity(0))}
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), core)


def poison(model: Path) -> None:
    """One camera sends what is none, every other round; the others' 99th percentile."""
    _keep_to_one_core()
    detector = Detector.load(model, threads=1)
    short, nan = np.zeros((5, 2), np.float32), np.full((17, 2), np.nan, np.float32)
    sure = np.ones(17, np.float32)
    crowd = [Pose(person, np.ones((17, 2), np.float32), sure) for person in range(50_000)]
    kinds = {
        "5 joints": [Pose(0, short, sure[:5])],
        "NaN": [_unchecked(nan, sure)],
        "10 MB": crowd,
    }
    print("poison    p99 of the others, ms, without / with (medians of 7 rounds)   ratio")
    for kind, poses in kinds.items():
        rounds = [
            [_play(detector, 8, seconds=4, first=first).p99 for first in (None, poses)]
            for _ in range(7)
        ]
        before, after = np.median(rounds, axis=0) * 1000
        ratio = np.median([there / here for here, there in rounds])
        print(f"{kind:<10}{before:6.1f} / {after:.1f}   {ratio:.2f}", flush=True)


def _unchecked(keypoints: Keypoints, confidence: Keypoints) -> Pose:
    """A pose as no reader of files would let it through."""
    pose = Pose(0, np.zeros_like(keypoints), confidence)
    object.__setattr__(pose, "keypoints", keypoints)
    return pose


@dataclass(frozen=True)
class _Played:
    """What became of some streams: seconds, of processor too, and the slowest camera's delay."""

    took: float
    used: float
    windows: int
    shed: int
    p99: float


def _play(
    detector: Detector, streams: int, *, seconds: float, first: list[Pose] | None = None
) -> _Played:
    """So many streams; the first camera sends some other poses, and is not counted then."""
    track = max(read_clip(demo.POSES).tracks, key=len)
    names = [f"s{number}" for number in range(streams)]
    status = LiveStatus()
    watchers = {name: _watcher(name, detector, status) for name in names}
    frames, supervisor = FrameQueues(names, status), Supervisor()
    queues = ScoringQueues(frames, ChangeQueue(), TaskQueue(), deque())
    scorer = SiteScorer(queues, watchers, status)
    supervisor.start(scorer.stage)
    began, used = time.monotonic(), time.process_time()
    for slot in range(round(seconds * FPS)):
        poses = _people(track.keypoints, slot)
        for at, name in enumerate(names):
            due = began + (slot + at / streams) / FPS
            if (ahead := due - time.monotonic()) > 0.001:
                time.sleep(ahead)
            sent = first if first is not None and at == 0 else poses
            frames.put(_frame(name, slot, sent))
    supervisor.stop([scorer.stage], 60.0)
    took, used = time.monotonic() - began, time.process_time() - used
    views = [view for view in status.snapshot().cameras if first is None or view.name != names[0]]
    return _Played(
        took,
        used,
        sum(view.counts["windows"] for view in views),
        sum(view.counts["shed"] for view in views),
        max(view.latency.p99 or 0.0 for view in views),
    )


def _watcher(name: str, detector: Detector, status: LiveStatus) -> Watcher:
    status.camera(name, rate=FPS, threshold=1e6, model="m", zones={})
    profile = CameraProfile(
        camera=name,
        rate=FPS,
        rules=Rules(threshold=1e6),
        detector=detector,
        model_id="m",
        model_sha256="0",
        zones={},
    )
    return Watcher(profile, lambda: 1)


def _people(keypoints: Keypoints, slot: int) -> list[Pose]:
    sure = np.ones(17, np.float32)
    return [
        Pose(person, keypoints[(slot + 7 * person) % len(keypoints)], sure)
        for person in range(PEOPLE)
    ]


def _frame(name: str, slot: int, poses: list[Pose]) -> QueuedFrame:
    return QueuedFrame(
        camera=name,
        connection=0,
        rate=FPS,
        wall0=0.0,
        slot=slot,
        arrived=time.monotonic(),
        size=(1280, 720),
        poses=poses,
    )
