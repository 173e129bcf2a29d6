"""How often a site calls an unchanged camera changed, and how soon it reports a real change.

    python -m studies site-drift [--parts before after changes] [--years 5] [--seed 0]

The blocks are those of real scores: synthetic people (`stepvad walkers`), half a minute
each, a small model fitted on some of them. Every camera draws its calibration and its life from
them with replacement, in three worlds: blocks that come as they come, a daily cycle of one
deviation in half of the numbers, and that cycle with moods of an hour (half a deviation) besides.
The rule before: the latest 60 blocks against the calibration every 10 minutes, p < 0.005.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad import Clip, Config, Detector
from stepvad.evaluation import walkers
from stepvad.events.drift import (
    BLOCK_EVERY_S,
    BLOCK_S,
    SPAN_BLOCKS,
    BlockStats,
    DriftMonitor,
    score_with_stats,
)
from studies import drift
from studies.simulated.footage import halved, rolled

DAY_S, SPAN_S = 86_400.0, SPAN_BLOCKS * BLOCK_EVERY_S
FITTED, SEEN, FPS = 20, 240, 25.0
Values = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How blocks change with the time, in deviations."""

    name: str
    cycle: float = 0.0
    mood: float = 0.0

    def added(self, rng: np.random.Generator, seconds: Values, numbers: int) -> Values:
        """What the time of each block adds to its numbers."""
        added = np.zeros((len(seconds), numbers))
        added[:, ::2] += self.cycle * np.sin(2 * np.pi * seconds / DAY_S)[:, None]
        if self.mood:
            hours = np.arange(seconds[0], seconds[-1] + 7200, 3600)
            each = self.mood * rng.normal(size=(len(hours), numbers))
            for number in range(numbers):
                added[:, number] += np.interp(seconds, hours, each[:, number])
        return added


WORLDS = (
    World("exchangeable blocks"),
    World("daily cycle", cycle=1.0),
    World("daily cycle and moods of an hour", cycle=1.0, mood=0.5),
)


@dataclass(frozen=True)
class Street:
    """Blocks to draw from."""

    names: tuple[str, ...]
    values: Values

    def blocks(
        self, rng: np.random.Generator, world: World, seconds: Values, values: Values | None = None
    ) -> BlockStats:
        """What a camera saw at these times."""
        source = self.values if values is None else values
        drawn = source[rng.integers(len(source), size=len(seconds))]
        added = world.added(rng, seconds, drawn.shape[1])
        return BlockStats(self.names, drawn + added * self.values.std(axis=0))

    def calibration(self, rng: np.random.Generator, world: World, days: float) -> BlockStats:
        """All blocks of some days."""
        return self.blocks(rng, world, np.arange(0, days * DAY_S, BLOCK_S))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=["before", "after", "changes"])
    parser.add_argument("--before-days", type=int, nargs=3, default=[20, 3, 3])
    parser.add_argument("--days", type=float, nargs="+", default=[1.0, 2.0, 7.0])
    parser.add_argument("--years", type=int, default=5, help="camera-years for each case")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    street, changed = observe(given.seed)
    for number, world in enumerate(WORLDS):
        rng = np.random.default_rng([given.seed, number])
        if "before" in given.parts:
            say_before(street, world, given.before_days[number], rng)
        if "after" in given.parts:
            for days in given.days:
                say_after(street, world, days, given.years, rng)
        if "changes" in given.parts:
            for name, values in changed.items():
                told = [told_after(street, world, values, rng) for _ in range(given.repeats)]
                say_changes(f"{world.name}, {name}", told)


def say_before(street: Street, world: World, days: int, rng: np.random.Generator) -> None:
    """Print how the old rule did."""
    false, bad = before(street, world, days, rng)
    month = 30 * false / days
    print(f"{world.name}, before: {month:.1f} false a month, {bad} of {days} days", flush=True)


def say_after(
    street: Street, world: World, days: float, years: int, rng: np.random.Generator
) -> None:
    """Print how the rule does."""
    needed, false = after(street, world, days, years, rng)
    print(
        f"{world.name}, {days:g} days of calibration, {needed} spans in a row: {false} false in "
        f"{years} years, {false / years / 12:.3f} a month",
        flush=True,
    )


def say_changes(name: str, told: Sequence[float | None]) -> None:
    """Print how soon a change was reported."""
    found = sorted(hours for hours in told if hours is not None)
    when = f"median {np.median(found):.1f} hours, longest {found[-1]:.1f}" if found else "never"
    print(f"{name}: reported in {len(found)} of {len(told)}, {when}", flush=True)


