"""How much memory `fit` takes on five million windows: the paper's network, a few steps.

    python -m studies fit-memory [windows]

Reads tracks, fits the components over all windows, trains five steps, and computes the energy
statistics of the first windows. Prints the resident memory at its highest after each stage, and
fails above 6 GiB.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from stepvad import Clip, Config, Detector, Track
from stepvad.errors import Progress
from stepvad.evaluation.walkers import make_clips

STEPS = 5
LIMIT_GIB = 6.0
STATISTICS = 10_000


class EnoughError(Exception):
    """The statistics have run long enough to show their memory."""


def clips(n_windows: int) -> Iterator[Clip]:
    """Walkers, each time shaken anew, until their windows are enough."""
    originals = [clip for clip, _ in make_clips(20, seed=0, seconds=60.0)]
    rng = np.random.default_rng(0)
    made = 0
    for number in count():
        clip = originals[number % len(originals)]
        tracks = [
            Track(
                track.id,
                track.frames,
                track.keypoints + rng.standard_normal(track.keypoints.shape, dtype=np.float32),
                track.confidence,
            )
            for track in clip.tracks
        ]
        yield Clip(f"{clip.name}-{number}", clip.fps, clip.n_frames, tuple(tracks), clip.skeleton)
        made += sum(max(int(track.frames[-1] - track.frames[0]) - 10, 0) for track in tracks)
        if made >= 1.05 * n_windows:  # long gaps cost some windows
            return


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("windows", nargs="?", type=int, default=5_000_000)
    given = parser.parse_args(arguments)
    peaks: dict[str, float] = {}
    total: dict[str, int] = {}
    started = time.monotonic()

    def report(progress: Progress) -> None:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peaks[progress.stage] = kilobytes / 2**20
        total[progress.stage] = progress.total
        if progress.stage == "energies" and progress.done >= STATISTICS:
            raise EnoughError

    with contextlib.suppress(EnoughError):
        Detector.fit(clips(given.windows), Config(max_steps=STEPS), report=report)
    print(f"{total['components']:,} windows, {time.monotonic() - started:.0f} s")
    for stage, gibibytes in peaks.items():
        print(f"{stage:<11} peak {gibibytes:.2f} GiB resident")
    if max(peaks.values()) > LIMIT_GIB:
        sys.exit(1)
