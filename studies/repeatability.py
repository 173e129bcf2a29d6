"""Whether two pose models see the same unusual moments in the same video.

    stepvad extract vtest.avi -o lightning --detector yolox_nano.onnx --pose movenet-lightning.onnx
    stepvad extract vtest.avi -o thunder --detector yolox_nano.onnx --pose movenet-thunder.onnx
    python -m studies repeatability lightning/vtest.parquet thunder/vtest.parquet --until 480

For each pose model a detector is fitted on its own poses before frame `--until` and scores the
rest. Spearman's correlation of the two frame scores, how many of the ten highest moments they
share (within a second), and the three highest of each. The third row of each detector has the
joints of the second model in the tracks of the first: what then differs is the joints alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr

from stepvad import Config, Detector
from stepvad.formats import read_clip
from stepvad.model.scoring import fill_uncovered
from stepvad.poses import Clip, Track

MOMENTS = 10
NEAR = 0.5
"""Largest distance of two poses of one person, in extents of the pose."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("poses", type=Path, nargs=2)
    parser.add_argument("--until", type=int, required=True, help="frames to fit on")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--K", type=int, default=24, help="components; few poses carry few")
    given = parser.parse_args(arguments)
    first, second = (read_clip(path) for path in given.poses)
    swapped = with_joints_of(first, second)
    for name, config in detectors(given.width, given.K, first.rate()).items():
        scores = [scored(clip, config, given.until) for clip in (first, second, swapped)]
        for what, other in (("both", scores[1]), ("joints alone", scores[2])):
            tell(f"{name}, {what}", scores[0], other, given.until, first.rate())


def detectors(width: int, components: int, fps: float) -> dict[str, Config | tuple[Config, ...]]:
    """The detectors to compare."""
    base = replace(Config.short(), width=width, K=components, max_steps=400)
    several: dict[str, Config | tuple[Config, ...]] = {
        f"views {','.join(kinds)}": base.per_view(kinds, fps)
        for kinds in (("pose",), ("pose", "motion"), ("pose", "motion", "place"))
    }
    return {"one view, T = 12": base, "one view, T = 24": replace(base, T=24), **several}


def scored(clip: Clip, config: Config | Sequence[Config], until: int) -> NDArray[np.floating]:
    """Scores of the frames after those that a detector is fitted on."""
    scores = Detector.fit([between(clip, 0, until)], config).score(between(clip, until, 2**31))
    return fill_uncovered([scores.frames])[0][until:]


def between(clip: Clip, first: int, end: int) -> Clip:
    """The poses of these frames."""
    parts = (track.between(first, end) for track in clip.tracks)
    return replace(clip, tracks=tuple(part for part in parts if len(part)))


def tell(
    name: str,
    one: NDArray[np.floating],
    other: NDArray[np.floating],
    first_frame: int,
    fps: float,
) -> None:
    """Print how far two series of frame scores agree."""
    mine, theirs = (highest(scores, round(fps)) for scores in (one, other))
    shared = sum(any(abs(a - b) <= fps for b in theirs) for a in mine)
    moments = " and ".join(str([first_frame + at for at in some[:3]]) for some in (mine, theirs))
    rho = spearmanr(one, other)[0]
    print(f"{name:<40} Spearman {rho:.2f}, {shared} of {MOMENTS} shared, {moments}", flush=True)


def highest(scores: NDArray[np.floating], apart: int) -> list[int]:
    """The frames of the highest moments, so many frames apart."""
    left, found = scores.astype(np.float64), []
    for _ in range(MOMENTS):
        at = int(np.argmax(left))
        found.append(at)
        left[max(at - apart, 0) : at + apart + 1] = -np.inf
    return found


def with_joints_of(clip: Clip, other: Clip) -> Clip:
    """The tracks of a clip with the joints that another one has for the same people."""
    theirs = dict(other.by_frame())
    tracks = {track.id: ([*track.keypoints], [*track.confidence]) for track in clip.tracks}
    place = {(t.id, int(f)): i for t in clip.tracks for i, f in enumerate(t.frames)}
    for frame, poses in clip.by_frame():
        others = [*theirs.get(frame, ())]
        if not poses or not others:
            continue
        distance = np.array([[_apart(a.keypoints, b.keypoints) for b in others] for a in poses])
        for mine, his in zip(*linear_sum_assignment(distance), strict=True):
            if distance[mine, his] < NEAR:
                keypoints, confidence = tracks[poses[mine].track_id]
                at = place[poses[mine].track_id, frame]
                keypoints[at], confidence[at] = others[his].keypoints, others[his].confidence
    return replace(
        clip,
        tracks=tuple(
            Track(t.id, t.frames, *(np.array(values) for values in tracks[t.id]))
            for t in clip.tracks
        ),
    )


def _apart(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Mean distance of the joints, in extents of the first pose."""
    extent = float(np.ptp(one, axis=0).max())
    return float(np.linalg.norm(one - other, axis=1).mean()) / max(extent, 1e-3)
