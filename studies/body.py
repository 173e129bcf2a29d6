"""How far off missing joints are placed: python -m studies body DATA [--split hr].

Joints of whole training poses are hidden as they are missing in others, and placed again by the
body's model and in the middle. Errors are in heights of the body.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepvad.evaluation.datasets import open_dataset
from stepvad.windows.body import prepare

POSES = 5000
FEWEST = 4
"""Joints that a pose has at least."""
SEED = 0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default=None)
    chosen = parser.parse_args(arguments)
    clips = [*open_dataset(chosen.data, split=chosen.split).train_clips()]
    skeleton = clips[0].skeleton
    tracks = [track for clip in clips for track in clip.tracks]
    keypoints = np.concatenate([track.keypoints for track in tracks])
    found = np.concatenate([track.confidence for track in tracks]) > 0
    rng = np.random.default_rng(SEED)
    whole = rng.choice(np.flatnonzero(found.all(axis=1)), POSES)
    partial = np.flatnonzero(~found.all(axis=1) & (found.sum(axis=1) >= FEWEST))
    poses, seen = keypoints[whole], found[rng.choice(partial, POSES)]
    print(f"{1 - found.all(axis=1).mean():.1%} of {len(found)} poses miss a joint; "
          f"{(~seen).sum(axis=1).mean():.1f} joints hidden, seed {SEED}")  # fmt: skip
    height = np.ptp(poses[..., 1], axis=1)[:, None]
    hidden = np.where(seen[..., None], poses, 0)
    for way in ("body", "middle"):
        placed = prepare(hidden, seen.astype(np.float32), skeleton, skeleton, way)[0]
        error = (np.linalg.norm(placed - poses, axis=2) / height)[~seen]
        print(f"{way}: median {np.median(error):.1%}, mean {error.mean():.1%} of the height")
