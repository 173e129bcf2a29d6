"""How many poses lie on a neighbour's body, and what the second look makes of them.

OMP_NUM_THREADS=1 python -m studies neighbours VIDEO DETECTOR POSE [--frames 795]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from stepvad.video.estimators import open_estimator
from stepvad.video.following import LEAST_CONFIDENCE, keep_to_own_body, on_neighbour
from stepvad.video.source import VideoFile


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("detector")
    parser.add_argument("pose")
    parser.add_argument("--frames", type=int, default=None)
    given = parser.parse_args(arguments)
    estimator = open_estimator(given.detector, given.pose)
    people = wrong = again = 0
    first_s = second_s = 0.0
    for frame in itertools.islice(VideoFile(given.video), given.frames):
        began = time.process_time()
        (found,) = estimator.estimate([frame.image], estimator.detect([frame.image]))
        between = time.process_time()
        (kept,) = keep_to_own_body(estimator, [frame.image], [found])
        first_s, second_s = first_s + between - began, second_s + time.process_time() - between
        rows = on_neighbour(found)
        people += int(found.certain(LEAST_CONFIDENCE).sum())
        wrong += int(rows.sum())
        again += int((rows & kept.certain(LEAST_CONFIDENCE)).sum())
    print(
        f"{people} poses, {wrong} of them on a neighbour: {again} found again in their own box, "
        f"{wrong - again} left out; {100 * second_s / first_s:.1f} % more processor time"
    )
