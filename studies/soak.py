"""A day of a site in some minutes, with a fault every minute: leaks, lost events, recoveries.

    python -m studies soak [--hours 24] [--speed 36] [--seed 1]

Eight cameras: six play poses faster than they were, two play videos through a capture process
each and one process of tiny networks. The page is on, events go to a webhook and a file, two
cameras are recorded. It runs as `stepvad watch`, on a small disk and with a wall clock of its own,
for HOURS / SPEED hours. Faults: processes killed or paused, the site as well; the scoring thread
frozen; no file handles; a full disk; a wall clock 31 days ahead; the receiver of the webhook away;
idle connections to the page; a backup. All are undone, and the time until frames or events come
again is measured. Every 30 s, what each process holds and what became of frames is appended to
samples.csv. The exit code tells whether the verdict at the end is good. Ctrl-C ends it in order.

Poses come SPEED times as fast as in life, but at most at --rate frames a second: the settings
allow 120, and one scoring thread takes all cameras' frames. It needs root (to mount the disk) and a
C compiler (for the clock).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stepvad.site.intake import demo
from stepvad.site.store.events import FILE_NAME
from studies.soak_parts import verdict
from studies.soak_parts.faults import Faults
from studies.soak_parts.samples import Sample, Sampler
from studies.soak_parts.site import POSE_CAMERAS, SINK_FILE, SoakSite
from studies.soak_parts.verdict import Line
from tests.fleet.servers import small_disk
from tests.site.sites import lines

DISK_MB = 128
SAMPLE_S = 30.0
START_S = 120.0
END_S = 20.0
"""No fault begins in the last seconds."""
DRAIN_S = 90.0
HANDLES = 4096
HEADER = (
    f"{'s':>6} {'age':>5} {'MB':>6} {'thr':>4} {'fds':>4} {'kids':>4} {'kidsMB':>6} {'logMB':>6} "
    f"{'events':>6} {'open>60':>7} {'in':>8} {'scored':>8} {'shed':>7} {'waits':>5} {'freeMB':>6}  "
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--speed", type=float, default=36.0)
    parser.add_argument("--rate", type=float, default=60.0, help="most frames a second of poses")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between faults")
    parser.add_argument("--faults", help="only these kinds, in turn, such as 'disk full,backup'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", type=Path, help="for samples, log and events; else a new one"
    )
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & has it ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(HANDLES, hard), hard))
    directory = given.directory or Path(tempfile.mkdtemp(prefix="soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        is_ok = soak(given, directory)
    except KeyboardInterrupt:
        print("stopped; there is no verdict", file=sys.stderr)
        sys.exit(130)
    sys.exit(0 if is_ok else 1)


def soak(given: argparse.Namespace, directory: Path) -> bool:
    """The run, and whether all is well."""
    seconds = given.hours * 3600 / given.speed
    rate = min(demo.RATE * given.speed, given.rate)
    print(
        f"{seconds / 60:.1f} minutes; {len(POSE_CAMERAS)} cameras of poses at {rate:g} frames a "
        f"second, {rate / demo.RATE:.1f} times as in life; files in {directory}",
        flush=True,
    )
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(DISK_MB))
        site = SoakSite(directory, disk, rate)
        stack.callback(_keep, site)
        stack.enter_context(site.run())
        sampler = Sampler(site, directory / "samples.csv")
        stopping = threading.Event()
        faults = Faults(site, given.seed, stopping)
        _wait_for_start(site)
        with _faults(given, faults, seconds, stopping) as troubles:
            _observe(sampler, faults, seconds)
        deadline = time.monotonic() + DRAIN_S  # as long as the longest back-off takes
        while site.undelivered() and time.monotonic() < deadline:
            time.sleep(0.5)
        _show(sampler.take("(end)"))
        code = site.running.stop()
        found = [Line("exit code of the site", str(code), code == 0)]
        found += [Line("a fault could not be played", one, is_ok=False) for one in troubles]
        found += _judge(site, sampler, faults)
    return _report(found)


def _keep(site: SoakSite) -> None:
    """Copy the events away from the disk that is about to go."""
    for name in (FILE_NAME, SINK_FILE):
        if (site.data / name).exists():
            shutil.copy(site.data / name, site.directory / name)


def _wait_for_start(site: SoakSite) -> None:
    deadline = time.monotonic() + START_S
    while not site.events():
        if time.monotonic() > deadline or site.running.service.exit_code is not None:
            raise SystemExit(f"the site does not start:\n{site.log.read_text()[-2000:]}")
        time.sleep(0.5)


@contextmanager
def _faults(
    given: argparse.Namespace, faults: Faults, seconds: float, stopping: threading.Event
) -> Iterator[list[str]]:
    """Play faults in a thread of its own; at the end none is left."""
    troubles: list[str] = []

    def run() -> None:
        began = time.monotonic()
        named = [kind.strip() for kind in given.faults.split(",")] if given.faults else None
        deck = (kind for _ in iter(int, 1) for kind in named) if named else faults.deck()
        at = began + given.every / 2
        for kind in deck:
            if at > began + seconds - END_S or stopping.wait(max(at - time.monotonic(), 0)):
                return
            try:
                done = faults.play(kind)
            except Exception as error:
                troubles.append(f"{kind}: {error!r}")
                continue
            finally:
                at = max(at + given.every, time.monotonic() + given.every / 6)
            took = "never" if done.recovery_s is None else f"after {done.recovery_s:.1f} s"
            print(f"{done.at - began:6.0f} {kind}: over {took}", flush=True)

    thread = threading.Thread(target=run, name="faults")
    thread.start()
    try:
        yield troubles
    finally:
        if sys.exc_info()[0] is not None:
            stopping.set()
        thread.join()


def _observe(sampler: Sampler, faults: Faults, seconds: float) -> None:
    until = time.monotonic() + seconds
    print(HEADER, flush=True)
    while True:
        _show(sampler.take(faults.current))
        wait_s = min(SAMPLE_S, until - time.monotonic())
        if wait_s <= 0:
            return
        time.sleep(wait_s)


def _show(one: Sample) -> None:
    print(
        f"{one.at_s:6.0f} {one.site_age_s:5.0f} {one.site_rss_mb:6.1f} {one.site_threads:4} "
        f"{one.site_handles:4} {one.children:4} {one.children_rss_mb:6.1f} {one.log_mb:6.3f} "
        f"{one.events:6} {one.open_long:7} {one.frames_in:8} {one.frames_scored:8} "
        f"{one.frames_shed:7} {one.undelivered:5} {one.free_mb:6.1f}  {one.fault}",
        flush=True,
    )


def _judge(site: SoakSite, sampler: Sampler, faults: Faults) -> Iterator[Line]:
    text = site.log.read_text()
    samples, frames = sampler.samples, site.frames.totals
    shed = 100 * frames["shed"] / max(frames["in"], 1)
    yield Line("frames in, scored, dropped",
               f"{frames['in']}, {frames['scored']}, {frames['shed']} ({shed:.1f} %)")  # fmt: skip
    yield from verdict.of_memory(samples)
    yield from verdict.of_log(text, samples, faults.done)
    longest = max(one.open_long for one in samples)
    yield Line("events open for more than a minute, at most", str(longest), not longest)
    rows = site.events()
    yield from verdict.of_events(
        rows or [], lines(site.data / SINK_FILE), site.receiver, sampler.most_events
    )
    yield Line("events without poses (lost by a kill, or not written for want of handles)",
               str(site.events_without_poses()))  # fmt: skip
    waiting = site.undelivered()
    yield Line("messages not delivered", str(waiting or 0), not waiting)
    yield from verdict.of_faults(faults.done, text)
    yield verdict.left_over(site.seen)


def _report(found: list[Line]) -> bool:
    print("\n| what | value | |\n|---|---|---|")
    for line in found:
        print(f"| {line.what} | {line.value} | {'ok' if line.is_ok else 'FAILED'} |")
    is_ok = all(line.is_ok for line in found)
    print(f"\nverdict: {'good' if is_ok else 'FAILED'}")
    return is_ok
