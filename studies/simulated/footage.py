"""Simulated changes to a camera: half the frame rate, a rolled image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepvad.poses import Clip, Track

TURN = np.radians(15.0)


def halved(clip: Clip) -> Clip:
    """Keep every other frame and renumber them consecutively."""
    tracks = []
    for track in clip.tracks:
        even = track.frames % 2 == 0
        if even.any():
            frames = track.frames[even] // 2
            tracks.append(Track(track.id, frames, track.keypoints[even], track.confidence[even]))
    return Clip(clip.name, clip.fps, (clip.n_frames + 1) // 2, tuple(tracks), clip.skeleton)


def rolled(clip: Clip) -> Clip:
    """Rotate the image by 15 degrees about the optical axis."""
    cos, sin = np.cos(TURN), np.sin(TURN)
    turn = np.array([[cos, sin], [-sin, cos]], dtype=np.float32)
    tracks = (replace(track, keypoints=track.keypoints @ turn) for track in clip.tracks)
    return replace(clip, tracks=tuple(tracks))
