"""Describe a data set: people, tracks, confidence, covered frames, anomalies.

python -m studies statistics people
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.cli.terminal import print_table
from stepvad.config import Config
from stepvad.evaluation.datasets import open_dataset
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import true_runs
from stepvad.poses import Clip, Track
from stepvad.windows import runs
from stepvad.windows.views import ViewSettings

CONFIDENCE_BINS = 10
"""Bins of the histogram of confidence, from 0 to 1."""


COUNTS = ("clips", "frames", "tracks", "poses", "windows")


@dataclass(frozen=True, slots=True)
class ClassStatistics:
    """Number of events of one anomaly class, and their frames; all 0 for a class without events."""

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
    windows: int
    people: tuple[float, ...]
    """Share of the frames with no person, one person, two, and so on."""
    track_length: tuple[float, float, float]
    """Poses per track: 10th percentile, median and 90th percentile."""
    confidence: tuple[float, ...]
    """Share of the confidences in each of ten bins from 0 to 1, without missing ones."""
    confidence_mean: float
    confidence_correlation: float
    """Correlation of a joint's confidence with that in the next frame."""
    pose_confidence_correlation: float
    """The same for the mean confidence of a pose."""
    unsteadiness: tuple[float, ...]
    """Median second difference of joints, in pose heights, by tenth of confidence."""
    covered: float
    """Share of the frames with an online score, that is, in which a window ends."""
    abnormal: float
    """Share of the frames that are abnormal."""
    classes: Mapping[str, ClassStatistics]


def describe(clips: Iterable[tuple[Clip, FrameLabels]], *, window: int = 12) -> Statistics:
    """The statistics of labelled clips, for windows of `window` frames."""
    seen = [(clip, labels) for clip, labels in clips]
    n_frames = max(sum(clip.n_frames for clip, _ in seen), 1)
    tracks = [track for clip, _ in seen for track in clip.tracks]
    people = np.concatenate([np.empty(0, np.int64), *(c.persons_per_frame() for c, _ in seen)])
    every = np.concatenate([np.empty(0, np.float32), *(t.confidence.ravel() for t in tracks)])
    confidence = every[~np.isnan(every)].clip(0, 1)
    bins = np.histogram(confidence, bins=CONFIDENCE_BINS, range=(0, 1))[0]
    lengths = [len(track) for track in tracks] or [0]
    config = Config(T=window, K=1)
    ends = [
        runs.cut(c, [ViewSettings(config)], skeletons.modelled(c.skeleton))[0].frame
        for c, _ in seen
    ]
    now, later = _neighbours(tracks)
    low, middle, high = np.quantile(lengths, [0.1, 0.5, 0.9]).tolist()
    return Statistics(
        clips=len(seen),
        frames=sum(clip.n_frames for clip, _ in seen),
        tracks=len(tracks),
        poses=sum(clip.n_poses for clip, _ in seen),
        windows=sum(map(len, ends)),
        people=tuple((np.bincount(people) / n_frames).tolist()),
        track_length=(low, middle, high),
        confidence=tuple((bins / max(len(confidence), 1)).tolist()),
        confidence_mean=float(confidence.mean()) if len(confidence) else math.nan,
        confidence_correlation=_correlation(now.ravel(), later.ravel()),
        pose_confidence_correlation=_correlation(now.mean(axis=1), later.mean(axis=1)),
        unsteadiness=_unsteadiness(tracks),
        covered=sum(len(np.unique(frames)) for frames in ends) / n_frames,
        abnormal=sum(int(labels.abnormal.sum()) for _, labels in seen) / n_frames,
        classes=_classes([labels for _, labels in seen]),
    )


def _classes(truths: Sequence[FrameLabels]) -> dict[str, ClassStatistics]:
    """The events of every class, in order of first appearance."""
    found = {}
    for name in dict.fromkeys(name for truth in truths for name in truth.classes):
        shown = [truth.classes[name] for truth in truths if name in truth.classes]
        frames = [int(end - first) for mask in shown for first, end in true_runs(mask)]
        found[name] = ClassStatistics(
            events=len(frames),
            frames=sum(frames),
            shortest=min(frames, default=0),
            median=round(float(np.median(frames or [0]))),
            longest=max(frames, default=0),
        )
    return found


