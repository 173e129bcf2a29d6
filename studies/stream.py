"""What a stream costs beside the network, and whether its memory stays flat.

    python -m studies stream [--frames 1000000] [--readings 9]

First what is not the network, per person and frame: upkeep of windows, standardisation, results,
for one camera with 1, 5 and 50 people and for several cameras whose frames are scored together
(`update_all`); beside it the scoring, with a small network. Then frames with people who come, are
missed and go, each scored, and the resident memory after every tenth of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence

import numpy as np

from stepvad import Config, Detector, Stream, update_all
from stepvad.evaluation.walkers import make_clips
from stepvad.model.scoring import WindowScores
from stepvad.poses import Pose
from stepvad.windows.views import Windows
from studies.figures import resident_mb

FRAMES = 400
LEFT_AFTER = 90
"""Frames after which another person takes the place of one."""
MISSED = 0.02
"""Share of poses that the camera misses."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--readings", type=int, default=9)
    given = parser.parse_args(arguments)
    config = Config(width=64, max_steps=20, ema_warmup=True)
    clips = (clip for clip, _ in make_clips(4, seed=0))
    detector = Detector.fit(clips, config).with_engine("auto", 1)
    print(f"{'cameras':>8}{'people':>8}{'stream, us':>12}{'scoring, us':>13}")
    for cameras, people in ((1, 1), (1, 5), (1, 50), (10, 5), (100, 5)):
        n_frames = min(FRAMES, given.frames)
        readings = [reading(detector, cameras, people, n_frames) for _ in range(given.readings)]
        stream, scoring = (
            1e6 * statistics.median(column) for column in zip(*readings, strict=True)
        )
        print(f"{cameras:8}{people:8}{stream:12.1f}{scoring:13.1f}", flush=True)
    endurance(detector, given.frames)


class Timed(Detector):
    """A detector that knows how long it has scored."""

    __slots__ = ()
    seconds = 0.0

    def score_windows(self, windows: Windows) -> WindowScores:
        """The same scores."""
        started = time.perf_counter()
        scores = super().score_windows(windows)
        Timed.seconds += time.perf_counter() - started
        return scores


def reading(detector: Detector, cameras: int, people: int, n_frames: int) -> tuple[float, float]:
    """Seconds per person and frame outside the scoring and in it."""
    timed = Timed(detector.views, detector.skeleton, detector.origin)
    frames = [[*street(people, n_frames, seed)] for seed in range(cameras)]
    streams = [Stream(timed) for _ in frames]
    started, Timed.seconds = time.perf_counter(), 0.0
    for i in range(n_frames):
        update_all([(s, i, f[i]) for s, f in zip(streams, frames, strict=True)])
    taken, poses = time.perf_counter() - started, n_frames * cameras * people
    return (taken - Timed.seconds) / poses, Timed.seconds / poses


def street(people: int, n_frames: int, seed: int = 0) -> Iterator[list[Pose]]:
    """Frames of a street: everyone moves, and is replaced by someone new after a while."""
    rng = np.random.default_rng(seed)
    shape = rng.normal(0, 30, (people, 17, 2)).astype(np.float32)
    confidence = rng.uniform(0.5, 1, (people, 17)).astype(np.float32)
    steps = rng.normal(0, 2, (64, people, 17, 2)).astype(np.float32).cumsum(axis=0)
    seen = rng.random((997, people)) >= MISSED  # prime, so that the pattern does not repeat soon
    for i in range(n_frames):
        keypoints = 500 + shape + steps[i % 64]
        yield [
            Pose(p + people * ((i + 7 * p) // LEFT_AFTER), keypoints[p], confidence[p])
            for p in np.flatnonzero(seen[i % 997]).tolist()
        ]


def endurance(detector: Detector, n_frames: int) -> None:
    """Score frame after frame, and print the memory."""
    stream = Stream(detector)
    scored, started = 0, time.perf_counter()
    for i, poses in enumerate(street(5, n_frames)):
        scored += len(stream.update(i, poses).A)
        if (i + 1) % (n_frames // 10) == 0:
            taken = time.perf_counter() - started
            print(
                f"{i + 1:>10,} frames {scored:>10,} windows "
                f"{resident_mb(os.getpid()):8.1f} MB {taken:8.0f} s"
            )
