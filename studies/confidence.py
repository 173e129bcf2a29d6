"""What a joint's confidence is worth: how often a smaller pose network agrees with a larger one.

    OMP_NUM_THREADS=1 python -m studies confidence DETECTOR SMALL LARGE VIDEO... [--every 15]

Both networks see the same boxes. A joint is right if it is within a tenth of the box's longer side
of where the larger network has it; joints of which that one is unsure are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.skeletons import COCO17
from stepvad.video.estimators import open_estimator
from stepvad.video.source import VideoFile

RIGHT = 0.1
SURE = 0.5
"""Confidence from which the larger network counts."""
LEAST_CONFIDENCE = 0.25
"""Mean confidence of a pose that counts."""
EDGES = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.01])
PARTS = ("nose", "eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("detector")
    parser.add_argument("small")
    parser.add_argument("large")
    parser.add_argument("videos", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=15, help="frames of which one is taken")
    given = parser.parse_args(arguments)
    small = open_estimator(given.detector, given.small)
    large = open_estimator(given.detector, given.large)
    confidence, right, counts = [], [], []
    for path in given.videos:
        for frame in VideoFile(path):
            if frame.number % given.every == 0:
                boxes = small.detect([frame.image])
                (a,), (b,) = (one.estimate([frame.image], boxes) for one in (small, large))
                rows = a.certain(LEAST_CONFIDENCE) & b.certain(LEAST_CONFIDENCE)
                sides = (boxes[0].corners[:, 2:] - boxes[0].corners[:, :2]).max(axis=1)
                apart = np.linalg.norm(a.keypoints - b.keypoints, axis=2) / sides[:, None]
                confidence.append(a.confidence[rows])
                right.append(apart[rows] < RIGHT)
                counts.append(b.confidence[rows] >= SURE)
    show(*(np.concatenate(each) for each in (confidence, right, counts)))


def show(
    confidence: NDArray[np.float32], right: NDArray[np.bool_], counts: NDArray[np.bool_]
) -> None:
    """Print the share of right joints by confidence, for every part of the body."""
    names = [f"{low:.1f}-{high:.1f}" for low, high in zip(EDGES, [*EDGES[1:-1], 1.0], strict=False)]
    print(f"{len(confidence)} people\n{'':10}" + "".join(f"{name:>12}" for name in names))
    for part in (*PARTS, "all"):
        own = [part in name or part == "all" for name in COCO17.joints]
        values, hits = confidence[:, own][counts[:, own]], right[:, own][counts[:, own]]
        bins = np.digitize(values, EDGES) - 1
        cells = [
            f"{100 * hits[bins == at].mean():.0f} % ({(bins == at).sum()})"
            if (bins == at).any()
            else "-"
            for at in range(len(names))
        ]
        print(f"{part:10}" + "".join(f"{cell:>12}" for cell in cells))
