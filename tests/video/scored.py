"""A clip of people who stand still, and scores made up for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip, Track
from stepvad.windows.body import Repairs

SIZE = (480, 360)
N_FRAMES = 40
STANDING = np.array(
    [
        (0, 0), (3, -3), (-3, -3), (6, -1), (-6, -1), (14, 18), (-14, 18), (20, 40), (-20, 40),
        (24, 62), (-24, 62), (9, 64), (-9, 64), (10, 92), (-10, 92), (10, 120), (-10, 120),
    ],
    np.float32,
)  # fmt: skip
"""COCO-17 around the nose."""
LEFT_WRIST = (24, 62)
T = 4


def track(track_id: int, nose: tuple[float, float], frames: range = range(N_FRAMES)) -> Track:
    n = len(frames)
    keypoints = np.broadcast_to(STANDING + np.array(nose, np.float32), (n, 17, 2))
    return Track(track_id, np.array(frames), keypoints, np.full((n, 17), 0.8, np.float32))


def clip(*tracks: Track, n_frames: int = N_FRAMES) -> Clip:
    return Clip("yard", 10.0, n_frames, tracks)


def scored(footage: Clip, score: Mapping[int, float | NDArray[np.floating[Any]]]) -> Scores:
    """Each track's score, one for all its windows or one for each; the first T - 1 have none."""
    ids, frames, values = [], [], []
    for person in footage.tracks:
        ends = person.frames[T - 1 :]
        ids.append(np.full(len(ends), person.id))
        frames.append(ends)
        values.append(np.broadcast_to(np.float32(score[person.id]), len(ends)))
    n = sum(map(len, frames))
    windows = WindowScores(
        np.concatenate(ids),
        np.concatenate(frames),
        np.full(n, 0.75, np.float32),
        np.zeros((n, 1), np.float32),
        np.concatenate(values).astype(np.float32),
    )
    return Scores(footage.name, footage.n_frames, T, windows, Repairs(), 0)
