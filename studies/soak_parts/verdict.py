"""What a run of a simulated site shows: leaks, events, the log, recoveries."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from studies.soak_parts.faults import Done, Faults
from studies.soak_parts.receiver import Receiver
from studies.soak_parts.samples import Sample
from studies.soak_parts.site import EventRow

YOUNG_S = 60.0
"""A site that is younger still fills its buffers."""
AGES_S = (60.0, 150.0, 300.0, 600.0, 1200.0)
"""Samples are compared with others of a site of about the same age."""
MOST_MB, MOST_THREADS, MOST_HANDLES = 15.0, 3, 8
"""By how much the last quarter may be above the first, beside a tenth of the memory."""
MOST_REPEATS = 20
"""How often a line may be logged in a minute."""
LONGEST_GAP_S = 180.0
"""Longest time in which no event of a camera begins."""
ID = re.compile(r"[0-9a-f]{12}(?:-\d+)+|\d+(?:\.\d+)?")
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the verdict."""

    what: str
    value: str
    is_ok: bool = True


def of_memory(samples: Sequence[Sample]) -> Iterator[Line]:
    """Whether a site of some age holds more at the end than one of that age at the beginning."""
    usable = [s for s in samples if s.site_age_s > YOUNG_S and s.fault != "idle connections"]
    if not usable:
        yield Line("memory", "no site was older than a minute")
        return
    n = len(usable)
    for share in (4, 2):
        pairs = _alike(usable[: max(n // share, 1)], usable[-max(n // share, 1) :])
        if pairs:
            break
    limits = {"rss_mb": MOST_MB, "threads": MOST_THREADS, "handles": MOST_HANDLES}
    for name, most in limits.items():
        for age, first, last in pairs:
            a, b = (median(getattr(s, f"site_{name}") for s in some) for some in (first, last))
            allowed = most + (a / 10 if name == "rss_mb" else 0)
            words = f"{a:.1f} -> {b:.1f} (age {age:g} s on; {len(first)} and {len(last)} samples)"
            yield Line(f"{name} of the site, first -> last part", words, b - a <= allowed)
    if not pairs:
        yield Line("memory", f"no two sites of the same age to compare; {n} samples")
    yield Line("growth within a life of the site", _growth(usable))


def _alike(
    first: Sequence[Sample], last: Sequence[Sample]
) -> list[tuple[float, list[Sample], list[Sample]]]:
    """Samples of both parts by the age of the site, where both have some."""
    found = []
    for low, high in zip(AGES_S, (*AGES_S[1:], float("inf")), strict=True):
        parts = [[s for s in some if low <= s.site_age_s < high] for some in (first, last)]
        if all(parts):
            found.append((low, parts[0], parts[1]))
    return found


def _growth(samples: Sequence[Sample]) -> str:
    """Memory, threads and handles at the beginning and end of the longest life."""
    lives: dict[int, list[Sample]] = defaultdict(list)
    for one in samples:
        lives[one.site_pid].append(one)
    life = max(lives.values(), key=lambda some: some[-1].site_age_s)
    a, b = life[0], life[-1]
    return (
        f"{a.site_rss_mb:.1f} -> {b.site_rss_mb:.1f} MB, {a.site_threads} -> {b.site_threads} "
        f"threads, {a.site_handles} -> {b.site_handles} handles from {a.site_age_s:.0f} to "
        f"{b.site_age_s:.0f} s"
    )


def of_log(text: str, samples: Sequence[Sample], faults: Sequence[Done]) -> Iterator[Line]:
    """How much is logged, what repeats, and what is an error of ours."""
    a, b = samples[0], samples[-1]
    hours = max(b.at_s - a.at_s, 1.0) / 3600
    middle = samples[len(samples) // 2]
    halves = [
        (late.log_mb - early.log_mb) / max(late.at_s - early.at_s, 1.0) * 3600
        for early, late in ((a, middle), (middle, b))
    ]
    words = f"{(b.log_mb - a.log_mb) / hours:.3f} (halves: {halves[0]:.3f}, {halves[1]:.3f})"
    yield Line("log, MB an hour", words)
    often = repeats(text)
    yield Line(f"lines more than {MOST_REPEATS} times a minute", str(len(often)), not often)
    for line, n in often.items():
        yield Line("  repeated", f"{n} x {line}", is_ok=False)
    allowed = [one.log for one in faults if one.kind == "disk full"]
    spans = [(found.start(), found) for found in re.finditer("Traceback", text)]
    during = [at for at, _ in spans if any(start <= at <= end for start, end in allowed)]
    yield Line("tracebacks while the disk was full", str(len(during)), len(during) <= len(allowed))
    others = [at for at, _ in spans if at not in during]
    yield Line("other tracebacks", str(len(others)), not others)
    for at in others[:5]:
        rest = [line for line in text[at:].splitlines()[1:40] if line[:1] not in ("", " ")]
        yield Line("  traceback", rest[0] if rest else "?", is_ok=False)


def repeats(text: str) -> dict[str, int]:
    """Lines that differ in numbers only and came too often within a minute, and how often."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        if STAMP.match(line):
            counts[line[:16], ID.sub("#", line[20:])] += 1
    worst: dict[str, int] = {}
    for (_, line), n in counts.most_common():
        if n > MOST_REPEATS:
            worst.setdefault(line, n)
    return worst


def of_events(
    rows: Sequence[EventRow], lines: Sequence[dict[str, Any]], receiver: Receiver, most_seen: int
) -> Iterator[Line]:
    """Whether every event is stored once, over, and announced from beginning to end."""
    stored = {row.id for row in rows}
    going_on = sum(row.is_open for row in rows)
    said: dict[str, dict[str, list[str]]] = {"new": {}, "update": {}, "end": {}}
    for one in lines:
        id = one["after"]["id"]
        said[one["type"]].setdefault(id, []).append(json.dumps(one, sort_keys=True))
    told = {id for by_id in said.values() for id in by_id}
    twice = [id for id, words in said["new"].items() if len({*words}) > 1]
    again = sum(len(w) - len({*w}) for by_id in said.values() for w in by_id.values())
    partial = [id for id in told if id not in said["new"] or id not in said["end"]]
    yield Line("events stored", str(len(rows)), bool(rows))
    yield Line("events that vanished from the store", str(max(most_seen - len(rows), 0)),
               most_seen <= len(rows))  # fmt: skip
    yield Line("events not ended", str(going_on), not going_on)
    yield Line("ids twice", str(len(rows) - len(stored) + len(twice)),
               len(rows) == len(stored) and not twice)  # fmt: skip
    yield _ids("announced without a stored event", told - stored)
    yield _ids("stored, but never announced", stored - told)
    yield _ids("announced without new or end", {*partial})
    yield Line("lines delivered twice (allowed after a kill)", str(again))
    for kind in ("new", "end"):
        yield _ids(f"{kind} that the webhook did not get", stored - receiver.ids[kind])
    for camera, gap in sorted(_gaps(rows).items()):
        yield Line(f"longest time between events of {camera}", f"{gap:.0f} s", gap < LONGEST_GAP_S)


def _ids(what: str, ids: set[str]) -> Line:
    return Line(what, f"{len(ids)} {', '.join(sorted(ids)[:3])}".strip(), not ids)


def _gaps(rows: Sequence[EventRow]) -> dict[str, float]:
    """Longest time between beginnings by camera, as far as the clock was right."""
    latest = min((row.start_time for row in rows), default=0.0) + 10 * 86400
    by_camera: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.start_time < latest:
            by_camera[row.camera].append(row.start_time)
    return {
        camera: max((b - a for a, b in pairwise(times)), default=0.0)
        for camera, times in ((camera, sorted(times)) for camera, times in by_camera.items())
    }


def of_faults(faults: Sequence[Done], text: str) -> Iterator[Line]:
    """How many there were, how long each kind took to be over, and whether only they restarted."""
    by_kind: dict[str, list[float | None]] = defaultdict(list)
    for one in faults:
        by_kind[one.kind].append(one.recovery_s)
    for kind, times in sorted(by_kind.items()):
        known = [s for s in times if s is not None]
        words = f"median {median(known):.1f} s, longest {max(known):.1f} s" if known else ""
        never = len(times) - len(known)
        words += f", never {never}" if never else ""
        yield Line(f"{len(times)} x {kind}", words, not never)
    killed = sum(one.kind in Faults.killers for one in faults)
    starts = text.count("is watching, cameras")
    yield Line("starts of the site (the first, and one after each fault that ends it)",
               f"{starts} (expected {killed + 1})", starts == killed + 1)  # fmt: skip


def left_over(pids: set[int]) -> Line:
    """Processes that outlive the site."""
    left = []
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"stepvad" in words:
            left.append(str(pid))
    return Line("processes left", " ".join(left) or "0", not left)
