"""What one machine carries: cameras through a whole site, or simulated poses through one core.

Cameras that play a video and, every other pair, its empty scene, at 640x360, each in a loop. With
--before the site runs in turns with that of another source tree:

    python -m studies site VIDEO --detector D.onnx --pose P.onnx --cameras 8 [--all-ask]
        [--before TREE] [--rounds 5] [--seconds 60]

With --all-ask the camera processes look at every frame. How many streams of poses, 15 frames a
second with 5 people each, one core keeps up with:

    python -m studies site --simulate

How much a camera that sends poison delays the others:

    python -m studies site --poison
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.events.camera import CameraProfile
from stepvad.events.rules import Rules
from stepvad.formats import read_clip
from stepvad.poses import Pose
from stepvad.site import demo
from stepvad.site.camera_process import Networks, run_cameras
from stepvad.site.event_writer import ChangeQueue, TaskQueue
from stepvad.site.frames import FrameQueues, QueuedFrame
from stepvad.site.processes import ChildPipe
from stepvad.site.scoring import ScoringQueues, SiteScorer, Watcher
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from stepvad.video.watching import Watch
from studies.figures import cpu_s, markdown
from tests.video.servers import free_port

PEOPLE, FPS = 5, 15.0
Keypoints = NDArray[np.float32]
SIZE = (640, 360)
TOKEN = "token-of-a-measured-site"  # noqa: S105  # guards nothing
START_S = 180.0
ALL_ASK = "from studies.site import watch_all; watch_all()"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("clip", nargs="?", type=Path, help="a video, played in a loop")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--poison", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cameras", type=int, default=8)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--detector", default="rtmdet-nano")
    parser.add_argument("--pose", default="movenet-lightning")
    parser.add_argument("--all-ask", action="store_true", help="look at every frame")
    parser.add_argument("--before", type=Path, help="source tree of another version")
    parser.add_argument("--model", type=Path, default=demo.MODEL)
    options = parser.parse_args(arguments)
    if options.simulate:
        simulate(options.model)
    elif options.poison:
        poison(options.model)
    else:
        cameras(options)


def cameras(options: argparse.Namespace) -> None:
    """Rounds of a site with many cameras, in turns with another version's."""
    here = Path(__file__).resolve().parents[1]
    trees = {"now": here} | ({"before": options.before.resolve()} if options.before else {})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as directory:
        settings = _settings(Path(directory), options)
        for number in range(options.rounds):
            for name, tree in trees.items():
                found[name].append(_watched(settings, tree, options))
                print(number + 1, name, {k: round(v, 2) for k, v in found[name][-1].items()})
    rows = [
        [what, *(f"{np.median([one[what] for one in found[name]]):.2f}" for name in trees)]
        for what in found["now"][0]
    ]
    print(markdown([f"medians of {options.rounds}", *trees], rows, words=[0]))


def watch_all() -> None:
    """`stepvad watch` whose camera processes look at every frame."""
    from stepvad.cli import main as stepvad
    from stepvad.site import cameras

    vars(cameras)["run_cameras"] = run_asking
    stepvad()


def run_asking(site: ChildPipe, networks: Networks) -> None:
    """A camera process that looks at every frame."""
    Watch.asks = lambda *_: True  # type: ignore[method-assign]
    run_cameras(site, networks)


