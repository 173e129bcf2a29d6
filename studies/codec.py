"""msgspec and pydantic's TypeAdapter on what crosses a border: a frame of people, and an event.

    python -m studies codec [--people 5] [--runs 9]

Encodes and decodes the same frozen dataclasses as JSON, with arrays as base64, in alternating
runs; then imports each library in new processes. `stepvad.codec` is what the package uses:
msgspec, and errors in our words. Beside it stands which heavy modules a child would get with it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import TypeAdapter

from stepvad import codec
from stepvad.codec import Count
from stepvad.events.record import Record, event_id

NUMBER = 2000
HEAVY = ("pydantic", "ssl", "asyncio", "sqlite3")
IMPORTS = {
    "msgspec": "import msgspec",
    "TypeAdapter": "from dataclasses import dataclass; from pydantic import TypeAdapter\n"
    "@dataclass\nclass A: x: int\nTypeAdapter(A)",
}


@dataclass(frozen=True, slots=True)
class PeopleFrame:
    """The people of one frame, arrays as their bytes."""

    __pydantic_config__: ClassVar = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}
    camera: str
    epoch: Count
    slot: Count
    wall0: float
    tracks: tuple[Count, ...]
    keypoints: bytes
    confidence: bytes


def frame(people: int) -> PeopleFrame:
    """A frame with people of 17 joints."""
    rng = np.random.default_rng(0)
    keypoints = (1000 * rng.random((people, 17, 2))).astype(np.float32)
    sure = rng.random((people, 17)).astype(np.float32)
    tracks = tuple(range(1, people + 1))
    return PeopleFrame("yard", 7, 12_345, 1.7e9, tracks, keypoints.tobytes(), sure.tobytes())


def event() -> Record:
    """An event as it is stored and sent."""
    return Record(
        id=event_id("yard", 7, 3, 12_345),
        camera="yard",
        score=4.25,
        top_score=6.5,
        start_time=1.7e9,
        box=(100.5, 50.25, 180.0, 300.75),
        zones=("gate",),
        model_id="site",
        model_sha256="0" * 64,
        track_id=3,
        tracks=(3, 4),
        epoch=7,
        frame_seq=12_345,
        confidence=0.93,
        threshold=3.5,
        scales=(1.25, 2.5, 0.75, 3.0),
        why="left knee bends further, faster than usual",
    )


def steps(value: Any) -> dict[tuple[str, str], Callable[[], object]]:
    """Encoding and decoding by each library."""
    kind, adapter = type(value), TypeAdapter[Any](type(value))
    ours, theirs = codec.encode(value), adapter.dump_json(value)
    assert codec.decode(kind, ours, "value") == adapter.validate_json(theirs) == value
    return {
        ("encode", "msgspec"): lambda: codec.encode(value),
        ("encode", "TypeAdapter"): lambda: adapter.dump_json(value),
        ("decode", "msgspec"): lambda: codec.decode(kind, ours, "value"),
        ("decode", "TypeAdapter"): lambda: adapter.validate_json(theirs),
    }


def imported(code: str) -> tuple[float, list[str]]:
    """Milliseconds of importing in a new process, and the heavy modules that are then there."""
    said = f"import sys, time; began = time.perf_counter()\n{code}\n" + (
        "print(1e3 * (time.perf_counter() - began), *[n for n in sys.argv[1:] if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", said, *HEAVY], capture_output=True, text=True, check=True
    )
    spent, *heavy = done.stdout.split()
    return float(spent), heavy


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=5)
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args(arguments)
    print(f"{'message':<16}{'step':<8}{'msgspec, us':>12}{'TypeAdapter, us':>17}{'ratio':>7}")
    for name, value in (("people", frame(given.people)), ("event", event())):
        known = steps(value)
        spent: dict[tuple[str, str], list[float]] = {key: [] for key in known}
        for _ in range(given.runs):  # alternating, so that load strikes both
            for key, step in known.items():
                spent[key].append(1e6 * timeit.timeit(step, number=NUMBER) / NUMBER)
        for step_name in ("encode", "decode"):
            own, other = (
                statistics.median(spent[step_name, by]) for by in ("msgspec", "TypeAdapter")
            )
            print(f"{name:<16}{step_name:<8}{own:12.1f}{other:17.1f}{other / own:7.1f}")
    runs = [{by: imported(code) for by, code in IMPORTS.items()} for _ in range(given.runs)]
    for by in IMPORTS:
        spent_ms = statistics.median(run[by][0] for run in runs)
        print(f"import {by}: {spent_ms:.0f} ms, with {', '.join(runs[0][by][1]) or 'none of them'}")
