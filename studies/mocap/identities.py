"""Simulated tracker: links detections into tracks, with lost and swapped identities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.model.scoring import true_runs
from stepvad.poses import Track
from studies.mocap.motions import Float64s
from studies.mocap.truth import Mask

FORGET_S, FORGET = 0.4, 0.5
"""After a gap longer than this, a person gets a new id with this probability."""
NEAR = 0.35
"""Two people are close if their centres in the image are within this share of their height."""
SWAP = 0.10
"""Probability that two people swap ids when they come close."""


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """One person as detected: frames `(n,)`, keypoints `(n, 17, 2)`, confidence `(n, 17)`."""

    frames: NDArray[np.int64]
    keypoints: Float64s
    confidence: Float64s


def identify(
    rng: np.random.Generator, found: list[Detections], n_frames: int, *, fps: float
) -> tuple[Track, ...]:
    """Link the detections of several people into tracks, as a tracker would."""
    people = [person for person in found if len(person.frames)]
    ids: list[NDArray[np.int64]] = []
    n_ids = 0
    for person in people:
        gap = np.diff(person.frames, prepend=person.frames[0]) > FORGET_S * fps
        fresh = gap & (rng.random(len(gap)) < FORGET)
        ids.append(n_ids + np.cumsum(fresh))
        n_ids = int(ids[-1][-1]) + 1
    for one in range(len(people)):
        for other in range(one):
            for at in _crossings(people[one], people[other], n_frames):
                if rng.random() < SWAP:
                    _swap(people, ids, one, other, at)
    return _tracks(people, ids)


def _crossings(one: Detections, other: Detections, n_frames: int) -> list[int]:
    """The middle frame of every interval in which two people are close in the image."""
    middle = np.full((2, n_frames, 2), np.nan)
    height = np.full((2, n_frames), np.nan)
    for row, person in enumerate((one, other)):
        middle[row, person.frames] = person.keypoints.mean(axis=1)
        height[row, person.frames] = np.ptp(person.keypoints[..., 1], axis=1)
    apart = np.linalg.norm(middle[0] - middle[1], axis=1)
    close: Mask = apart < NEAR * height.min(axis=0)  # false for NaN, where one is missing
    return [(first + end) // 2 for first, end in true_runs(close)]


def _swap(
    people: list[Detections], ids: list[NDArray[np.int64]], one: int, other: int, at: int
) -> None:
    """Exchange the ids that two people have in frame `at`, from that frame on and for everyone."""
    a, b = (int(ids[who][np.searchsorted(people[who].frames, at)]) for who in (one, other))
    for person, labels in zip(people, ids, strict=True):
        later = person.frames >= at
        is_a, is_b = later & (labels == a), later & (labels == b)
        labels[is_a], labels[is_b] = b, a


def _tracks(people: list[Detections], ids: list[NDArray[np.int64]]) -> tuple[Track, ...]:
    """One track per id, numbered from 1."""
    if not people:
        return ()
    frames = np.concatenate([person.frames for person in people])
    keypoints = np.concatenate([person.keypoints for person in people])
    confidence = np.concatenate([person.confidence for person in people])
    labels = np.concatenate(ids)
    tracks = []
    for number, label in enumerate(np.unique(labels), start=1):
        rows = np.flatnonzero(labels == label)
        rows = rows[np.argsort(frames[rows], kind="stable")]
        tracks.append(
            Track(
                number,
                frames[rows],
                np.round(keypoints[rows], 2).astype(np.float32),
                np.round(confidence[rows], 3).astype(np.float32),
            )
        )
    return tuple(tracks)
