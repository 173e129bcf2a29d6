"""Choose walkers for a contact sheet: every activity, seen from the side."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.walker_motion import FPS
from stepvad.evaluation.walkers import EVENTS, make_clips
from stepvad.plots.contact_sheet import PersonStrip, spread
from stepvad.poses import Track
from stepvad.skeletons import COCO17

SHOULDERS = [COCO17.joints.index("left_shoulder"), COCO17.joints.index("right_shoulder")]
HIPS = [COCO17.joints.index("left_hip"), COCO17.joints.index("right_hip")]
SHOWN = round(2.4 * FPS)
"""Frames in a strip."""
TITLES = ("walk", "stand", *(event for event in EVENTS if event))


def strips(*, seed: int, columns: int = 10, rounds: int = 4) -> list[PersonStrip]:
    """One strip per activity, chosen from the first clips of a seed.

    Among the candidates of `rounds` rounds of events, the strip seen most from the side is chosen.
    """
    n_clips = rounds * len(EVENTS)
    found = [*_normal(n_clips, seed, columns), *_abnormal(n_clips, seed, columns)]
    best = {strip.title: strip for strip in sorted(found, key=_breadth, reverse=True)}
    return [best[title] for title in TITLES if title in best]


def _abnormal(n_clips: int, seed: int, columns: int) -> Iterator[PersonStrip]:
    """Yield the first frames of the event of each clip's first person."""
    for clip, truth in make_clips(n_clips, seed=seed, anomalies=True):
        for track in clip.tracks:
            acts = np.flatnonzero(truth.abnormal[track.frames])
            if track.id == 1 and len(acts) > SHOWN // 2:
                (event,) = truth.classes
                yield _strip(event, track, acts[:SHOWN], columns)


def _normal(n_clips: int, seed: int, columns: int) -> Iterator[PersonStrip]:
    """Yield the fastest and slowest moments of people in training clips."""
    for clip, _ in make_clips(n_clips, seed=seed):
        for track in clip.tracks:
            way = _way(track)
            for title, fits, start in (
                ("walk", way > 1, np.argmax(np.append(way, 0))),
                ("stand", way < 0.05, np.argmin(np.append(way, 1))),
            ):
                if fits.any():
                    yield _strip(title, track, np.arange(start, start + SHOWN), columns)


def _strip(title: str, track: Track, poses: NDArray[np.int64], columns: int) -> PersonStrip:
    chosen = np.zeros(len(track), dtype=np.bool_)
    chosen[poses] = True
    return PersonStrip(title, track, spread(chosen, columns))


def _way(track: Track) -> NDArray[np.float64]:
    """Distance of the hips over one strip from each pose, in heights of the person."""
    hips = track.keypoints[:, HIPS].mean(axis=1, dtype=np.float64)
    tall = np.ptp(track.keypoints[..., 1], axis=1)[:-SHOWN]
    return np.linalg.norm(hips[SHOWN:] - hips[:-SHOWN], axis=1) / tall


def _breadth(strip: PersonStrip) -> float:
    """Apparent shoulder width; small for people seen from the side."""
    points = strip.track.keypoints[strip.poses]
    apart = np.abs(np.diff(points[:, SHOULDERS, 0], axis=1)).mean()
    return float(apart / np.ptp(points[..., 1], axis=1).max())
