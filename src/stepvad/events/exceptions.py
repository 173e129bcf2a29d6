"""Exceptions: motion that people marked as normal is passed over at its place; no limit moves.

With usual motion, a window's score there is at most what it would be if the marked windows were the
only reference. With the paper's energy, a window scores nothing that is nearer to a marked one than
to normal motion. A guard leaves out marked windows that would hide a right alert.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.events.ledger import peaks_of
from stepvad.events.record import Box, Mark, Name, Record, Review
from stepvad.events.rules import Rules, Time
from stepvad.model.scoring import BATCH, WindowScores
from stepvad.model.usual import Centroids
from stepvad.poses import Clip
from stepvad.windows.runs import cut, cut_in_pieces
from stepvad.windows.views import CompletedWindows, Windows

logger = logging.getLogger(__name__)

MOST_WINDOWS, MOST_EXCEPTIONS = 24, 100
"""Most windows of an exception, evenly spread, and most exceptions of a camera, the latest."""
GUARDED = 2.0
"""A right alert stays as high as it was, up to so many times its limit: limits move."""
NEAR = 0.8
"""Distance to normal motion, as a share of that to its mean: 0.79 to 0.92 for alerts on walkers."""
ROUNDING = 1e-6
RULES = Rules(threshold=1.0)
DECIMALS = 3
"""Of a point: usual motion lies about 3 from its neighbours."""
FAR = 1e6
"""Where marked windows are in a view that they are too young for: near nothing."""

Coordinate = Annotated[float, Meta(ge=-FAR, le=FAR)]
Points = Annotated[tuple[tuple[Coordinate, ...], ...], Meta(max_length=MOST_WINDOWS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MotionException:
    """Motion that somebody marked as normal, as the model that found its windows sees it."""

    event: Name
    """Id of the marked event."""
    camera: str
    at: Time
    """Unix time at which it began."""
    place: Box
    """Where the bodies were, with half of a body around their centres."""
    points: Annotated[tuple[Points, ...], Meta(max_length=8)]
    """Its windows `(n, K)` in the space of each view."""

    @classmethod
    def of_windows(
        cls, detector: Detector, event: Record, found: CompletedWindows, windows: Windows
    ) -> MotionException:
        """The exception that some windows of an event make."""
        centre, size = _bodies(found)
        left, top = (centre - size[:, None] / 2).min(axis=0).tolist()
        right, bottom = (centre + size[:, None] / 2).max(axis=0).tolist()
        shown = [own.windows.x for own in windows.views] or [windows.x]
        points = [
            view.model.space.project(x).astype(np.float64).clip(-FAR, FAR).round(DECIMALS).tolist()
            for view, x in zip(detector.views, shown, strict=True)
        ]
        return cls(
            event=event.id,
            camera=event.camera,
            at=event.start_time,
            place=(left, top, right, bottom),
            points=tuple(tuple(map(tuple, rows)) for rows in points),
        )

    def fits(self, detector: Detector) -> bool:
        """True if its points are in the spaces of this detector."""
        spaces = [len(view.model.space.scale) for view in detector.views]
        return len(spaces) == len(self.points) and all(
            len(row) == K for K, rows in zip(spaces, self.points, strict=True) for row in rows
        )


class Excuse:
    """Lowers the scores of windows that move as those of some exceptions did, at their place."""

    def __init__(
        self, detector: Detector, exceptions: Iterable[MotionException], calm: float = 0.0
    ) -> None:
        """Scores below the `calm` level are left as they are: they raise no event."""
        self._detector, self._calm = detector, calm
        self._known = [
            (np.array(one.place), _lowers(detector, one))
            for one in exceptions
            if one.fits(detector)
        ]

    def __call__(self, scores: WindowScores, found: CompletedWindows) -> WindowScores:
        """The scores of windows in pixels, lowered."""
        rows = np.flatnonzero(self._calm <= scores.A)
        if not len(rows) or not self._known:
            return scores
        A = scores.A.copy()
        A[rows] = self.lowered(A[rows], found.part(rows))
        return replace(scores, A=A)

    def in_clip(self, clip: Clip, scores: WindowScores) -> WindowScores:
        """All scores of a finished clip, lowered."""
        if not self._known:
            return scores
        detector, parts, first = self._detector, [], 0
        for index, _ in cut_in_pieces(clip, detector.view_settings, detector.skeleton):
            for start in range(0, len(index), BATCH):
                rows = np.arange(start, min(start + BATCH, len(index)))
                parts.append(self(scores.part(first + rows), index.completed(rows)))
            first += len(index)
        return WindowScores.join(parts, detector.columns)

    def lowered(
        self, A: NDArray[np.float32], found: CompletedWindows, windows: Windows | None = None
    ) -> NDArray[np.float32]:
        """Scores `(N,)` of windows in pixels, lowered; `windows` are the same as the views see."""
        (centre, _), A = _bodies(found), A.copy()
        for place, lower in self._known:
            # windows whose body is at the place of the exception, (n,)
            rows = np.flatnonzero(((place[:2] <= centre) & (centre <= place[2:])).all(axis=1))
            if len(rows):
                windows = windows or Windows.completed(found, self._detector.view_settings)
                A[rows] = np.minimum(A[rows], lower(windows.part(rows)))
        return A


def _lowers(
    detector: Detector, exception: MotionException
) -> Callable[[Windows], NDArray[np.float32]]:
    """The most that windows may score beside the marked ones, `(N,)`."""
    spaces = [view.model.space for view in detector.views]
    points = [
        np.array(rows or [[FAR] * len(space.scale)], np.float32)
        for space, rows in zip(spaces, exception.points, strict=True)
    ]
    if detector.config.scored_by == "energy":
        return lambda windows: _beside(spaces[0].project(windows.x), points[0])
    views = [
        replace(view, model=replace(view.model, learned=Centroids(p, np.zeros(len(p), np.int64))))
        for view, p in zip(detector.views, points, strict=True)
    ]
    marked = replace(detector, views=tuple(views))
    return lambda windows: marked.score_windows(windows).A


def _beside(z: NDArray[np.float32], points: NDArray[np.float32]) -> NDArray[np.float32]:
    """0 for each z `(N, K)` that is nearer to a point `(n, K)` than both are to normal motion."""
    distance = np.linalg.norm(z[:, None] - points, axis=2)
    # normal motion lies around the mean, which is the origin, (N, n)
    normal = NEAR * np.minimum(np.linalg.norm(z, axis=1)[:, None], np.linalg.norm(points, axis=1))
    return np.where((distance < normal).any(axis=1), np.float32(0), np.float32(np.inf))


def _bodies(found: CompletedWindows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Centre `(N, 2)` and extent `(N,)` of the body in the last frame of each window."""
    joints = found.keypoints[:, -1]
    low, high = joints.min(axis=1), joints.max(axis=1)
    return (low + high) / 2, (high - low).max(axis=1)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the marks on events of a site come to."""

    exceptions: tuple[MotionException, ...]
    too_like: Mapping[str, Sequence[Record]]
    """Events marked as normal that make no exception, and the right alerts that they are too like.

    None if their poses show nothing unusual.
    """
    peaks: Mapping[str, float]
    """The highest limit at which each right alert is still raised."""


def exceptions_for(
    detector: Detector,
    events: Iterable[Record],
    reviews: Mapping[str, Review],
    clips: Mapping[str, Clip],
) -> tuple[MotionException, ...]:
    """The exceptions that the marks on events make; see `judge`."""
    return judge(detector, events, reviews, clips).exceptions


def judge(
    detector: Detector,
    events: Iterable[Record],
    reviews: Mapping[str, Review],
    clips: Mapping[str, Clip],
) -> Judgement:
    """Make an exception of each event marked as normal, in the order of the marks, and guard.

    `clips` hold everybody in view at these events; one without poses makes no exception. Before
    each, all right alerts of its camera are scored again with those so far and with this one:
    windows that would hide a right alert are left out. The same marks make the same exceptions.
    """
    # the windows of what was judged, by camera
    motions: dict[str, dict[Mark, list[_Motion]]] = {}
    judged = [one for one in events if one.id in clips and one.id in reviews]
    for event in sorted(judged, key=lambda one: (reviews[one.id].at, one.id)):
        if (mark := reviews[event.id].mark) is not None:
            try:
                motion = _Motion(detector, event, people_of(event, clips[event.id]))
            except StepvadError as error:
                logger.warning("event %s: its mark changes nothing: %s", event.id, error)
                continue
            motions.setdefault(event.camera, {"normal": [], "right": []})[mark].append(motion)
    made: list[MotionException] = []
    too_like: dict[str, Sequence[Record]] = {}
    for own in motions.values():
        for normal in own["normal"][-MOST_EXCEPTIONS:]:
            exception, endangered = _guarded(detector, normal, own["right"])
            if exception is None:
                too_like[normal.event.id] = endangered
                continue
            made.append(exception)
            for right in own["right"]:
                right.scores = right.beside(detector, exception)
    rights = (one for own in motions.values() for one in own["right"])
    peaks = {one.event.id: one.highest(one.scores) for one in rights}
    return Judgement(tuple(made), too_like, peaks)


def _guarded(
    detector: Detector, normal: _Motion, rights: Iterable[_Motion]
) -> tuple[MotionException | None, list[Record]]:
    """The exception without windows that would hide a right alert, and those they would hide."""
    rows, endangered = _spread(len(normal.windows)), []
    for right in rights:
        if right.is_hidden_by(detector, normal.exception(detector, rows)):
            # without the windows that do so alone; if the others do together, without any
            endangered.append(right.event)
            alone = (normal.exception(detector, np.array([row])) for row in rows)
            rows = rows[[right.is_spared_by(detector, one) for one in alone]]
            if right.is_hidden_by(detector, normal.exception(detector, rows)):
                rows = rows[:0]
    return normal.exception(detector, rows), endangered


def _spread(n: int) -> NDArray[np.int64]:
    """Up to `MOST_WINDOWS` of n rows, evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, MOST_WINDOWS)).round().astype(np.int64))


