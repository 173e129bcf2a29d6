"""Every window of a clip: all at once, or in memory that does not grow with the clip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepvad.config import Config
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows import runs
from stepvad.windows.index import Run, WindowIndex
from stepvad.windows.runs import Repaired, clip_runs
from stepvad.windows.sampling import Sampling
from stepvad.windows.values import Repairs


def cut(clip: Clip, config: Config, skeleton: Skeleton) -> tuple[WindowIndex, Repairs]:
    """Every window of a clip, converted to the given skeleton, and the repairs made."""
    sampling = Sampling.of(config, clip.fps)
    pieces = list(clip_runs(clip, config, skeleton, sampling))
    index = WindowIndex.of([run for run, _ in pieces], config, skeleton.V, sampling)
    return index, sum((mended for _, mended in pieces), Repairs())


def cut_in_pieces(
    clip: Clip, config: Config, skeleton: Skeleton
) -> Iterator[tuple[WindowIndex, Repairs]]:
    """Yield the same windows in pieces, in memory that does not grow with the clip."""
    sampling = Sampling.of(config, clip.fps)
    return in_pieces(clip_runs(clip, config, skeleton, sampling), config, skeleton, sampling)


def in_pieces(
    repaired: Iterable[Repaired],
    config: Config,
    skeleton: Skeleton,
    sampling: Sampling | None = None,
) -> Iterator[tuple[WindowIndex, Repairs]]:
    """Yield the windows of runs whenever enough poses are collected, with the repairs made."""
    gathered: list[Run] = []
    counts, n_poses = Repairs(), 0
    for run, mended in repaired:
        gathered.append(run)
        counts += mended
        n_poses += len(run)
        if n_poses >= runs.PIECE:
            yield WindowIndex.of(gathered, config, skeleton.V, sampling), counts
            gathered, counts, n_poses = [], Repairs(), 0
    yield WindowIndex.of(gathered, config, skeleton.V, sampling), counts
