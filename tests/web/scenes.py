"""Poses of several people and an explanation of one of them, for tests of replays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepvad.codec import from_plain
from stepvad.explain.event import EventExplanation
from stepvad.poses import Clip, Track
from tests.web.sites import EXPLANATION

FPS = 10.0


def walk(track: int, frames: range) -> Track:
    """Somebody who goes to the right."""
    n = len(frames)
    places = np.zeros((n, 17, 2), np.float32) + 50.0 * track
    places[:, :, 0] += np.arange(n)[:, None] + 12 * (np.arange(17) % 3)
    places[:, :, 1] += 6 * np.arange(17)
    sure = np.ones((n, 17), np.float32)
    sure[:, 3] = 0.0
    return Track(track, np.array(frames), places, sure)


def crowd(n: int = 300) -> Clip:
    return Clip("yard", FPS, n, (walk(1, range(n)), walk(2, range(100, 250))))


def explained(frame: int) -> EventExplanation:
    return replace(from_plain(EventExplanation, EXPLANATION, "explanation"), frame=frame, track=2)
