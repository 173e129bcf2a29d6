"""Faults of a camera process: for how long each camera shows nothing, and who else is affected.

    python -m studies gaps [--only NAME,...] [--rounds 3] [--page PAGE]
    python -m studies gaps --video V.avi --detector D.onnx --pose P.onnx

Four cameras in two processes: the first of one process is hit, or that process; one is beside it,
two are in the other process. Each fault has cameras of its own, and the gap is the longest time
between two frames that the site gets, from the fault until all cameras were seen again for five
seconds. Track ids must not recur. A silent RTSP server is a real one, of GStreamer. With --page the
table is written into a page, the longest gap of all rounds. Without networks, small ones are made.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path

from stepvad.site import cameras
from stepvad.site.cameras import Cameras
from stepvad.site.frames import Lost
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.stages import Supervisor
from stepvad.site.status import LiveStatus
from studies.fault_parts.faulty import CRASHES, HIT, PLACE, run_faulty
from studies.figures import markdown
from tests.site.sites import video_camera, write_networks, write_site
from tests.video.clips import h264_copy
from tests.video.servers import RtspServer

NAMES = (HIT, "elsewhere", "beside", "elsewhere-2")
"""Dealt to two processes in turn."""
RATE = 2.0
"""Frames a second: real networks, too, keep up with four crowded cameras on two cores."""
START_S, STEADY_S, LONGEST_S, CALM_S = 60.0, 2.0, 60.0, 5.0
SHORT_S = 10.0
"""After so long a decoder counts as hung in the row of the blocked open; a site waits for 204 s."""
BEGIN, END = "<!-- gaps: begin -->", "<!-- gaps: end -->"
HEADER = ["fault", "the camera, or its process", "beside it", "other process", "ids recur"]


@dataclass
class Run:
    """Four cameras that are watched, and what came of them."""

    place: Path
    settings: SiteSettings
    server: RtspServer | None
    seen: dict[str, list[tuple[float, int, list[int]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Frames by camera: when the site got it, its connection and track ids."""

    def check_scene(self, camera: object, scene: object) -> None: ...

    def register(self, camera: CameraSettings, scene: object) -> None:
        self.status.camera(camera.name, rate=camera.rate, threshold=1.0, model="m", zones={})

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch the cameras until the block is over."""
        self.status, supervisor, over = LiveStatus(), Supervisor(), threading.Event()
        self.cameras = Cameras(self.settings, self.status, self)
        thread = threading.Thread(target=self._take, args=[over])
        thread.start()
        self.cameras.start(supervisor)
        try:
            yield
        finally:
            supervisor.stop(self.cameras.stages, 20)
            over.set()
            thread.join()

    def _take(self, over: threading.Event) -> None:
        while not over.is_set():
            for camera, item in self.cameras.frames.next(0.05):
                if not isinstance(item, Lost):
                    ids = [pose.track_id for pose in item.poses]
                    self.seen[camera].append((time.monotonic(), item.connection, ids))

    def are_all_seen(self, since: float) -> bool:
        return all(self.seen[name] and self.seen[name][-1][0] > since for name in NAMES)

    def pid(self) -> int:
        """The process of the camera that is hit."""
        while (pid := self.cameras.pids().get(self.cameras.process_of(HIT))) is None:
            time.sleep(0.05)
        return pid

    def tell(self, word: str) -> None:
        told = self.place / f"{self.pid()}.new"
        told.write_text(word)
        told.rename(told.with_suffix(""))

    def gap(self, name: str, since: float, until: float) -> float:
        """The longest time without a frame."""
        times = [at for at, *_ in self.seen[name] if at < until]
        spans = pairwise([*times, until])
        return max(high - max(low, since) for low, high in spans if high > since)

    def recurring(self) -> int:
        """Ids that a camera gave to people of two connections."""
        n = 0
        for frames in self.seen.values():
            ids: dict[int, set[int]] = defaultdict(set)
            for _, connection, some in frames:
                ids[connection].update(some)
            n += sum(map(len, ids.values())) - len(set().union(*ids.values()))
        return n


def nothing(run: Run) -> None:
    """No fault: what the load of the machine makes."""


def signalled(run: Run, number: signal.Signals) -> None:
    os.kill(run.pid(), number)


def told(run: Run, word: str) -> None:
    run.tell(word)


def crashed(run: Run) -> None:
    (run.place / "crash").touch()


def blocked(run: Run) -> None:
    """Open a FIFO that nobody writes to: it blocks in the kernel, where no time-out of PyAV is."""
    os.mkfifo(run.place / "fifo.mkv")
    hit = run.settings.camera(HIT).model_copy(update={"url": str(run.place / "fifo.mkv")})
    others = [one for one in run.settings.cameras if one.name != hit.name]
    run.cameras.reopen([hit.name], run.settings.model_copy(update={"cameras": [hit, *others]}))
    cameras.NO_ATTEMPT_S = SHORT_S


def silent(run: Run) -> None:
    assert run.server is not None
    pid = run.server.process.pid
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(20.0, os.kill, [pid, signal.SIGCONT]).start()


@dataclass(frozen=True, slots=True)
class Fault:
    """One row: what is broken, and how long a gap may be."""

    name: str
    words: str
    play: Callable[[Run], None]
    own_s: float = 10.0
    """For the camera that is hit, or for all of the process."""
    beside_s: float = 10.0
    lasting_s: float = 0.0
    """Time in which the camera that is hit is not waited for."""


OTHERS_S = 1.5
"""Longest gap of cameras that have nothing to do with it."""
ALWAYS = float("inf")
DECK = (
    Fault("none", "None", nothing, OTHERS_S, OTHERS_S, 10.0),
    Fault("kill", "Process killed", partial(signalled, number=signal.SIGKILL)),
    Fault("stop", "Process stopped", partial(signalled, number=signal.SIGSTOP)),
    Fault("gil", "Library keeps the interpreter's lock", partial(told, word="gil")),
    Fault("look", "Looker hangs", partial(told, word="look"), 25.0, 25.0),
    Fault("cut", "Message cut short", partial(told, word="cut")),
    Fault("garbled", "Message garbled", partial(told, word="garbled")),
    Fault("crash", f"Stream crashes the decoder {CRASHES} times", crashed),
    Fault("fifo", f"`open` blocks for ever (after {SHORT_S:.0f} s it hangs)", blocked,
          ALWAYS, OTHERS_S, 40.0),
    Fault("silent", "RTSP server silent for 20 s", silent, ALWAYS, OTHERS_S, 25.0),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="names of faults: " + ", ".join(one.name for one in DECK))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--page", type=Path, help="write the table into this page")
    for name in ("video", "detector", "pose"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args(arguments)
    names = given.only.split(",") if given.only else [one.name for one in DECK]
    rows, bad = [], []
    for fault in (one for one in DECK if one.name in names):
        rounds = [play(fault, given) for _ in range(given.rounds)]
        own, beside, other, recurring = (max(some) for some in zip(*rounds, strict=True))
        is_good = own <= fault.own_s and beside <= fault.beside_s
        if not is_good or other > OTHERS_S or recurring:
            bad.append(fault.name)
        gaps = [f"{gap:.1f} s" for gap in (own, beside, other)]
        rows.append([fault.words, *gaps, str(recurring)])
        print(f"{fault.name:8} {rounds}", file=sys.stderr, flush=True)
    facts = f"Rounds: {given.rounds}; {date.today()}, {os.cpu_count()} cores, load at the end "
    facts += f"{os.getloadavg()[0]:.0f}."
    table = "\n".join([facts, "", markdown(HEADER, rows, {0})])
    print(table)
    if given.page:
        before, _, rest = given.page.read_text("utf-8").partition(BEGIN)
        given.page.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", "utf-8")
    print(f"verdict: {'good' if not bad else 'FAILED: ' + ', '.join(bad)}")
    sys.exit(1 if bad else 0)


def play(fault: Fault, given: argparse.Namespace) -> tuple[float, float, float, int]:
    """Longest gaps of the camera or its process, of those beside, and of others; ids that recur."""
    with tempfile.TemporaryDirectory(prefix="gaps-") as name:
        place = Path(name)
        server = _server(place, given) if fault.play is silent else None
        os.environ[PLACE] = name
        cameras.run_cameras = run_faulty
        before, run = cameras.NO_ATTEMPT_S, Run(place, _settings(place, server, given), server)
        try:
            with run.watch():
                _wait_until(lambda: run.are_all_seen(0.0), START_S)
                time.sleep(STEADY_S)
                since = time.monotonic()
                fault.play(run)
                time.sleep(max(fault.lasting_s, 1.0))
                if fault.own_s < ALWAYS:
                    _wait_until(lambda: _are_back(run), LONGEST_S)
                time.sleep(CALM_S)
                until = time.monotonic()
        finally:
            cameras.NO_ATTEMPT_S = before
            if server is not None:
                server.kill()
        hit, other, beside, other_2 = (run.gap(one, since, until) for one in NAMES)
        return hit, beside, max(other, other_2), run.recurring()


def _are_back(run: Run) -> bool:
    return run.are_all_seen(time.monotonic() - 1.0)


def _wait_until(happened: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.1)


def _server(place: Path, given: argparse.Namespace) -> RtspServer:
    video = given.video
    if video is None:
        video_camera(HIT, place)
        video = place / f"{HIT}.mkv"
    server = RtspServer(h264_copy(video, place / "h264.mkv"), place / "rtsp.log")
    server.start()
    return server


def _settings(place: Path, server: RtspServer | None, given: argparse.Namespace) -> SiteSettings:
    """Four cameras, of two of each process, and networks."""
    parts = [video_camera(name, place) for name in NAMES]
    if given.video is not None:
        parts = [
            part.replace(f'"{name}.mkv"', f'"{given.video.absolute()}"')
            for part, name in zip(parts, NAMES, strict=True)
        ]
    if server is not None:
        user, _, address = server.address.removeprefix("rtsp://").partition("@")
        os.environ["GAPS_USER"] = user
        parts[0] = (
            f'[[cameras]]\nname = "{HIT}"\nurl = "rtsp://{address}"\nrate = 10.0\n'
            'credentials = "env:GAPS_USER"\nthreshold = 20.0\n'
        )
    networks = write_networks(place)
    if given.detector is not None:
        networks = f'[pose]\ndetector = "{given.detector}"\npose = "{given.pose}"\n'
    rated = [part.replace("rate = 10.0", f"rate = {RATE}") for part in parts]
    return load(write_site(place, *rated, networks + "processes = 2\n"))


if __name__ == "__main__":
    main()
