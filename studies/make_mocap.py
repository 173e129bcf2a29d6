"""Write CMU motion capture as seen by virtual cameras, with ground truth.

    python -m studies make-mocap mocap1 --split 1

No person is in both the training and the test clips; the two splits swap them. The layout is that
of ShanghaiTech, with the class of each event in gt/classes.csv; clips for tuning are in
DIRECTORY/validation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepvad.cli.terminal import progress_bars
from stepvad.evaluation.datasets import write_dataset
from studies.mocap.dataset import SIZES, make
from studies.mocap.sheet import draw_sheet


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--split", type=int, choices=(1, 2), default=1, help="whom to test on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=SIZES, default="full", help="number of clips")
    parser.add_argument("--train-clips", type=int, help="by default that of --size")
    parser.add_argument("--archive", type=Path, help="CMU's motions, if not under STEPVAD_DATA")
    parser.add_argument("--contact-sheet", type=Path, help="draw sample motions to this .png")
    given = parser.parse_args(arguments)
    size = SIZES[given.size]
    if given.train_clips is not None:
        size = replace(size, train=given.train_clips)
    with progress_bars() as report:
        made = make(
            split=given.split, seed=given.seed, size=size, archive=given.archive, report=report
        )
        write_dataset(made, given.directory)
    if given.contact_sheet is not None:
        draw_sheet(made, given.contact_sheet)
    print(given.directory)
