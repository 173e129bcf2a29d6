"""Joints of one picture: by one thread, by two threads of one call, and dealt to two threads.

    OMP_NUM_THREADS=1 python -m studies joints POSE [--rounds 9] [--busy]

All ways take turns on the same random crops, which a pose network takes as long for as for people.
With --busy two other programs keep two cores busy meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from stepvad.model.engines import onnxruntime_graph
from stepvad.video.graphs import stored_graph
from studies.figures import markdown

PEOPLE = (2, 5, 8)
CALLS = 3
PAUSE_S = 0.2
"""Threads of a call wait for the next one in a busy loop, which would slow the next way down."""
BUSY = "while True: pass"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pose", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--busy", action="store_true", help="beside two other programs")
    given = parser.parse_args(arguments)
    graph, pool = stored_graph(given.pose), ThreadPoolExecutor(2)
    one, two = (onnxruntime_graph(graph.content, threads) for threads in (1, 2))
    ways: dict[str, Callable[[list[Any]], Any]] = {
        "one thread": lambda crops: [one([crop]) for crop in crops],
        "two threads a call": lambda crops: [two([crop]) for crop in crops],
        "dealt to two": lambda crops: [*pool.map(lambda crop: one([crop]), crops)],
    }
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * given.busy)]
    try:
        rows = [
            row for people in PEOPLE for row in compared(ways, graph.input.shape, people, given)
        ]
    finally:
        for other in others:
            other.kill()
    print(markdown(["people", "way", "ms", "of a core", "times as fast", "range"], rows, [1]))


def compared(
    ways: dict[str, Callable[[list[Any]], Any]],
    shape: tuple[int, ...],
    people: int,
    given: argparse.Namespace,
) -> list[list[str]]:
    """Time by the clock and by the processor, medians, and the ratio of times by the clock."""
    rng = np.random.default_rng(0)
    crops = [rng.uniform(-1, 1, (1, *shape[1:])).astype(np.float32) for _ in range(people)]
    wall: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 + given.rounds):  # the first one warms up
        for name, way in ways.items():
            time.sleep(PAUSE_S)
            began, used = time.perf_counter(), time.process_time()
            for _ in range(CALLS):
                way(crops)
            wall[name].append((time.perf_counter() - began) / CALLS)
            busy[name].append((time.process_time() - used) / CALLS)
    rows = []
    for name in ways:
        ratios = [a / b for a, b in zip(wall["one thread"][1:], wall[name][1:], strict=True)]
        ms = (f"{1e3 * statistics.median(times[name][1:]):.0f}" for times in (wall, busy))
        low, high = min(ratios), max(ratios)
        median = f"{statistics.median(ratios):.2f}"
        rows.append([str(people), name, *ms, median, f"{low:.2f} to {high:.2f}"])
    return rows