def people_of(event: Record, clip: Clip) -> Clip:
    """The poses of the people in an event; of everybody if none of them has poses."""
    tracks = tuple(track for track in clip.tracks if track.id in event.tracks)
    return replace(clip, name=event.id, tracks=tracks or clip.tracks)


class _Motion:
    """A judged event: the scores of its people, and their windows above the calm level."""

    def __init__(self, detector: Detector, event: Record, clip: Clip) -> None:
        self.event, self._fps = event, clip.rate()
        index, _ = cut(clip, detector.view_settings, detector.skeleton)
        parts = (slice(first, first + BATCH) for first in range(0, len(index), BATCH))
        scored = [detector.score_windows(index.windows(part)) for part in parts]
        self.scores = WindowScores.join(scored, detector.columns)
        """Beside the exceptions so far."""
        self._rules = RULES
        # an overloaded camera was judged by the frames it had: all windows count if none does
        if not (peak := self.highest(self.scores)):
            self._rules = replace(self._rules, max_interpolated=1.0)
            peak = self.highest(self.scores)
        self._needed = min(peak, GUARDED * event.threshold)
        calm = self._rules.release * min(peak, event.threshold)
        self._rows = np.flatnonzero(calm <= self.scores.A) if peak else np.arange(0)
        self._found = index.completed(self._rows)
        self.windows = index.windows(self._rows)

    def exception(self, detector: Detector, rows: NDArray[np.int64]) -> MotionException | None:
        """The exception that some of its windows make; None without any."""
        if not len(rows):
            return None
        found, windows = self._found.part(rows), self.windows.part(rows)
        return MotionException.of_windows(detector, self.event, found, windows)

    def highest(self, scores: WindowScores) -> float:
        """The highest limit at which it is raised; 0 if at none."""
        peaks = peaks_of(scores, self._fps, self._rules)
        return peaks[0].limit if peaks else 0.0

    def beside(self, detector: Detector, exception: MotionException) -> WindowScores:
        """Its scores with one more exception."""
        A = self.scores.A.copy()
        A[self._rows] = Excuse(detector, [exception]).lowered(
            A[self._rows], self._found, self.windows
        )
        return replace(self.scores, A=A)

    def is_hidden_by(self, detector: Detector, exception: MotionException | None) -> bool:
        """True if one more exception takes it below the limit up to which it has to be raised."""
        if exception is None:
            return False
        return self.highest(self.beside(detector, exception)) < (1 - ROUNDING) * self._needed

    def is_spared_by(self, detector: Detector, exception: MotionException | None) -> bool:
        """True if one more exception lowers no window of it below that limit."""
        if exception is None:
            return True
        after = self.beside(detector, exception).A
        return bool((after >= np.minimum(self.scores.A, self._needed)).all())
