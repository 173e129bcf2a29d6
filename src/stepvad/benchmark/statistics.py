"""What a data set holds: people, tracks, confidence, covered frames, anomalies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons, windows
from stepvad.config import Config
from stepvad.formats.classes import stretches
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip, Track

CONFIDENCE_BINS = 10
"""Bins of the histogram of confidence, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class ClassStatistics:
    """How often one class of anomaly happens, and for how many frames."""

    events: int
    frames: int
    shortest: int
    median: int
    longest: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts and shares over all clips; lengths are in frames."""

    clips: int
    frames: int
    tracks: int
    poses: int
    people: tuple[float, ...]
    """Share of the frames that show nobody, one person, two, and so on."""
    track_length: tuple[float, float, float]
    """Poses of a track: what a tenth, a half and nine tenths of the tracks have at most."""
    confidence: tuple[float, ...]
    """Share of the confidences in each of ten bins from 0 to 1; NaN counts as 0."""
    confidence_correlation: float
    """Of a joint's confidence with that in the next frame."""
    covered: float
    """Share of the frames in which a window ends, so that somebody has an online score."""
    abnormal: float
    """Share of the frames that are abnormal."""
    classes: Mapping[str, ClassStatistics]


def describe(clips: Iterable[tuple[Clip, FrameLabels]], *, window: int = 12) -> Statistics:
    """The statistics of clips with their labels, for windows of so many frames."""
    seen = [(clip, labels) for clip, labels in clips]
    n_frames = max(sum(clip.n_frames for clip, _ in seen), 1)
    tracks = [track for clip, _ in seen for track in clip.tracks]
    people = np.concatenate([np.empty(0, np.int64), *(c.persons_per_frame() for c, _ in seen)])
    confidence = _confidences(tracks)
    bins = np.histogram(confidence, bins=CONFIDENCE_BINS, range=(0, 1))[0]
    lengths = [len(track) for track in tracks] or [0]
    low, middle, high = np.quantile(lengths, [0.1, 0.5, 0.9]).tolist()
    return Statistics(
        clips=len(seen),
        frames=sum(clip.n_frames for clip, _ in seen),
        tracks=len(tracks),
        poses=sum(clip.n_poses for clip, _ in seen),
        people=tuple((np.bincount(people) / n_frames).tolist()),
        track_length=(low, middle, high),
        confidence=tuple((bins / max(len(confidence), 1)).tolist()),
        confidence_correlation=_correlation(tracks),
        covered=sum(_n_covered(clip, window) for clip, _ in seen) / n_frames,
        abnormal=sum(int(labels.abnormal.sum()) for _, labels in seen) / n_frames,
        classes=_classes([labels for _, labels in seen]),
    )


def without_labels(clips: Iterable[Clip]) -> Iterator[tuple[Clip, FrameLabels]]:
    """Training clips, in which every frame is normal."""
    for clip in clips:
        yield clip, FrameLabels.all_counted(np.zeros(clip.n_frames, dtype=np.bool_))


def _classes(truths: Sequence[FrameLabels]) -> dict[str, ClassStatistics]:
    """The events of every class, in the order in which classes appear."""
    found = {}
    for name in dict.fromkeys(name for truth in truths for name in truth.classes):
        spans = [stretches(truth.classes[name]) for truth in truths if name in truth.classes]
        frames = np.concatenate([span[:, 1] - span[:, 0] + 1 for span in spans])
        found[name] = ClassStatistics(
            events=len(frames),
            frames=int(frames.sum()),
            shortest=int(frames.min()),
            median=round(float(np.median(frames))),
            longest=int(frames.max()),
        )
    return found


def _n_covered(clip: Clip, window: int) -> int:
    """Frames of a clip in which a window ends."""
    index, _ = windows.cut(clip, Config(T=window, K=1), skeletons.modelled(clip.skeleton))
    return len(np.unique(index.frame))


def _confidences(tracks: Sequence[Track]) -> NDArray[np.float32]:
    """Every confidence, within [0, 1]."""
    every = [np.nan_to_num(track.confidence).ravel() for track in tracks]
    return np.concatenate([np.empty(0, np.float32), *every]).clip(0, 1)


def _correlation(tracks: Sequence[Track]) -> float:
    """Correlation of every joint's confidence with its next one, over all tracks together."""
    now, then = [np.empty(0)], [np.empty(0)]
    for track in tracks:
        follows = np.diff(track.frames) == 1
        confidence = np.nan_to_num(track.confidence).clip(0, 1)
        now.append(confidence[:-1][follows].ravel())
        then.append(confidence[1:][follows].ravel())
    x, y = (np.concatenate(values, dtype=np.float64) for values in (now, then))
    x, y = x - x.sum() / max(len(x), 1), y - y.sum() / max(len(y), 1)
    spread = np.sqrt(np.sum(x * x) * np.sum(y * y))
    return float(np.sum(x * y) / spread) if spread else math.nan