def _settings(directory: Path, options: argparse.Namespace) -> Path:
    """A site half of whose cameras show the video, and half its empty scene."""
    import av

    # the scene without people: the median of frames that are far apart
    with av.open(str(options.clip)) as source:
        rate = source.streams.video[0].average_rate or 10
        frames = [one.reformat(*SIZE, format="yuv420p") for one in source.decode(video=0)]
    empty = np.median([one.to_ndarray() for one in frames[::20]], axis=0).astype(np.uint8)
    for name in ("crowd", "empty"):
        with av.open(str(directory / f"{name}.mkv"), "w") as target:
            stream: Any = target.add_stream("libx264", rate=rate)
            stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
            stream.options = {"preset": "ultrafast", "tune": "zerolatency", "crf": "20"}
            for number, one in enumerate(frames):
                copy = av.VideoFrame.from_ndarray(empty, "yuv420p") if name == "empty" else one
                copy.pts, copy.time_base = number, 1 / rate
                target.mux(stream.encode(copy))
            target.mux(stream.encode())
    text = f'name = "measured"\nmodel = "{options.model.absolute()}"\n'
    for number in range(options.cameras):
        name = ("crowd", "crowd", "empty", "empty")[number % 4]  # dealt to two processes alike
        text += (
            f'[[cameras]]\nname = "{name}-{number}"\nurl = "{name}.mkv"\n'
            f"rate = {options.rate}\nthreshold = 50.0\nloop = true\n"
        )
    text += f'[pose]\ndetector = "{options.detector}"\npose = "{options.pose}"\n'
    (directory / "token").write_text(TOKEN)
    (directory / "token").chmod(0o600)
    (directory / "site.toml").write_text(text)
    return directory / "site.toml"


def _watched(settings: Path, tree: Path, options: argparse.Namespace) -> dict[str, float]:
    """Watch for a while; what it took, and what was seen."""
    port = free_port()
    page = f'[web]\nport = {port}\ntoken = "file:token"\n'
    own = settings.with_name(f"site-{port}.toml")
    own.write_text(
        f"{settings.read_text()}{page}".replace("name =", f'data = "data-{port}"\nname =', 1)
    )
    is_now = tree == Path(__file__).resolve().parents[1]
    words = ["-c", ALL_ASK] if options.all_ask and is_now else ["-m", "stepvad"]
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "OMP_NUM_THREADS": "1"}
    with _running([sys.executable, *words, "watch", str(own)], tree, environment) as pid:
        address, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=address, headers=headers, timeout=10) as client:
            # from the first child until every camera has been scored
            deadline = time.monotonic() + START_S
            while not (children := _children(pid)) and time.monotonic() < deadline:
                time.sleep(0.02)
            began = time.monotonic()
            while not all(one["counts"]["scored"] for one in _views(client)):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{tree}: some camera shows nothing")
                time.sleep(0.05)
            started_s = time.monotonic() - began
            started_cpu_s = sum(map(cpu_s, _children(pid)))
            # a while later: what each camera got, and what all processes took
            time.sleep(options.seconds / 4)
            children = _children(pid)
            before, cpu, at = _views(client), sum(map(cpu_s, [pid, *children])), time.monotonic()
            time.sleep(options.seconds)
            took = time.monotonic() - at
            after = _views(client)
            cores = (sum(map(cpu_s, [pid, *children])) - cpu) / took
            memory = [_pss_mb(one) for one in (pid, *children)]
    result = {"start s": started_s, "start core s": started_cpu_s}
    result |= {"MB children": sum(memory[1:]), "MB all": sum(memory)}
    result["cores"] = cores
    for kind in ("crowd", "empty"):
        some = [(a, b) for a, b in zip(before, after, strict=True) if a["name"].startswith(kind)]
        if not some:
            continue
        n = [b["counts"]["scored"] - a["counts"]["scored"] for a, b in some]
        result[f"{kind}: frames a second"] = float(np.mean(n)) / took
        result[f"{kind}: delay s"] = float(np.median([b["latency"]["p50"] for _, b in some]))
    return result


@contextmanager
def _running(words: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Iterator[int]:
    with subprocess.Popen(words, cwd=cwd, env=environment, stderr=subprocess.DEVNULL) as site:
        try:
            yield site.pid
        finally:
            site.terminate()


def _views(client: httpx.Client) -> list[dict[str, Any]]:
    """The cameras as the page knows them; none while it is not there."""
    with suppress(httpx.HTTPError):
        found: list[dict[str, Any]] = client.get("/api/cameras").json()
        return found
    return [{"counts": {"scored": 0}}]


def _children(pid: int) -> list[int]:
    """The processes that decode and find people."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            with suppress(OSError):
                if ".processes" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
    return found


def _pss_mb(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1e3


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


def _seconds(value: float | None) -> str:
    return "   -" if value is None else f"{value:.3f}"


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
