"""Random tracks, and their windows, for tests of what is made of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size
from stepvad.windows.runs import cut
from stepvad.windows.values import Windows

Floats = NDArray[np.float32]


def config(
    T: int,
    *,
    spread_floor: float = 0.01,
    drop_last_window: bool = False,
) -> Config:
    return Config(T=T, K=1, spread_floor=spread_floor, drop_last_window=drop_last_window)


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def random_track(frames: list[int], V: int = 3, *, id_: int = 1, seed: int = 0) -> Track:
    rng = np.random.default_rng(seed)
    n = len(frames)
    return Track(
        id_,
        np.array(frames, dtype=np.int64),
        rng.normal(300, 50, size=(n, V, 2)).astype(np.float32),
        rng.uniform(size=(n, V)).astype(np.float32),
    )


def clip_of(*tracks: Track, V: int = 3) -> Clip:
    length = max((int(track.frames[-1]) + 1 for track in tracks if len(track)), default=0)
    return Clip("clip", 25.0, length, tracks, of_size(V))


def all_windows(clip: Clip, settings: Config) -> Windows:
    index, _ = cut(clip, settings, clip.skeleton)
    return index.windows(slice(None))
