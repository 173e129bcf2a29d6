"""Validate the rows of a clip that is read in batches, as tracks are validated."""

from __future__ import annotations

import numpy as np

from stepvad.errors import DataError
from stepvad.formats.tracks import ClipFacts
from stepvad.poses import MAX_COORDINATE, MAX_FRAME, PoseRows


class RowCheck:
    """Checks that rows are ordered by track and frame and stay inside their clip."""

    def __init__(self, facts: ClipFacts | None) -> None:
        self.n_frames = 0 if facts is None else facts.n_frames
        """Frames of the clip; if unknown, up to its last pose so far."""
        self._is_open = facts is None
        self._last: tuple[int, int] | None = None  # track and frame

    def __call__(self, rows: PoseRows) -> PoseRows:
        """Return the rows unchanged; raise `DataError` if they are not valid tracks."""
        track, frame, keypoints = rows.track, rows.frame, rows.keypoints
        later = (np.diff(track) > 0) | ((np.diff(track) == 0) & (np.diff(frame) > 0))
        first = int(track[0]), int(frame[0])
        in_order = bool(later.all()) and (self._last is None or self._last < first)
        sound = keypoints.min() >= -MAX_COORDINATE and keypoints.max() <= MAX_COORDINATE
        if not (in_order and sound and frame.min() >= 0 and frame.max() <= MAX_FRAME):
            rows.tracks()  # raises a specific error, unless the order is wrong
            raise DataError(
                "expected rows sorted by track and frame, got unsorted ones",
                hint="rewrite the file with: stepvad convert",
            )
        self._measure(int(frame.max()))
        self._last = int(track[-1]), int(frame[-1])
        return rows

    def _measure(self, last: int) -> None:
        if self._is_open:
            self.n_frames = max(self.n_frames, last + 1)
        elif last >= self.n_frames:
            raise DataError(
                f"expected frames below {self.n_frames}, got {last}",
                hint="frames count from 0; check the clip's length",
            )
