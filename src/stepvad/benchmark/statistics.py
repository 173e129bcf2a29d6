"""What a set of clips is like, in numbers: to hold simulated footage against a real one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepvad.poses import Clip, Track

BINS = tuple(round(0.1 * edge, 1) for edge in range(11))
"""Edges of the histogram of confidence."""
T = 12
"""Frames of a window, for the number of windows and the frames they cover."""


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one class: how many, how long in seconds, and their frames."""

    n_events: int
    median_s: float
    n_frames: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts, shares and correlations over all clips."""

    n_clips: int
    n_frames: int
    hours: float
    n_tracks: int
    n_poses: int
    n_windows: int
    people_per_frame: float
    covered_share: float
    """Frames in which a window of T frames ends."""
    track_frames: tuple[float, ...]
    """Length of a track at 10, 25, 50, 75 and 90 %."""
    confidence_histogram: tuple[float, ...]
    """Share of the keypoints' confidences in each tenth."""
    confidence_mean: float
    confidence_memory: float
    """Correlation of a keypoint's confidence with that in the next frame."""
    pose_confidence_memory: float
    """The same of a pose's mean."""
    unsteadiness: tuple[float, ...]
    """Median second difference of keypoints, in heights of the pose, by tenth of confidence."""


def describe(clips: Iterable[Clip]) -> Statistics:
    """The statistics of some clips; poses without a confidence are left out of those on it."""
    listed = list(clips)
    tracks = [track for clip in listed for track in clip.tracks]
    now, later = _neighbours(tracks)
    confidence = np.concatenate(
        [np.empty((0, 1)), *([t.confidence.reshape(-1, 1) for t in tracks])]
    )
    confidence = confidence[~np.isnan(confidence)]
    people = np.concatenate([np.empty(0), *(clip.persons_per_frame() for clip in listed)])
    lengths = [len(track) for track in tracks]
    ends = [_window_ends(clip) for clip in listed]
    shares = np.histogram(np.clip(confidence, 0, 1), BINS)[0] / max(len(confidence), 1)
    return Statistics(
        n_clips=len(listed),
        n_frames=len(people),
        hours=sum(clip.n_frames / (clip.fps or np.nan) for clip in listed) / 3600,
        n_tracks=len(tracks),
        n_poses=sum(lengths),
        n_windows=sum(map(len, ends)),
        people_per_frame=float(people.mean()),
        covered_share=sum(len(np.unique(end)) for end in ends) / max(len(people), 1),
        track_frames=tuple(np.quantile(lengths, (0.1, 0.25, 0.5, 0.75, 0.9)).tolist()),
        confidence_histogram=tuple(shares.tolist()),
        confidence_mean=float(confidence.mean()),
        confidence_memory=_correlation(now.ravel(), later.ravel()),
        pose_confidence_memory=_correlation(now.mean(axis=1), later.mean(axis=1)),
        unsteadiness=_unsteadiness(tracks),
    )


def describe_events(
    clips: Iterable[Clip], events: Mapping[str, Sequence[tuple[int, int, str]]]
) -> dict[str, Events]:
    """How many events of each class there are, given first frame, last frame and class by clip."""
    frames: dict[str, list[int]] = {}
    seconds: dict[str, list[float]] = {}
    for clip in clips:
        for first, last, kind in events.get(clip.name, ()):
            frames.setdefault(kind, []).append(last + 1 - first)
            seconds.setdefault(kind, []).append((last + 1 - first) / (clip.fps or np.nan))
    return {
        kind: Events(len(frames[kind]), float(np.median(seconds[kind])), sum(frames[kind]))
        for kind in sorted(frames)
    }


def _window_ends(clip: Clip) -> NDArray[np.int64]:
    """The last frame of every window: T frames of a track without a gap longer than T."""
    ends = [np.empty(0, dtype=np.int64)]
    for track in clip.tracks:
        breaks = [0, *(np.flatnonzero(np.diff(track.frames) > T + 1) + 1).tolist(), len(track)]
        for first, end in pairwise(breaks):
            ends.append(np.arange(track.frames[first] + T - 1, track.frames[end - 1] + 1))
    return np.concatenate(ends)


def _neighbours(tracks: Sequence[Track]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Confidence in one frame and in the next, both `(n, V)`."""
    now, later = [], []
    for track in tracks:
        known = np.asarray(~np.isnan(track.confidence).any(axis=1))
        pairs = np.flatnonzero((np.diff(track.frames) == 1) & known[1:] & known[:-1])
        now.append(track.confidence[pairs])
        later.append(track.confidence[pairs + 1])
    return np.concatenate(now).astype(np.float64), np.concatenate(later).astype(np.float64)


def _unsteadiness(tracks: Sequence[Track]) -> tuple[float, ...]:
    confidence, bend = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    for track in tracks:
        if len(track) < 3:
            continue
        rows = np.flatnonzero(track.frames[2:] - track.frames[:-2] == 2)
        second = np.linalg.norm(np.diff(track.keypoints, n=2, axis=0)[rows], axis=2)
        tall = np.maximum(np.ptp(track.keypoints[..., 1], axis=1)[rows + 1], 1.0)
        bend.append((second / tall[:, None]).ravel())
        confidence.append(track.confidence[rows + 1].ravel())
    tenth = np.digitize(np.nan_to_num(np.concatenate(confidence), nan=-1.0), BINS) - 1
    bends = np.concatenate(bend)
    chosen = (bends[np.minimum(tenth, 9) == number] for number in range(10))
    return tuple(float(np.median(values)) if len(values) else float("nan") for values in chosen)


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Pearson's, or NaN where one of them does not vary."""
    varies = len(one) > 1 and np.ptp(one) > 0 and np.ptp(other) > 0
    return float(np.corrcoef(one, other)[0, 1]) if varies else float("nan")