def observe(seed: int) -> tuple[Street, dict[str, Values]]:
    """Blocks of people on a street, and the same with the camera or the poses changed."""
    people = walkers.make(seed=seed, train_clips=FITTED + SEEN, test_clips=1, seconds=BLOCK_S)
    clips = [*people.train_clips()]
    config = Config(K=12, width=64, max_steps=200, ema_warmup=True, seed=seed)
    detector = Detector.fit(clips[:FITTED], config)

    def values(change: Callable[[Clip], Clip] = lambda clip: clip) -> BlockStats:
        return BlockStats.join(
            [score_with_stats(detector, change(clip), FPS)[1] for clip in clips[FITTED:]]
        )

    plain = values()
    changed = {name: values(change).values for name, change in CHANGES.items()}
    return Street(plain.names, plain.values), changed


def before(street: Street, world: World, days: int, rng: np.random.Generator) -> tuple[int, int]:
    """How often the old rule called an unchanged camera changed, and on how many days.

    Its calibration here is every fourth block of a day, which is faster and no less sure.
    """
    every = round(600 / BLOCK_EVERY_S)
    false, bad_days = 0, 0
    for _ in range(days):
        calibration = street.blocks(rng, world, np.arange(0, DAY_S, BLOCK_EVERY_S))
        at = np.arange(-SPAN_S, DAY_S, BLOCK_EVERY_S) + 7 * DAY_S
        seen = street.blocks(rng, world, at).values
        called = [
            is_called_changed(calibration, BlockStats(street.names, seen[end - SPAN_BLOCKS : end]))
            for end in range(SPAN_BLOCKS, len(seen) + 1, every)
        ]
        false += sum(now and not was for was, now in zip([False, *called], called, strict=False))
        bad_days += any(called)
    return false, bad_days


def is_called_changed(calibration: BlockStats, now: BlockStats) -> bool:
    """The old rule: p < 0.005, by fewer permutations where it is clearly not so."""
    drift.PERMUTATIONS = 199
    if drift.compare(calibration, now).p > 0.05:
        return False
    drift.PERMUTATIONS = 999
    return drift.compare(calibration, now).p < drift.SURE


def after(
    street: Street, world: World, days: float, years: int, rng: np.random.Generator
) -> tuple[int, int]:
    """How often an unchanged camera is called changed in so many years, each calibrated anew."""
    false, needed = 0, 0
    for _ in range(years):
        monitor = DriftMonitor(street.calibration(rng, world, days))
        needed, was = monitor.needed, False
        at = np.arange(0, 365 * DAY_S, BLOCK_EVERY_S)
        seen = street.blocks(rng, world, at).values
        for first in range(0, len(at), SPAN_BLOCKS):
            monitor.observe(BlockStats(street.names, seen[first : first + SPAN_BLOCKS]))
            false += monitor.has_changed and not was
            was = monitor.has_changed
    return needed, false


def told_after(
    street: Street, world: World, values: Values, rng: np.random.Generator
) -> float | None:
    """Hours from a change until it is told, within three days; the calibration is of two."""
    monitor = DriftMonitor(street.calibration(rng, world, 2))
    begins = rng.uniform(1, 2) * DAY_S
    for at in np.arange(DAY_S, begins, BLOCK_EVERY_S):
        monitor.observe(street.blocks(rng, world, np.array([at])))
    for at in np.arange(begins, begins + 3 * DAY_S, BLOCK_EVERY_S):
        monitor.observe(street.blocks(rng, world, np.array([at]), values))
        if monitor.has_changed:
            return float(at - begins) / 3600
    return None


def _with(clip: Clip, keypoints: Sequence[NDArray[np.float32]]) -> Clip:
    tracks = (replace(t, keypoints=k) for t, k in zip(clip.tracks, keypoints, strict=True))
    return replace(clip, tracks=tuple(tracks))


def squeezed(clip: Clip) -> Clip:
    """People seen from further above: a tenth less high."""
    return _with(clip, [track.keypoints * np.array([1, 0.9], np.float32) for track in clip.tracks])


def noisier(clip: Clip) -> Clip:
    """Joints of a worse pose network: off by 3 % of the height of the person."""
    rng = np.random.default_rng(0)
    each = []
    for track in clip.tracks:
        height = np.ptp(track.keypoints[..., 1], axis=1).mean()
        noise = rng.normal(scale=0.03 * height, size=track.keypoints.shape)
        each.append((track.keypoints + noise).astype(np.float32))
    return _with(clip, each)


CHANGES = {
    "camera turned by 15 degrees": rolled,
    "people a tenth less high": squeezed,
    "worse pose network": noisier,
    "half the frame rate": halved,
}
