"""Whether cameras still look as they did when they were calibrated."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stepvad.calibration import Calibration
from stepvad.calibration.drift import BLOCK_S, FEWEST_BLOCKS, Drift, Looks, compare, look
from stepvad.live.board import Board
from stepvad.live.watcher import Subject
from stepvad.poses import Clip

logger = logging.getLogger(__name__)

EVERY_S = 120.0
"""A block is looked at so often: often enough to tell within half an hour, and cheap."""
MOST_BLOCKS = 60
TOLD = 3
"""Of the largest changes so many are told."""


@dataclass(slots=True, eq=False)
class Drifting:
    """What one camera looked like of late."""

    subject: Subject
    calibration: Calibration
    board: Board
    recent: deque[Looks] = field(default_factory=lambda: deque(maxlen=MOST_BLOCKS))

    @property
    def before(self) -> Looks | None:
        """What it looked like at its calibration, or else what all cameras did."""
        looks = self.calibration.looks
        own = looks.get(self.subject.camera)
        if own is not None and len(own) >= FEWEST_BLOCKS:
            return own
        return Looks.join([*looks.values()]) if looks else None

    def add(self, clip: Clip) -> None:
        """Look at some more footage."""
        seen = look(self.subject.detector, clip, self.subject.rate)[1]
        if len(seen):
            self.recent.append(seen)

    def tell(self) -> None:
        """Compare, and tell the board."""
        before, camera = self.before, self.subject.camera
        blocks = sum(len(looks) for looks in self.recent)
        if before is None or len(before) < FEWEST_BLOCKS:
            self.board.drift(camera, "its calibration does not tell how it looked", False)
            return
        if blocks < FEWEST_BLOCKS:
            self.board.drift(camera, f"too early to tell: {blocks} of {FEWEST_BLOCKS} looks", False)
            return
        found = compare(before, Looks.join([*self.recent]))
        if found.is_real:
            logger.warning("camera %s: %s", camera, words(found))
        self.board.drift(camera, words(found), found.is_real)


@dataclass(frozen=True, slots=True, eq=False)
class LookAtBlock:
    """The task that adds some footage to what is known of a camera."""

    drifting: Drifting
    clip: Clip
    kind: Literal["upkeep"] = "upkeep"

    def run(self) -> None:
        """Look at it."""
        self.drifting.add(self.clip)


def latest_block(clip: Clip) -> Clip:
    """The last seconds of a clip, as many as a block has."""
    n = round(BLOCK_S * clip.rate())
    first = max(clip.n_frames - n, 0)
    tracks = []
    for track in clip.tracks:
        part = slice(int(np.searchsorted(track.frames, first)), None)
        if len(track.frames[part]):
            tracks.append(
                type(track)(
                    track.id,
                    track.frames[part] - first,
                    track.keypoints[part],
                    track.confidence[part],
                )
            )
    return Clip(clip.name, clip.fps, clip.n_frames - first, tuple(tracks), clip.skeleton)


def words(found: Drift) -> str:
    """What a comparison says."""
    if not found.is_real:
        return f"looks as it did at its calibration (p = {found.p:.2g})"
    changes = ", ".join(
        f"{change.name} {change.before:.3g} then and {change.now:.3g} now"
        for change in found.changes[:TOLD]
    )
    return f"has changed since its calibration, calibrate again: {changes}"
