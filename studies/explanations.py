"""How good explanations are: do they add up, find a moved limb, and end in normal motion.

    OMP_NUM_THREADS=1 python -m studies explanations MODEL DATA [--windows 1000] [--cases 500]

Windows of abnormal and of normal frames are drawn from the test clips. In normal ones, those with
an energy below 1, one limb is moved: arm or leg, raised, shaken or displaced. Cases the model does
not see, because they stay in its normal range, are counted and left out: nothing is to explain.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad import Detector
from stepvad.evaluation.datasets import open_dataset
from stepvad.explain import explain, ghosts
from stepvad.explain.explanation import attribute
from stepvad.explain.words import rank
from stepvad.model.pcspace import PCSpace
from stepvad.poses import Clip
from stepvad.windows.body import place
from stepvad.windows.runs import cut
from stepvad.windows.views import CompletedWindows, Windows

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
from studies.limbs import Moved, move_limb


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Windows and the keypoints `(N, T, V, 2)` they are made of."""

    windows: Windows
    keypoints: NDArray[np.float32]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    detector, rng = Detector.load(given.model), np.random.default_rng(given.seed)
    clips = [*open_dataset(given.data).test_clips()]
    abnormal = draw(detector, [(clip, truth.abnormal) for clip, truth in clips], given.windows, rng)
    normal = draw(detector, [(clip, ~truth.abnormal) for clip, truth in clips], given.windows, rng)
    sums(detector, abnormal)
    nearest(detector, abnormal, normal)
    limbs(detector, normal, given.cases, rng)
    timing(detector, clips[0][0])