def _neighbours(tracks: Sequence[Track]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Known confidences in consecutive frames, both `(n, V)`."""
    n_joints = tracks[0].confidence.shape[1] if tracks else 1
    now, later = [np.empty((0, n_joints))], [np.empty((0, n_joints))]
    for track in tracks:
        known = np.asarray(~np.isnan(track.confidence).any(axis=1))
        pairs = np.flatnonzero((np.diff(track.frames) == 1) & known[1:] & known[:-1])
        confidence = track.confidence.clip(0, 1)
        now.append(confidence[pairs].astype(np.float64))
        later.append(confidence[pairs + 1].astype(np.float64))
    return np.concatenate(now), np.concatenate(later)


def _unsteadiness(tracks: Sequence[Track]) -> tuple[float, ...]:
    confidence, bend = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    for track in tracks:
        rows = np.flatnonzero(track.frames[2:] - track.frames[:-2] == 2)
        if len(rows):
            second = np.linalg.norm(np.diff(track.keypoints, n=2, axis=0)[rows], axis=2)
            tall = np.maximum(np.ptp(track.keypoints[..., 1], axis=1)[rows + 1], 1.0)
            bend.append((second / tall[:, None]).ravel())
            confidence.append(track.confidence[rows + 1].ravel())
    known, bends = np.concatenate(confidence), np.concatenate(bend)
    edges = np.linspace(0, 1, CONFIDENCE_BINS + 1)[1:-1]
    tenth = np.where(np.isnan(known), -1, np.digitize(known, edges))
    chosen = (bends[tenth == number] for number in range(CONFIDENCE_BINS))
    return tuple(float(np.median(values)) if len(values) else math.nan for values in chosen)


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Pearson's correlation, or NaN if either does not vary."""
    varies = len(one) > 1 and np.ptp(one) > 0 and np.ptp(other) > 0
    return float(np.corrcoef(one, other)[0, 1]) if varies else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="data set")
    parser.add_argument("--window", type=int, default=12, help="frames in a window")
    given = parser.parse_args(arguments)
    dataset = open_dataset(given.data)
    training = dataset.train_clips()
    normal = ((c, FrameLabels.all_counted(np.zeros(c.n_frames, bool))) for c in training)
    train = describe(normal, window=given.window)
    test = describe(dataset.test_clips(), window=given.window)
    lines = zip(_lines(train), _lines(test), strict=True)
    rows = [[words, in_train, in_test] for (words, in_train), (_, in_test) in lines]
    print_table(dataset.name, ["", "train", "test"], rows)
    events = [
        [name, *(f"{n:,}" for n in (c.events, c.frames, c.shortest, c.median, c.longest))]
        for name, c in test.classes.items()
    ]
    if events:
        columns = ["class", "events", "frames", "shortest", "median", "longest"]
        print_table("anomalies (frames)", columns, events)


def _lines(part: Statistics) -> list[tuple[str, str]]:
    """Labels and values of one split's table; the same rows for every split."""
    shares = [*part.people, 0.0, 0.0, 0.0, 0.0]  # padded, if no frame shows four people
    people = dict(
        zip(("0", "1", "2", "3", "4 or more"), [*shares[:4], sum(shares[4:])], strict=True)
    )
    length = "  ".join(f"{n:,.0f}" for n in part.track_length)
    return [
        *((name, f"{getattr(part, name):,}") for name in COUNTS),
        *((f"people in a frame: {n} (%)", f"{100 * share:.1f}") for n, share in people.items()),
        ("track length: 10, 50, 90 % (frames)", length),
        *(
            (f"confidence from {n / 10:.1f} to {(n + 1) / 10:.1f} (%)", f"{100 * share:.1f}")
            for n, share in enumerate(part.confidence)
        ),
        ("confidence: mean", f"{part.confidence_mean:.3f}"),
        ("confidence: correlation with the next frame", f"{part.confidence_correlation:.3f}"),
        ("confidence: the same of a pose's mean", f"{part.pose_confidence_correlation:.3f}"),
        ("frames with a score (%)", f"{100 * part.covered:.1f}"),
        ("abnormal frames (%)", f"{100 * part.abnormal:.1f}"),
    ]
