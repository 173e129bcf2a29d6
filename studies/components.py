"""Mean square of the whitened coordinates of each class: python -m studies components DATA.

Normal windows have 1 in every component by definition of whitening, up to the difference between
training and test clips; a class that deviates in few components only shows here.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepvad.config import Config
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.windows.runs import cut_in_pieces
from stepvad.windows.views import ViewSettings

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
from studies import pictures

BANDS = ((0, 4), (4, 12), (12, 48))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    squares = class_squares(open_dataset(parser.parse_args(arguments).data), Config.short())
    print("class", "windows", *(f"{first + 1}-{end}" for first, end in BANDS), sep="\t")
    for name, (count, total) in sorted(squares.items()):
        mean = total / count
        bands = (f"{mean[first:end].mean():.2f}" for first, end in BANDS)
        print(name, int(count), *bands, sep="\t")


def class_squares(data: Dataset, config: Config) -> dict[str, tuple[int, np.ndarray]]:
    """For each class and for normal frames, the number of windows and their summed squares."""
    space, footage = pictures.fit_space(data, config)
    squares: dict[str, tuple[int, np.ndarray]] = defaultdict(lambda: (0, np.zeros(config.K)))
    for clip, labels in data.test_clips():
        for index, _ in cut_in_pieces(clip, [ViewSettings(config)], footage.skeleton):
            for windows in index.batches(4096):
                z2 = space.project(windows.x)[:, : config.K].astype(float) ** 2
                for name, frames in {**labels.classes, "normal": ~labels.abnormal}.items():
                    chosen = frames[np.minimum(windows.frame, len(frames) - 1)]
                    count, total = squares[name]
                    squares[name] = (count + int(chosen.sum()), total + z2[chosen].sum(axis=0))
    return {name: found for name, found in squares.items() if found[0]}
