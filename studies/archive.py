"""An archive of millions of windows: written, scored, killed, and set against the bare runtime.

    nice -n 5 python -m studies archive DIRECTORY --windows 50_000_000

Poses are real box tracks and motion capture, again and again at other places, in other sizes and
mirrored, in files of two minutes as sites record them; half of the windows each. Models have random
weights behind a projection of these very windows.

What the network takes is measured in the processes that score, in the same moments as all they do:
a ratio of processor times, which other programs on the machine disturb little. Beside it stands the
bare runtime on as many processes of one thread, right before and after, on vectors that are
projected already and with the projection. The runs are killed with SIGKILL at random moments and
taken up again; directories that were under way then, and some others, are scored once more by a run
left alone and compared byte for byte. A smaller archive is scored whole with kills, without, and on
Ray. Every figure is printed as soon as it is there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from stepvad import executors
from stepvad.archive.storage import Directory, group_shards
from stepvad.config import Runtime
from stepvad.detector import Detector
from stepvad.formats import read_clips
from stepvad.windows.runs import cut
from studies.figures.timed_archive import Times
from studies.simulated.archive import KINDS, Hour, Kind, write_model, write_poses
from tests.archive.archives import contents

ROOT = Path(__file__).absolute().parents[1]
BARE_S = 10.0
"""How long the bare runtime is measured each time."""
LOOK_S = 0.5
"""Between two looks at a run's memory and shards."""

say = partial(print, flush=True)


@dataclass(frozen=True, slots=True)
class Bare:
    """What one process of the bare runtime is to do."""

    model: Path
    poses: Path
    runtime: Runtime
    projected: bool


