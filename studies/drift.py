"""How often unchanged footage is called changed, and how often real changes are found.

    python -m studies drift MODEL [--clips 60] [--halves 200] [--repeats 20] [--seed 0]

MODEL is fitted on the mocap data set, split 1 (the study `make-mocap`); the people here are of
its test half. Every camera of the data set gets half a minute of footage per clip. Unchanged:
the clips of a camera in two random halves. Changed: 10 minutes after a change against half an hour
before it, on one camera after the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.events.drift import (
    BLOCK_S,
    FEWEST_BLOCKS,
    BlockStats,
    Shift,
    _Measure,
    score_with_stats,
)
from stepvad.poses import Clip
from studies.mocap import motions, takes
from studies.mocap.cameras import PinholeCamera
from studies.mocap.dataset import CAMERAS, camera_of
from studies.mocap.scenes import make_scene
from studies.mocap.takes import TakeSplit
from studies.simulated.footage import TURN, halved, rolled

Change = dict[str, Callable[..., Any]]
RECENT_S = 600.0
PERMUTATIONS = 4999
SURE = 0.005
"""Probability of calling footage of the same kind changed."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The difference of recent footage from that of calibration."""

    p: float
    """Probability of a difference this large if nothing has changed."""
    changes: tuple[Shift, ...]
    """The largest first."""

    @property
    def is_real(self) -> bool:
        """True if it is time to calibrate again."""
        return self.p < SURE


def compare(before: BlockStats, now: BlockStats, *, seed: int = 0) -> Drift:
    """Test whether footage has changed, and report what has.

    A permutation test of both sizes of the difference. The rarer of the two is compared with that
    of randomly assigned blocks, so neither many statistics nor two sizes make a false alarm more
    likely.
    """
    for words, stats in (("calibration", before), ("recent footage", now)):
        if len(stats) < FEWEST_BLOCKS:
            raise DataError(
                f"{words}: expected at least {FEWEST_BLOCKS} blocks of {BLOCK_S:g} seconds with "
                f"people, got {len(stats)}",
                hint="give more footage",
            )
    every = BlockStats.join([before, now])
    measure = _Measure(every)
    rng = np.random.default_rng(seed)
    # which blocks are called recent, (P, B): the true assignment first, the last blocks
    order = np.arange(len(every))[::-1]
    permutations = [order, *(rng.permutation(len(every)) for _ in range(PERMUTATIONS))]
    is_recent = np.stack(permutations) < len(now)
    # weights that give the mean of the recent blocks minus that of the others, (P, B)
    weights = np.where(is_recent, 1 / len(now), -1 / len(before))
    sizes = measure.sizes(weights @ measure.standardise(every.values))
    rarest = np.minimum(*(_p_values(size) for size in sizes.T))
    p = float((rarest <= rarest[0]).mean())
    return Drift(p, measure.changes(before.values.mean(axis=0), now.values.mean(axis=0)))


def _p_values(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fraction of assignments with a difference at least as large as each one's."""
    return (len(sizes) - np.searchsorted(np.sort(sizes), sizes - 1e-9)) / len(sizes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--halves", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    studio = Studio(Detector.load(given.model, runtime="fastest"), given.seed)
    before = [studio.footage(number, 0, given.clips) for number in range(CAMERAS)]
    unchanged = false_alarms(before, given.halves, given.seed)
    for bar in (SURE, 0.01, 0.05):
        print(f"unchanged: p < {bar:g} in {100 * np.mean(unchanged < bar):.1f} % of {given.halves}")
    for name, change in CHANGES.items():
        p = np.array([studio.after(before, change, number) for number in range(given.repeats)])
        found = 100 * np.mean(p < SURE)
        print(f"{name}: found in {found:.0f} % of {given.repeats}, median p {np.median(p):.4f}")


def false_alarms(footage: Sequence[Sequence[BlockStats]], halves: int, seed: int) -> np.ndarray:
    """The p of two random halves of the clips of one camera, many times."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(halves):
        clips = footage[number % len(footage)]
        order = rng.permutation(len(clips))
        first, second = ([clips[at] for at in half] for half in np.array_split(order, 2))
        found.append(compare(BlockStats.join(first), BlockStats.join(second), seed=number).p)
    return np.array(found)


class Studio:
    """Footage of any camera at any time, as the detector sees it."""

    def __init__(self, detector: Detector, seed: int) -> None:
        self.detector = detector
        self.seed = seed
        self.cast: TakeSplit = takes.split_takes(motions.open_archive(None), "a", abnormal=False)

    def footage(
        self,
        number: int,
        time: int,
        clips: int,
        *,
        camera: Callable[[PinholeCamera], PinholeCamera] = lambda camera: camera,
        clip: Callable[[Clip], Clip] = lambda clip: clip,
    ) -> list[BlockStats]:
        """Statistics of clips of one camera, by what it or its footage has become."""
        chosen = camera(camera_of(self.seed, number % CAMERAS))
        stats = []
        for one in range(clips):
            rng = np.random.default_rng([self.seed, 7, number, time, one])
            scene = make_scene(rng, chosen, self.cast, (), name=str(one), seconds=BLOCK_S)
            stats.append(score_with_stats(self.detector, clip(scene.clip), chosen.fps)[1])
        return stats

    def after(self, before: Sequence[Sequence[BlockStats]], change: Change, number: int) -> float:
        """The p of 10 minutes after a change of a camera."""
        now = self.footage(number, 1, round(RECENT_S / BLOCK_S), **change)
        return compare(
            BlockStats.join(before[number % CAMERAS]), BlockStats.join(now), seed=number
        ).p


CHANGES: dict[str, Change] = {
    "nothing": {},
    "camera looks 15 degrees further down": {
        "camera": lambda camera: replace(camera, pitch=camera.pitch + TURN)
    },
    "camera looks 15 degrees further up": {
        "camera": lambda camera: replace(camera, pitch=max(camera.pitch - TURN, 0.0))
    },
    "camera turned by 15 degrees about its axis": {"clip": rolled},
    "half the frame rate": {"clip": halved},
}
