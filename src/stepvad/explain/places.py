"""Explain windows by their place: a track and a frame, the highest scores, a stretch of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.explain import words
from stepvad.explain.explanation import Explanation
from stepvad.explain.joined import explain_views
from stepvad.explain.posebatch import PoseBatch
from stepvad.model.scoring import Scores
from stepvad.poses import Clip
from stepvad.progress import Report, silent
from stepvad.skeletons import part_for
from stepvad.windows import WindowIndex, cut

Place = tuple[int, int]
"""A window: its track, and the last frame it covers."""


def explain(
    detector: Detector, clip: Clip, places: Sequence[Place] | None = None
) -> list[Explanation]:
    """Explain the windows of these tracks that end in these frames, together and in order.

    Without `places`: the window with the highest score; empty if there are no scores. Of poses with
    more joints than the model has, the explanation shows those that it reads.
    """
    if places is None:
        places = [place for _, place in highest(detector.score(clip), 1)]
    if not places:
        return []
    clip = clip.with_skeleton(part_for(clip.skeleton, detector.skeleton))
    index = _index(detector, clip, {track for track, _ in places})
    rows = _rows(index, clip, places)
    windows, (observed, _) = index.windows(rows), index.poses(rows)
    if detector.parts:
        return explain_views(detector, clip, windows, observed, index.sampling)
    detector.expect_pose("explain")
    batch = PoseBatch.of(detector, windows, observed, index.sampling)
    return [batch.explanation(n, clip) for n in range(len(rows))]


def explain_event(
    detector: Detector, clip: Clip, track: int, first_frame: int, last_frame: int
) -> tuple[list[Explanation], tuple[str, ...]]:
    """Explain one person between two frames: adjacent windows, and phrases for all of them.

    The windows end in the last frame, one window before it and so on; they are sorted by score, the
    highest first. Phrases about one part of the body are merged over time.
    """
    index = _index(detector, clip, {track})
    span = index.sampling.span
    wanted = np.arange(last_frame, first_frame + min(span - 1, last_frame - first_frame) - 1, -span)
    there = np.intersect1d(wanted, index.frame)
    if not len(there):
        raise _missing(index, clip, (track, last_frame))
    explained = explain(detector, clip, [(track, int(frame)) for frame in there])
    explained.sort(key=lambda explanation: -explanation.score)
    joined = words.join(finding for one in explained for finding in one.findings)
    return explained, tuple(finding.words for finding in joined)


def highest(scores: Scores, n: int) -> list[tuple[float, Place]]:
    """The n highest-scoring people, highest first: score and place of their worst window."""
    windows = scores.windows
    found: dict[int, tuple[float, Place]] = {}
    for row in np.argsort(-windows.A, kind="stable"):
        if len(found) == n:
            break
        track = int(windows.track_id[row])
        found.setdefault(track, (float(windows.A[row]), (track, int(windows.frame[row]))))
    return list(found.values())


def explain_highest(
    detector: Detector, clips: Iterable[Clip], n: int = 1, *, report: Report = silent
) -> list[Explanation]:
    """The windows of the n people who score highest in all clips, the highest first."""
    best: list[tuple[float, Clip, Place]] = []
    for clip in clips:
        found = highest(detector.score(clip, report=report), n)
        best += ((score, clip, place) for score, place in found)
        best = sorted(best, key=lambda one: -one[0])[:n]
    if not best:
        raise DataError(
            f"expected a person in {detector.config.T} consecutive frames, got none",
            hint="explain footage that has scores",
        )
    return [explain(detector, clip, [place])[0] for _, clip, place in best]


def _index(detector: Detector, clip: Clip, wanted: set[int]) -> WindowIndex:
    """All windows of these tracks."""
    tracks = tuple(track for track in clip.tracks if track.id in wanted)
    part = Clip(clip.name, clip.fps, clip.n_frames, tracks, clip.skeleton)
    return cut(part, detector.config, detector.skeleton)[0]


def _rows(index: WindowIndex, clip: Clip, places: Sequence[Place]) -> NDArray[np.int64]:
    """Rows of the windows at these places in the index."""
    row_of = dict(
        zip(zip(index.track_id.tolist(), index.frame.tolist(), strict=True), range(len(index)),
            strict=True)
    )  # fmt: skip
    for where in places:
        if where not in row_of:
            raise _missing(index, clip, where)
    return np.array([row_of[where] for where in places], dtype=np.int64)


def _missing(index: WindowIndex, clip: Clip, where: Place) -> DataError:
    track, frame = where
    ends = index.frame[index.track_id == track]
    known = f"windows from {ends.min()} to {ends.max()}" if len(ends) else "a track without windows"
    return DataError(
        f"clip {clip.name}, track {track}: expected a window that ends in frame {frame}, "
        f"got {known}",
        hint="choose a track and a frame that have a score",
    )