def draw(
    detector: Detector,
    clips: Sequence[tuple[Clip, NDArray[np.bool_]]],
    n: int,
    rng: np.random.Generator,
) -> Drawn:
    """About n windows of all clips that end in the frames chosen."""
    found: list[tuple[Windows, NDArray[np.float32]]] = []
    each = -(-n // len(clips))
    for clip, chosen in clips:
        index, _ = cut(clip, detector.view_settings, detector.skeleton)
        rows = np.flatnonzero(chosen[index.frame])
        rows = rng.choice(rows, min(each, len(rows)), replace=False)
        keypoints = index.keypoints[index.start[rows][:, None] + np.arange(detector.config.T)]
        found.append((index.windows(rows), keypoints))
    fields = ("x", "c", "track_id", "frame", "flat")
    joined = [np.concatenate([getattr(windows, name) for windows, _ in found]) for name in fields]
    return Drawn(Windows(*joined), np.concatenate([keypoints for _, keypoints in found]))


def space_of(detector: Detector) -> PCSpace:
    """The projection, which has to be linear."""
    space = detector.model.space
    if not isinstance(space, PCSpace):
        raise SystemExit("expected a model with principal components")
    return space


def highest_energies(detector: Detector, z: NDArray[np.float32]) -> NDArray[np.float32]:
    """max_i E_i, `(N,)`."""
    return ghosts.standardised(detector, z).max(axis=1)


def sums(detector: Detector, drawn: Drawn) -> None:
    """Whether base and contributions make the detector's score."""
    space, windows = space_of(detector), drawn.windows
    z = ghosts.nearest_normal(detector, space.project(windows.x))
    taken = attribute(detector, windows.x, windows.weight(detector.config), z)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    error = np.abs(total - detector.score_windows(windows).A)
    print(
        f"sum of contributions and base beside the score, {len(error)} abnormal windows: "
        f"largest difference {error.max():.1e}, scores up to {taken.score.max():.1f}"
    )


def nearest(detector: Detector, abnormal: Drawn, normal: Drawn) -> None:
    """Whether the nearest normal motion is normal, and how far normal windows move."""
    space, config = space_of(detector), detector.config
    shape = (2, detector.skeleton.V, config.T)
    for name, drawn in (("abnormal", abnormal), ("normal", normal)):
        z = space.project(drawn.windows.x)
        before = highest_energies(detector, z)
        ghost = ghosts.nearest_normal(detector, z)
        after = highest_energies(detector, ghost)
        motions = [place(space.reconstruct(p, shape), drawn.keypoints, config) for p in (z, ghost)]
        way = np.linalg.norm(motions[1] - motions[0], axis=-1).mean(axis=(1, 2))
        way /= np.median(np.ptp(drawn.keypoints[..., 1], axis=2), axis=1)
        odd = before > ghosts.NORMAL_RANGE
        print(
            f"{name}: {len(before)} windows, {odd.sum()} outside the normal range; of the ghosts "
            f"{percent(after <= ghosts.NORMAL_RANGE)} are inside, of the odd ones' "
            f"{percent(after[odd] <= ghosts.NORMAL_RANGE)}, {percent(after <= ghosts.GOAL)} at the "
            f"goal; joints move by {np.median(way):.4f} heights (median), "
            f"{np.quantile(way, 0.95):.4f} (95 %)"
        )


def limbs(detector: Detector, normal: Drawn, n: int, rng: np.random.Generator) -> None:
    """How often the limb that was moved is the part that contributes most."""
    space, config, skeleton = space_of(detector), detector.config, detector.skeleton
    usual = np.flatnonzero(highest_energies(detector, space.project(normal.windows.x)) < 1)
    kept: list[tuple[Moved, NDArray[np.float32]]] = []
    tried: dict[str, list[bool]] = {}
    while len(kept) < n:
        rows = rng.choice(usual, 500)
        cases = [move_limb(normal.keypoints[row], skeleton, rng) for row in rows]
        keypoints = np.stack([case.keypoints for case in cases])
        ones = np.ones((len(cases), config.T), dtype=np.float32)
        completed = CompletedWindows(
            *(keypoints, ones, rows, rows),
            *(np.full(len(cases), config.T), np.ones(ones.shape, np.bool_)),
        )
        windows = Windows.completed(completed, detector.view_settings)
        seen = highest_energies(detector, space.project(windows.x)) > ghosts.NORMAL_RANGE
        for case, x, is_seen in zip(cases, windows.x, seen, strict=True):
            tried.setdefault(case.kind, []).append(bool(is_seen))
            if is_seen:
                kept.append((case, x))
    kept = kept[:n]
    x = np.stack([window for _, window in kept])
    z = ghosts.nearest_normal(detector, space.project(x))
    taken = attribute(detector, x, np.ones(n, np.float32), z)
    frames = np.arange(config.T)
    hits: dict[str, list[bool]] = {}
    for (case, _), contributions in zip(kept, taken.contributions, strict=True):
        hit = rank(contributions.T, frames, skeleton)[0].name == case.limb
        for key in ("all", case.kind, case.limb):
            hits.setdefault(key, []).append(hit)
    for kind, are_seen in tried.items():
        print(f"limb {kind}: {percent(np.array(are_seen))} of {len(are_seen)} leave the range")
    for key, found in hits.items():
        print(f"moved limb is the first part, {key}: {percent(np.array(found))} of {len(found)}")


def timing(detector: Detector, clip: Clip) -> None:
    """How long one explanation takes, and one of a hundred."""
    windows = detector.score(clip).windows
    order = np.argsort(-windows.A)[:100]
    places = [(int(windows.track_id[row]), int(windows.frame[row])) for row in order]
    for chosen in (places[:1], places):
        explain(detector, clip, chosen)
        clocks = (time.perf_counter, time.process_time)
        begin = [clock() for clock in clocks]
        explain(detector, clip, chosen)
        wall, core = (
            1000 * (clock() - at) / len(chosen) for clock, at in zip(clocks, begin, strict=True)
        )
        print(f"{len(chosen)} at once: {wall:.0f} ms each, {core:.0f} ms of a core")


def percent(holds: NDArray[np.bool_]) -> str:
    """How many of them hold."""
    return f"{100 * holds.sum() / max(len(holds), 1):.1f} %"
