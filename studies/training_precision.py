"""Whether training in bfloat16 and compiled gives models as good as float32 does.

    python -m studies training-precision DATA [--width 512] [--steps 500] [--seeds 5]

Fits the same settings with the same seeds both ways, and prints AUROC (all frames, online, not
smoothed) of each, the mean difference, and the spread over seeds that it has to be compared with.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepvad import Compute, Config, Detector
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import Dataset, open_dataset

WAYS = {
    "float32": Compute(precision="float32", compiled=False),
    "bfloat16, compiled": Compute(precision="bfloat16", compiled=True),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(arguments)
    base = replace(Config.short(), width=given.width, max_steps=given.steps)
    dataset = open_dataset(given.data)
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for seed in range(given.seeds):
        for name, compute in WAYS.items():
            started = time.monotonic()
            auroc = fit_and_measure(dataset, replace(base, seed=seed), compute)
            found[name].append(auroc)
            taken = time.monotonic() - started
            print(f"seed {seed}  {name:20}{auroc:8.3f}  in {taken:.0f} s", flush=True)
    for name, values in found.items():
        mean, spread = statistics.mean(values), statistics.stdev(values)
        print(f"{name:28}{mean:8.3f} +- {spread:.3f} over seeds")
    first, second = found.values()
    differences = [b - a for a, b in zip(first, second, strict=True)]
    mean, spread = statistics.mean(differences), statistics.stdev(differences)
    print(f"{'difference, seed by seed':28}{mean:+8.3f} +- {spread:.3f}")


def fit_and_measure(dataset: Dataset, config: Config, compute: Compute) -> float:
    """AUROC of one model, in per cent."""
    detector = Detector.fit(dataset.train_clips(), config, compute=compute)
    clips = protocol.score_clips(detector.with_engine("fastest"), dataset)
    return 100 * protocol.frame_scores(clips, dataset, protocol.FrameView(smoothed=False)).measure(
        "auroc"
    )
