"""Marked events join the training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepvad.events.marks import repeated
from stepvad.poses import Clip, Track


def clip() -> Clip:
    def track(id: int, first: int, n: int) -> Track:
        frames = np.arange(first, first + n)
        keypoints = np.zeros((n, 17, 2), np.float32) + frames[:, None, None]
        return Track(id, frames, keypoints, np.ones((n, 17), np.float32))

    return Clip("a", 10.0, 200, (track(1, 0, 150), track(2, 50, 100), track(3, 0, 200)))


def test_marked_clips_are_repeated_to_a_share_of_the_training() -> None:
    cut = replace(clip(), tracks=(clip().tracks[0].between(9, 62),))  # 42 windows
    again = list(repeated([cut], 8400, 12, share=0.05))
    assert len(again) == 10
    assert len({one.name for one in again}) == 10
    assert len(list(repeated([cut], 10, 12))) == 1
