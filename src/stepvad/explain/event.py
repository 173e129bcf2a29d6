"""Explain a person at a moment, over a stretch of time, or around the peak of an event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from stepvad import skeletons
from stepvad.codec import Count, Integer, Number
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, silent
from stepvad.explain import words
from stepvad.explain.explanation import Explanation
from stepvad.explain.views import explain_windows
from stepvad.explain.words import Finding
from stepvad.model.scoring import Scores
from stepvad.poses import Clip
from stepvad.skeletons import part_for
from stepvad.windows.runs import Sampling, WindowIndex, cut

Place = tuple[int, int]
"""A window: its track, and the last frame it covers."""

AROUND = 1
"""Windows shown before and after the one of the peak, where they exist."""

PER_PIXEL = 10
"""Coordinates are integers, in tenths of a pixel."""
HEAT = 100
"""Heat of the joint that contributes most; others are in proportion, rounded."""
ROOM = 1.12
"""Width of the view relative to its contents."""

IntegerRows = tuple[tuple[Integer, ...], ...]


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
    ends = zip(index.track_id.tolist(), index.frame.tolist(), strict=True)
    row_of = {where: row for row, where in enumerate(ends)}
    for where in places:
        if where not in row_of:
            raise _missing(index, clip, where)
    rows = np.array([row_of[where] for where in places], dtype=np.int64)
    windows, (observed, _) = index.windows(rows), index.poses(rows)
    return explain_windows(detector, clip, windows, observed, index.sampling)


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


def explain_peak(
    detector: Detector, clip: Clip, track: int, peak_frame: int, *, calm: float
) -> ExplainedPeak:
    """Explain a person's windows around the one ending in `peak_frame`; no findings below `calm`.

    Only nearby poses are cut into windows, so a long clip takes no longer than a short one.
    """
    # one person, as far as windows around the peak and filled gaps reach
    span = Sampling.for_views(detector.view_settings, clip.fps).span
    first, last = peak_frame - (AROUND + 2) * span, peak_frame + (AROUND + 1) * span + 1
    tracks = tuple(one.between(first, last + 1) for one in clip.tracks if one.id == track)
    near = Clip(clip.name, clip.fps, clip.n_frames, tracks, clip.skeleton)
    # adjacent windows, where they exist
    there = {*cut(near, detector.view_settings, detector.skeleton)[0].frame.tolist()}
    wanted = (peak_frame + span * np.arange(-AROUND, AROUND + 1)).tolist()
    ends = [end for end in wanted if end in there or end == peak_frame]
    windows = explain(detector, near, [(track, end) for end in ends])
    peak = windows[ends.index(peak_frame)]
    windows = _side_by_side(windows, peak)
    # phrases of windows that are not calm, the highest score first
    telling = sorted(windows, key=lambda window: -window.score)
    telling = [window for window in telling if window is peak or window.score >= calm]
    findings = words.join(finding for window in telling for finding in window.findings)
    return ExplainedPeak(tuple(windows), peak, findings)


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


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedPeak:
    """The windows around a peak, explained, in order of time.

    They are adjacent: each starts in the frame after the previous one ends.
    """

    windows: tuple[Explanation, ...]
    peak: Explanation
    """The window with the peak score."""
    findings: tuple[Finding, ...]
    """Findings of the windows that are not calm, the highest score first."""

    def explanation(self, fps: float) -> EventExplanation:
        """The explanation to store and show; frames are those of the clip."""
        peak = self.peak
        return EventExplanation(
            motion=_motion(self.windows, self.peak, fps),
            track=int(peak.track),
            frame=int(peak.frames[-1]),
            score=float(peak.score),
            energy=float(peak.energy),
            confidence=float(peak.confidence),
            scales=tuple(ScaleWeight(float(s), float(w)) for s, w in peak.scales.items()),
            ghost_energy=float(peak.ghost_energy),
            ghost_is_normal=bool(peak.ghost_is_normal),
            words=tuple(
                Phrase(one.says, int(one.first_frame), int(one.last_frame)) for one in self.findings
            ),
            parts=tuple(PartShare(part.name, float(part.share)) for part in peak.parts),
            views=tuple(PartShare(name, float(share)) for name, share in peak.shares.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventExplanation:
    """Explains the window of the peak, with the motion around it. Frames are those of the clip."""

    motion: MotionFrames
    track: Integer
    frame: Integer
    score: Number
    energy: Number
    confidence: Number
    scales: tuple[ScaleWeight, ...]
    ghost_energy: Number
    ghost_is_normal: bool
    words: tuple[Phrase, ...]
    parts: tuple[PartShare, ...]
    views: tuple[PartShare, ...] = ()
    """Shares of `pose`, `motion` and `place`; empty with a single view."""
    schema: Literal[1] = 1
    """Version of the layout."""

    @property
    def summary(self) -> str:
        """The phrases in one line."""
        return "; ".join(phrase.says for phrase in self.words) or "unusual motion"


@dataclass(frozen=True, slots=True)
class MotionFrames:
    """One person around the peak, frame by frame, in tenths of pixels; for playback and JSON."""

    first: Integer
    """Number of the first frame."""
    fps: Number
    peak: Integer
    """Index of the last frame of the peak window, to which the score belongs."""
    size: Count
    """Width and height of a view that follows the person."""
    bones: IntegerRows
    """Lines between joints."""
    camera: IntegerRows
    """Centre of that view."""
    observed: IntegerRows
    """x and y of each joint."""
    ghost: IntegerRows
    heat: IntegerRows
    """From 0 to `HEAT`, by joint."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase for something unusual, and the frames that show it."""

    says: str
    first: Integer
    last: Integer


