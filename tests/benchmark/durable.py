"""A sweep to be killed: fits that take their time, and need no torch, which takes longer to load.

python -m tests.benchmark.durable DATA RESULTS EXPERIMENTS
"""

from __future__ import annotations

import sys
from pathlib import Path

from stepvad.benchmark.experiment import Experiment
from stepvad.benchmark.sweep import SweepPlace, sweep
from stepvad.config import Config


def main() -> None:
    """Sweep over as many settings as there are experiments, two at a time."""
    data, results, experiments = sys.argv[1:]
    chosen = [
        Experiment(method="mahalanobis", config=Config(T=30, K=12 + number))
        for number in range(int(experiments))
    ]
    sweep(chosen, SweepPlace(data=Path(data), results=Path(results)), jobs=2)


if __name__ == "__main__":
    main()
