"""Time and memory of calibrate and report on long clips.

    python -m studies hours MODEL [--hours 1 4]

A clip of mocap people (the study `make-mocap`) end to end, one camera, as one file. MODEL may be
any; that of the paper's size is the slowest.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepvad.formats import write_clip
from stepvad.poses import Clip, Track
from studies.mocap import motions, takes
from studies.mocap.dataset import camera_of
from studies.mocap.scenes import make_scene

PIECE_S = 60.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hours", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--runtime", default="auto")
    given = parser.parse_args(arguments)
    print("command", "hours", "windows of poses", "wall s", "processor s", "MB", sep="\t")
    with tempfile.TemporaryDirectory() as directory:
        for hours in given.hours:
            clip = long_clip(hours)
            path = Path(directory) / f"hours-{hours:g}.parquet"
            write_clip(clip, path)
            own = Path(directory) / "model.safetensors"
            own.write_bytes(given.model.read_bytes())
            engine = ("--runtime", given.runtime)
            calibrate = ("calibrate", own, path, "--alerts-per-hour", "2", *engine)
            report = ("report", own, path, "-o", path.with_suffix(".html"), *engine)
            for words in (calibrate, report):
                row = (f"{figure:.0f}" for figure in run(*map(str, words)))
                print(words[0], f"{hours:g}", f"{clip.n_poses:,}", *row, sep="\t", flush=True)


def long_clip(hours: float, seed: int = 0) -> Clip:
    """People who behave, piece after piece; every piece has people of its own."""
    cast = takes.split_takes(motions.open_archive(None), "a", abnormal=False)
    camera = camera_of(seed, 0)
    n = round(PIECE_S * camera.fps)
    tracks: list[Track] = []
    pieces = round(3600 * hours / PIECE_S)
    for number in range(pieces):
        rng = np.random.default_rng([seed, 11, number])
        piece = make_scene(rng, camera, cast, (), name="piece", seconds=PIECE_S).clip
        for track in piece.tracks:
            tracks.append(replace(track, id=len(tracks) + 1, frames=track.frames + number * n))
    return Clip("long", camera.fps, pieces * n, tuple(tracks), piece.skeleton)


def run(*words: str) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and the most memory in MB, of one command."""
    started = os.times().elapsed
    with Path(os.devnull).open("w") as nothing:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "stepvad", *words],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, nothing.fileno(), 1)],
        )
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"stepvad {' '.join(words)}: ended with {status}")
    return os.times().elapsed - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