@dataclass(frozen=True, slots=True)
class Rate:
    """Windows by the second of the clock, all processes together, and of one processor's time."""

    clock: float
    processor: float


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of `archive score`, to its end or to its kill."""

    killed: bool
    began: float
    """Time of day."""
    seconds: float
    worked: float
    """Processor time of all its processes; of a killed one nobody knows."""
    memory: list[float]
    """Megabytes of all its processes, look by look."""
    told: dict[str, Any]
    """What it printed; nothing if it was killed."""


@dataclass(slots=True)
class Stood:
    """What was there when runs were killed."""

    digests: dict[str, str] = field(default_factory=dict)
    """Of shards that were done."""
    under_way: set[Path] = field(default_factory=set)
    """Directories with a file that was not yet whole."""


def bare(task: Bare) -> tuple[int, float, float]:
    """Windows through the runtime for a while, by the clock and in processor time."""
    detector = Detector.load(task.model, runtime=task.runtime, threads=1)
    clip = next(iter(read_clips(next(iter(sorted(task.poses.rglob("*.parquet")))))))
    x = next(iter(cut(clip, detector.view_settings, detector.skeleton)[0].batches(1024))).x
    project, energies = detector.model.space.project, detector.network.energies
    z = project(x)
    for _ in range(3):
        energies(z)
    n, started, worked = 0, time.monotonic(), time.process_time()
    while time.monotonic() - started < BARE_S:
        energies(project(x) if task.projected else z)
        n += len(x)
    return n, time.monotonic() - started, time.process_time() - worked


def bare_rate(task: Bare, jobs: int) -> Rate:
    """The bare runtime on all processes at once."""
    found = [*executors.run(bare, [task] * jobs, jobs=jobs, executor="processes", threads=1)]
    clock = sum(n / seconds for n, seconds, _ in found)
    return Rate(clock, sum(n for n, _, _ in found) / sum(worked for _, _, worked in found))


def command(poses: Path, scores: Path, model: Path, options: argparse.Namespace) -> list[str]:
    """A run of `archive score` with clocks, whose times go beside the scores."""
    times = scores.with_name(f"times-{scores.name}")
    words = [sys.executable, "-m", "studies.figures.timed_archive", times]
    words += ["archive", "score", poses, "-o", scores, "--model", model, "--json"]
    return [*map(str, [*words, "--jobs", options.jobs, "--runtime", options.runtime])]


def memory_of(session: int) -> float:
    """Megabytes of all processes of a session, shared pages shared out."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                rollup = (stat.parent / "smaps_rollup").read_text()
                total += int(rollup.partition("\nPss:")[2].split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return total / 1024


def run(words: list[str], is_time_to_kill: Callable[[], bool] = lambda: False) -> Ran:
    """Run `archive score` to its end, or until it is time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, started, memory, killed = time.time(), time.monotonic(), [0.0], False
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, cwd=ROOT)
    while process.poll() is None:
        memory.append(memory_of(process.pid))
        if is_time_to_kill() and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed = True
            break
        time.sleep(LOOK_S)
    out, _ = process.communicate()
    seconds = time.monotonic() - started
    if process.returncode and not killed:
        sys.exit(f"error: archive score ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(killed, began, seconds, worked, memory, {} if killed else json.loads(out))


def done_in(root: Path) -> list[Path]:
    """Files of scores that are there."""
    return sorted(root.rglob("*.parquet"))


def unfinished(root: Path) -> set[Path]:
    """Files that runs are writing, or were when they were killed."""
    return {*root.rglob(".*.tmp")}


def digests(root: Path) -> dict[str, str]:
    """SHA-256 of all scores."""
    files = done_in(root)
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def through_kills(
    words: list[str], poses: Path, scores: Path, kills: int, seed: int
) -> tuple[list[Ran], Stood]:
    """Run, kill at random moments, run again, until all is scored."""
    rng, stood = random.Random(seed), Stood()
    n_shards = len(group_shards(Directory.at(str(poses)).files(".parquet")))
    runs: list[Ran] = []
    for least in sorted(rng.randrange(n_shards) for _ in range(kills)):
        left = unfinished(scores)

        def is_time(least: int = least, left: set[Path] = left) -> bool:
            if len(done_in(scores)) < least or unfinished(scores) <= left:
                return False
            time.sleep(rng.uniform(0.0, 4.0))
            return True

        runs.append(run(words, is_time))
        if not runs[-1].killed:
            break
        stood.digests |= digests(scores)
        stood.under_way |= {p.parent.relative_to(scores) for p in unfinished(scores) - left}
        n, seconds = len(done_in(scores)), runs[-1].seconds
        say(f"  killed after {seconds:,.0f} s with {n} of {n_shards} shards done")
    if not runs or runs[-1].killed:
        runs.append(run(words))
    return runs, stood


def again(kind: Kind, root: Path, stood: Stood, options: argparse.Namespace) -> bool:
    """Whether scores are those of runs left alone: all that stood, and a sample scored again."""
    poses, scores, clean = (root / f"{name}-{kind}" for name in ("poses", "scores", "clean"))
    now = digests(scores)
    kept = all(now.get(name) == digest for name, digest in stood.digests.items())
    directories = sorted({Path(name).parent for name in now})
    chosen = random.Random(options.seed).sample(directories, min(2, len(directories)))
    part = root / f"part-{kind}"
    for directory in sorted({*chosen, *stood.under_way}):
        shutil.copytree(poses / directory, part / directory, copy_function=os.link)
    run(command(part, clean, root / f"{kind}.safetensors", options))
    found = digests(clean)
    same = bool(found) and all(now.get(name) == digest for name, digest in found.items())
    windows = Times.read(root / f"times-clean-{kind}").windows
    say(
        f"  {len(stood.digests)} shards that stood at a kill are unchanged: {kept}\n"
        f"  {len(found)} shards of {windows:,} windows, {len(stood.under_way)} directories of "
        f"them under way at a kill, scored again: bytes equal: {same}"
    )
    return kept and same


def measure(kind: Kind, root: Path, options: argparse.Namespace) -> tuple[Times, bool]:
    """Score one half of the archive between two looks at the bare runtime."""
    poses, scores, model = (
        root / f"poses-{kind}",
        root / f"scores-{kind}",
        root / f"{kind}.safetensors",
    )
    task = {p: Bare(model, poses, cast("Runtime", options.runtime), p) for p in (False, True)}
    looks = {p: [bare_rate(task[p], options.jobs)] for p in task}
    words = command(poses, scores, model, options)
    runs, stood = through_kills(words, poses, scores, options.kills, options.seed)
    for p in task:
        looks[p].append(bare_rate(task[p], options.jobs))
    times, told = Times.read(root / f"times-{scores.name}"), runs[-1].told
    seconds = sum(one.seconds for one in runs)
    memory = [megabytes for one in runs for megabytes in one.memory]
    half = len(memory) // 2
    say(
        f"{kind}: {told['windows']:,} windows in {told['shards']:,} shards, {seconds:,.0f} s on "
        f"{options.jobs} processes: {told['windows'] / seconds:,.0f} windows/s by the clock\n"
        f"  memory of all processes: peak {max(memory):,.0f} MB, in the first half of the looks "
        f"{max(memory[:half]):,.0f}, in the second {max(memory[half:]):,.0f} ({len(memory)} looks)"
    )
    tell(times)
    last = Times.read(root / f"times-{scores.name}", since=runs[-1].began)
    share = last.network / runs[-1].worked
    say(f"  last run, {last.windows:,} windows, with start and end: network / all {share:.3f}")
    for p, name in ((False, "network alone"), (True, "network, projection")):
        clock, processor = (
            [getattr(rate, by) for rate in looks[p]] for by in ("clock", "processor")
        )
        say(
            f"  bare {name}: {np.mean(clock):,.0f} windows/s by the clock (before {clock[0]:,.0f}, "
            f"after {clock[1]:,.0f}), {np.mean(processor):,.0f} per core-second; archive / bare "
            f"{times.windows / times.whole / np.mean(processor):.3f} by processor time"
        )
    return times, again(kind, root, stood, options)


def tell(times: Times) -> None:
    """The share of the network."""
    each = 1e6 / times.windows
    say(
        f"  {times.windows:,} windows timed: {times.whole * each:.2f} us of a processor each, of "
        f"the network {times.network * each:.2f}: network / all {times.network / times.whole:.3f}, "
        f"with the projection {(times.network + times.projection) / times.whole:.3f}"
    )


def torment(root: Path, options: argparse.Namespace) -> bool:
    """Whether a smaller archive is the same to the byte: left alone, killed, and on Ray."""
    poses, model = root / "poses-small", root / "mocap.safetensors"
    write_poses(
        poses, Hour("mocap", poses, options.data, 0, options.seed), options.part, options.jobs
    )
    quiet = run(command(poses, root / "quiet", model, options))
    say(f"small: {quiet.told['scored']:,} windows in {quiet.seconds:.0f} s")
    words = command(poses, root / "killed", model, options)
    runs, _ = through_kills(words, poses, root / "killed", options.kills, options.seed)
    same = contents(root / "killed") == contents(root / "quiet")
    kept, kills = runs[-1].told["kept"], sum(one.killed for one in runs)
    say(f"  {kills} kills, {kept} shards kept by the last run; bytes equal: {same}")
    words = command(poses, root / "ray", model, options)
    words[2:4] = ["stepvad"]  # without clocks
    ray = run([*words, "--executor", "ray"])
    alike = contents(root / "ray") == contents(root / "quiet")
    say(f"Ray: {ray.seconds:.0f} s against {quiet.seconds:.0f} s; bytes equal: {alike}")
    return same and alike


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--windows", type=int, default=50_000_000)
    parser.add_argument("--part", type=int, default=1_000_000, help="windows of the small archive")
    parser.add_argument("--kills", type=int, default=4, help="of each half and the small archive")
    parser.add_argument("--width", type=int, default=256, help="of the network; the paper: 1024")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    data = os.environ.get("STEPVAD_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(data))
    options = parser.parse_args(arguments)
    root: Path = options.directory.absolute()
    root.mkdir(parents=True, exist_ok=True)
    for place in root.iterdir():
        if place.is_dir() and not place.name.startswith("poses-"):
            shutil.rmtree(place)
    found: list[tuple[Times, bool]] = []
    for kind in KINDS:
        poses, started = root / f"poses-{kind}", time.monotonic()
        first = Hour(kind, poses, options.data, 0, options.seed)
        n = write_poses(poses, first, options.windows // 2, options.jobs)
        say(f"{kind}: {n:,} windows written in {time.monotonic() - started:.0f} s")
        write_model(root / f"{kind}.safetensors", poses, options.width)
        found.append(measure(kind, root, options))
    say("together:")
    tell(Times.sum(times for times, _ in found))
    same = torment(root, options)
    if not (same and all(equal for _, equal in found)):
        sys.exit("error: expected the same bytes")
