"""Summary of pose files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepvad.poses import Clip


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseSummary:
    """Counts of frames, people and tracks in a set of clips, and their confidence."""

    clips: int
    frames: int
    frames_with_people: int
    tracks: int
    poses: int
    nan_confidences: int
    longest_track: int
    skeletons: list[str]
    fps: list[float]
    """Distinct known frame rates."""
    mean_confidence: float

    @classmethod
    def of(cls, clips: Iterable[Clip]) -> PoseSummary:
        """Summarise clips one at a time."""
        n_clips = frames = with_people = missing = longest = n_tracks = 0
        skeletons: set[str] = set()
        rates: set[float] = set()
        means: list[float] = []
        poses = 0
        for clip in clips:
            n_clips, frames = n_clips + 1, frames + clip.n_frames
            with_people += int((clip.persons_per_frame() > 0).sum())
            n_tracks, poses = n_tracks + len(clip.tracks), poses + clip.n_poses
            skeletons.add(clip.skeleton.name)
            rates |= set() if clip.fps is None else {clip.fps}
            for track in clip.tracks:
                longest = max(longest, len(track))
                missing += int(np.isnan(track.confidence).sum())
                means.append(float(np.nan_to_num(track.confidence).mean(axis=1).sum()))
        return cls(
            clips=n_clips,
            frames=frames,
            frames_with_people=with_people,
            tracks=n_tracks,
            poses=poses,
            nan_confidences=missing,
            longest_track=longest,
            skeletons=sorted(skeletons),
            fps=sorted(rates),
            mean_confidence=sum(means) / max(poses, 1),
        )