@dataclass(frozen=True, slots=True)
class PartShare:
    """A part of the body, or a view, and its share of the score."""

    name: str
    share: Number


@dataclass(frozen=True, slots=True)
class ScaleWeight:
    """A noise scale that decided the score, and its weight."""

    sigma: Number
    weight: Number


def _motion(windows: Sequence[Explanation], peak: Explanation, fps: float) -> MotionFrames:
    """The motion of adjacent windows, one of which is the peak's."""
    # the windows one after the other, (n, V, 2) in tenths of pixels
    observed, ghost = (
        np.concatenate([PER_PIXEL * motion.astype(np.float64) for motion in motions])
        for motions in ([w.observed for w in windows], [w.ghost for w in windows])
    )
    # contributions of joints, (n, V), relative to the largest one in all these windows
    added = np.concatenate([window.contributions for window in windows])
    # the middle of the person, smoothed, (n, 2): a camera that follows
    camera = gaussian_filter1d(
        (observed.min(axis=1) + observed.max(axis=1)) / 2, len(observed) / 9, axis=0,
        mode="nearest",
    )  # fmt: skip
    reach = max(float(np.abs(m - camera[:, None]).max()) for m in (observed, ghost))
    first = int(windows[0].frames[0])
    return MotionFrames(
        first=first,
        fps=fps,
        peak=int(peak.frames[-1]) - first,
        size=max(int(np.ceil(2 * ROOM * reach)), 1),
        bones=tuple(map(tuple, skeletons.strokes(windows[0].skeleton))),
        camera=_integer_rows(camera),
        observed=_integer_rows(observed),
        ghost=_integer_rows(ghost),
        heat=_integer_rows(HEAT * np.clip(added / max(float(added.max()), 1e-9), 0, 1)),
    )


def _integer_rows(values: NDArray[np.float64]) -> IntegerRows:
    """Rounded numbers, one row per frame."""
    rows = values.reshape(len(values), -1).round().astype(np.int64)
    return tuple(map(tuple, rows.tolist()))


def _index(detector: Detector, clip: Clip, wanted: set[int]) -> WindowIndex:
    """All windows of these tracks."""
    tracks = tuple(track for track in clip.tracks if track.id in wanted)
    part = Clip(clip.name, clip.fps, clip.n_frames, tracks, clip.skeleton)
    return cut(part, detector.view_settings, detector.skeleton)[0]


def _missing(index: WindowIndex, clip: Clip, where: Place) -> DataError:
    track, frame = where
    ends = index.frame[index.track_id == track]
    known = f"windows from {ends.min()} to {ends.max()}" if len(ends) else "a track without windows"
    return DataError(
        f"clip {clip.name}, track {track}: expected a window that ends in frame {frame}, "
        f"got {known}",
        hint="choose a track and a frame that have a score",
    )


def _side_by_side(windows: Sequence[Explanation], peak: Explanation) -> list[Explanation]:
    """The windows that touch, up to the peak and beyond; those of a young person may not."""
    first = next(n for n, window in enumerate(windows) if window is peak)
    end = first + 1
    # each window begins 1 frame after the one before, or 2 where frames are rounded
    touch = [after.frames[0] - before.frames[-1] <= 2 for before, after in pairwise(windows)]
    while first > 0 and touch[first - 1]:
        first -= 1
    while end < len(windows) and touch[end - 1]:
        end += 1
    return [*windows[first:end]]
