"""A site for hours with a fault every minute: leaks, alerts lost, recoveries.

    python -m studies soak [--minutes 120] [--seed 1]

The site and faults are those of `python -m studies faults`, in any order, without those that need a
person. What was heard, and what the site holds as it ages, decides the verdict and the exit code.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from studies.fault_parts.deck import DECK, REPLACED, RESTARTED, Fault
from studies.fault_parts.site import Site, StoppedError, write_stream
from studies.fault_parts.truth import anomalies, judge
from studies.faults import BACK_S, START_S, all_heard, broken

FAULT_S = 20.0
ONE_WAY = ("corrupt", "removed")  # a person must repair them
AGES_S = (60.0, 150.0, 300.0, 600.0, 1200.0)  # a younger site still fills its buffers
MOST = {"megabytes": 15.0, "threads": 3.0, "handles": 8.0}
MOST_AGAIN = 3  # events that a restart splits or sends again: one of each camera
MOST_REPEATS = 20  # of a line in a minute
NUMBER = re.compile(r"[0-9a-f]{12}(?:-\d+)+|\d+(?:\.\d+)?")
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process of a site holds at one moment."""

    age_s: float
    megabytes: float
    threads: float
    handles: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--faults", help="only these, such as 'full,site'")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        try:
            wrong = list(soak(given, Path(place), stopping))
        except StoppedError:
            sys.exit(130)
    print("\n".join(["verdict: " + ("FAILED" if wrong else "good"), *wrong]))
    sys.exit(1 if wrong else 0)


def soak(given: argparse.Namespace, place: Path, stopping: threading.Event) -> Iterator[str]:
    """Run it; what is wrong, in words."""
    (place / "site").mkdir()
    site, samples = Site(place / "site", stopping), list[Sample]()
    back: dict[str, list[float]] = defaultdict(list)
    with site.run(write_stream(place)):
        if not all_heard(site, 0.0, START_S):
            raise SystemExit(f"the site does not alert:\n{site.running.log.read_text()[-2000:]}")
        threading.Thread(target=_sample, args=[site, samples], daemon=True).start()
        since, until = time.time(), time.monotonic() + 60 * given.minutes
        for fault in _deck(given):
            undone = broken(site, fault, min(fault.seconds, FAULT_S))
            is_back = all_heard(site, undone, BACK_S)
            back[fault.name].append(time.time() - undone)
            print(f"{fault.name}: over after {back[fault.name][-1]:.0f} s", flush=True)
            if not is_back:
                yield f"{fault.name}: not all sinks hear of all cameras after {BACK_S:.0f} s"
            if time.monotonic() > until:
                break
        found = judge(
            anomalies(site.messages, site.unseen, time.time() - 30), site.messages, since, {}
        )
        site.is_over.set()
        if code := site.running.stop():
            yield f"exit code {code}"
    for name, times in back.items():
        print(f"{len(times)} x {name}: median {median(times):.0f} s, longest {max(times):.0f} s")
    print(f"{found.played} anomalies, {found.unseen} unwatched, {found.doubled} told again")
    # a site that ends in the middle sends what was under way again, and begins the event anew
    ends = sum(len(back[one.name]) for one in DECK if RESTARTED in one.why or REPLACED in one.why)
    if found.lost or found.doubled > MOST_AGAIN * ends:
        yield f"{found.lost} lost, {found.doubled} doubled in {ends} restarts"
    yield from of_memory(samples)
    yield from of_log(site.running.log.read_text())


def _deck(given: argparse.Namespace) -> Iterator[Fault]:
    """Faults for ever, shuffled anew each time that all had their turn."""
    rng = random.Random(given.seed)
    names = given.faults.split(",") if given.faults else [one.name for one in DECK]
    chosen = [one for one in DECK if one.name in names and one.name not in ONE_WAY]
    while True:
        yield from rng.sample(chosen, len(chosen))


def _sample(site: Site, samples: list[Sample]) -> None:
    """Note what the site holds every now and then."""
    while not site.is_over.wait(30.0):
        place = Path(f"/proc/{site.running.processes().get('site', 0)}")
        try:
            started = int((place / "stat").read_text().rpartition(")")[2].split()[19])
            age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
            pages = int((place / "statm").read_text().split()[1])
            threads, handles = (len([*(place / what).iterdir()]) for what in ("task", "fd"))
        except OSError:
            continue
        samples.append(Sample(age_s, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, threads, handles))


def of_memory(samples: Sequence[Sample]) -> Iterator[str]:
    """What a site of some age holds more at the end than one of that age at the beginning."""
    n = max(len(samples) // 4, 1)
    for low, high in zip(AGES_S, (*AGES_S[1:], float("inf")), strict=True):
        parts = [
            [one for one in some if low <= one.age_s < high] for some in (samples[:n], samples[-n:])
        ]
        for name, most in MOST.items() if all(parts) else ():
            a, b = (median(getattr(one, name) for one in some) for some in parts)
            print(f"{name} at an age of {low:.0f} s: {a:.0f} in the first quarter, {b:.0f} at last")
            if b - a > most + (a / 10 if name == "megabytes" else 0):
                yield f"{name}: {a:.0f} -> {b:.0f} at an age of {low:.0f} s"


def of_log(text: str) -> Iterator[str]:
    """Errors of ours, and lines that differ in numbers only and come too often in a minute."""
    if n := text.count("Traceback"):
        yield f"{n} tracebacks"
    counts = Counter(
        (line[:16], NUMBER.sub("#", line[20:])) for line in text.splitlines() if STAMP.match(line)
    )
    yield from (f"{n} x {line}" for (_, line), n in counts.items() if n > MOST_REPEATS)
