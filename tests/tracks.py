"""Random tracks, and their windows, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, Reference
from stepvad.detector import Detector
from stepvad.poses import Clip, Track
from stepvad.skeletons import Skeleton, of_size
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings, Windows

Floats = NDArray[np.float32]


def config(
    T: int,
    *,
    spread_floor: float = 0.01,
    drop_last_window: bool = False,
) -> Config:
    return Config(
        T=T, K=1, reference=Reference(spread_floor=spread_floor, drop_last_window=drop_last_window)
    )


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


def with_config(detector: Detector, config: Config) -> Detector:
    """A detector of one view with other settings."""
    (view,) = detector.views
    return replace(detector, views=(replace(view, config=config),))


def that_cuts(configs: Sequence[Config], skeleton: Skeleton) -> Detector:
    """A detector that cuts windows with these settings, and cannot score them."""
    views = [
        SimpleNamespace(config=one, settings=ViewSettings(one), model=SimpleNamespace(noise=()))
        for one in configs
    ]
    detector = object.__new__(Detector)
    object.__setattr__(detector, "views", tuple(views))
    object.__setattr__(detector, "skeleton", skeleton)
    return detector


def several(configs: Sequence[Config]) -> list[ViewSettings]:
    """The settings of views about which nothing was measured."""
    return [*map(ViewSettings, configs)]


def all_windows(clip: Clip, settings: Config) -> Windows:
    index, _ = cut(clip, [ViewSettings(settings)], clip.skeleton)
    return index.windows(slice(None))
