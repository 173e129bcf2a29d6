"""Learn the model of the human body that places missing joints.

    python -m studies learn-body [ARCHIVE]

Bodies of the CMU motion capture are seen from random directions, scaled to each other, and
analysed into principal components. Writes `src/stepvad/windows/body.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.windows.body import FILE
from studies.mocap.bodies import coco17
from studies.mocap.motions import Archive, open_archive

Float64s = NDArray[np.float64]

EVERY = 10
"""Frames between two poses: neighbours are alike."""
VIEWS = 2
"""Random directions from which each pose is seen."""
TILT = np.deg2rad(50)
"""Cameras look down by up to this angle."""
K = 8
ROUNDS = 10
LONGEST_AXIS = 0.5
SMALLEST_NOISE = 1e-4
SEED = 0
DIGITS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, nargs="?")
    shapes = aligned(seen(open_archive(parser.parse_args(arguments).archive)))
    mean, axes, noise = components(*shapes)
    facts = {"version": 1, "source": f"CMU motion capture, {len(shapes[0])} poses, seed {SEED}"}
    for name, values in (("mean", mean), ("axes", axes), ("noise", noise)):
        facts[name] = np.round(values, DIGITS).tolist()
    FILE.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    print(f"{FILE}: {facts['source']}")


def seen(archive: Archive) -> Float64s:
    """Poses `(n, 17, 2)` from random directions, y down."""
    rng = np.random.default_rng(SEED)
    poses = []
    for name in archive.first:
        joints = coco17(archive.motion(name).joints[::EVERY])
        for _ in range(VIEWS):
            turn = rng.uniform(0, 2 * np.pi, (len(joints), 1))
            tilt = np.arcsin(rng.uniform(0, np.sin(TILT), (len(joints), 1)))
            across = joints[..., 0] * np.cos(turn) - joints[..., 1] * np.sin(turn)
            along = joints[..., 0] * np.sin(turn) + joints[..., 1] * np.cos(turn)
            down = -joints[..., 2] * np.cos(tilt) - along * np.sin(tilt)
            poses.append(np.stack([across, down], axis=-1))
    found = np.concatenate(poses)
    return found[np.isfinite(found).all(axis=(1, 2))]


def aligned(poses: Float64s) -> tuple[Float64s, Float64s]:
    """Shapes `(n, 34)` without place, scaled to the mean shape; and that mean `(34,)`."""
    centred = poses - poses.mean(axis=1, keepdims=True)
    tall = np.ptp(poses[..., 1], axis=1) > 0.5 * np.median(np.ptp(poses[..., 1], axis=1))
    shapes = centred[tall].reshape(int(tall.sum()), -1)
    mean = np.median(shapes, axis=0)
    for _ in range(ROUNDS):
        mean = mean / np.ptp(mean[1::2])
        scale = np.maximum(shapes @ mean / (mean @ mean), 0.3 * np.abs(shapes).max(axis=1))
        mean = np.median(shapes / scale[:, None], axis=0)
    return shapes / scale[:, None], mean


def components(shapes: Float64s, mean: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """Mean, axes scaled by their spread, and the variance that is left, per joint."""
    rest = shapes - mean
    rest -= np.outer(rest @ mean, mean) / (mean @ mean)  # the size is a parameter of its own
    values, vectors = np.linalg.eigh(rest.T @ rest / len(rest))
    kept = vectors[:, ::-1][:, :K]
    axes = kept * np.minimum(np.sqrt(values[::-1][:K]), LONGEST_AXIS)
    noise = np.maximum(np.square(rest - rest @ kept @ kept.T).mean(axis=0), SMALLEST_NOISE)
    return mean.reshape(17, 2), axes.reshape(17, 2, K), noise.reshape(17, 2)
