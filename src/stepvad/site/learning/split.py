"""Which recordings a model is fitted on, and which are held out to set its threshold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from stepvad.site.learning.recordings import Recording

BLOCK_S = 600.0
"""Recordings of a camera that begin within ten minutes stay together: people linger."""
MANY_BLOCKS = 12
"""Below so many blocks, recordings are split one by one."""
HOLD_OUT = 3
"""One in so many blocks is held out."""
FILE_HOURS = 1 / 30
"""Hours of one recording, roughly: two minutes."""


def newest(recordings: Sequence[Recording], hours: float) -> list[Recording]:
    """Recordings of up to this many hours, spread evenly over all of their time."""
    share = ceil(len(recordings) * FILE_HOURS / hours)
    return [
        one
        for number, block in enumerate(_blocks(recordings))
        if number % share == 0
        for one in block
    ]


def held_out(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings to calibrate on: whole blocks of time of each camera, if there are enough."""
    held: list[Recording] = []
    for camera in sorted({one.camera for one in recordings}):
        own = [one for one in recordings if one.camera == camera]
        blocks = [*_blocks(own)]
        if len(blocks) < MANY_BLOCKS:
            blocks = [[one] for one in own]
        held += [one for block in blocks[HOLD_OUT - 1 :: HOLD_OUT] for one in block]
    return held


def _blocks(recordings: Sequence[Recording]) -> Iterator[list[Recording]]:
    """Consecutive recordings that begin within `BLOCK_S`."""
    block: list[Recording] = []
    for one in recordings:
        if block and one.begin - block[0].begin >= BLOCK_S:
            yield block
            block = []
        block.append(one)
    if block:
        yield block
