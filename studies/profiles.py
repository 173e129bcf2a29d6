"""How long each profile takes: windows in pixels to scores, one thread, all in turns.

    OMP_NUM_THREADS=1 python -m studies profiles paper=model.safetensors tiny=tiny.safetensors ...

Prints the median and quartiles for 50 and 100 windows on several runtimes; docs/data/speeds.csv has
those of 100 windows, per window.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stepvad import Detector
from stepvad.config import Engine
from stepvad.model.engines import usable
from studies.speed import TimedSubject, raw_windows

PEOPLE = (50, 100)
READINGS = 101
ENGINES: tuple[Engine, ...] = ("onnxruntime", "openvino", "openvino-bfloat16")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", metavar="PROFILE=MODEL", nargs="+")
    given = parser.parse_args(arguments)
    models = dict(word.split("=", 1) for word in given.models)
    runs: dict[tuple[str, str, int], Callable[[], object]] = {}
    for name, path in models.items():
        for engine in filter(usable, ENGINES):
            for people in PEOPLE:
                x = raw_windows(Path(path), people)
                detector = Detector.load(path, runtime=engine, threads=1)
                runs[name, engine, people] = TimedSubject("engine", engine).prepare(detector, x)
    taken = measure(runs)
    print(f"{'profile':10}{'runtime':20}{'people':>7}{'ms':>9}{'quarter to quarter':>22}")
    for (name, runtime, people), seconds in taken.items():
        low, middle, high = (1e3 * q for q in statistics.quantiles(seconds, n=4))
        between = f"{low:.3f} to {high:.3f}"
        print(f"{name:10}{runtime:20}{people:7}{middle:9.3f}{between:>22}")


def measure(
    runs: dict[tuple[str, str, int], Callable[[], object]],
) -> dict[tuple[str, str, int], list[float]]:
    """Seconds of each, in turns; the second of two calls counts, with its own data in the cache."""
    taken: dict[tuple[str, str, int], list[float]] = {key: [] for key in runs}
    for _ in range(READINGS):
        for key, run in runs.items():
            run()
            started = time.perf_counter()
            run()
            taken[key].append(time.perf_counter() - started)
    return taken
