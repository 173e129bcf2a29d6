"""A sweep to be killed: fits that take their time, and need no torch, which takes longer to load.

python -m tests.evaluation.durable DATA RESULTS EXPERIMENTS
"""

from __future__ import annotations

import sys
from pathlib import Path

from stepvad.config import Config
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.runs import SweepPlace, sweep


def main() -> None:
    """Sweep over as many settings as there are experiments, two at a time."""
    data, results, experiments = sys.argv[1:]
    chosen = [
        Experiment(method="mahalanobis", config=Config(T=30, K=12 + number))
        for number in range(int(experiments))
    ]
    sweep(chosen, SweepPlace(data=Path(data), results=Path(results), jobs=2))


if __name__ == "__main__":
    main()
