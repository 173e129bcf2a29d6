"""Frame-by-frame scoring, equal to scoring the finished clip (Sec. 4.1, online)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.model.scoring import WindowScores
from stepvad.poses import Pose
from stepvad.skeletons import COCO17, Skeleton
from stepvad.windows.body import Repairs, prepare
from stepvad.windows.live import WindowAssembler
from stepvad.windows.views import CompletedWindows, Windows

Excuse = Callable[[WindowScores, CompletedWindows], WindowScores]
"""Lowers the scores of some windows in pixels."""


class Stream:
    """One camera, scored as its frames arrive.

    A window is scored when its last frame arrives. If a person is missed for at most T frames, the
    windows of those frames are delayed until the person is seen again; nothing else is delayed.
    `fps` is the camera's frame rate; a model that cuts windows by the clock needs it.
    Memory grows with the number of people in view, not with time.

    Examples:
        >>> stream = Stream(detector, fps=clip.fps)
        >>> scores = [stream.update(frame, poses) for frame, poses in clip.by_frame()]
        >>> scores[-1].A.shape == scores[-1].track_id.shape
        True
    """

    def __init__(
        self,
        detector: Detector,
        *,
        skeleton: Skeleton = COCO17,
        fps: float | None = None,
        excuse: Excuse | None = None,
    ) -> None:
        """`excuse` lowers the scores of motion that people marked as normal."""
        self.detector = detector
        self.skeleton, self.excuse = skeleton, excuse
        self.counts = Repairs()
        self.flat_windows = 0
        self.duplicate_poses = 0
        self._frame = -1
        self._tracks = WindowAssembler(detector.view_settings, detector.skeleton, fps)

    def __repr__(self) -> str:
        """The stream in one line."""
        return f"Stream({self.detector}, frame={self._frame}, tracks={len(self._tracks)})"

    @property
    def span(self) -> int:
        """Frames of the camera that a window covers."""
        return self._tracks.sampling.span

    def update(self, frame: int, poses: Iterable[Pose]) -> WindowScores:
        """Score the windows that this frame completes.

        Windows of missed frames have a smaller `frame`. If two poses share a track id, the first
        is used.
        """
        return update_all([(self, frame, poses)])[0]

    def push(self, frame: int, poses: Iterable[Pose]) -> Windows:
        """Return the windows that this frame completes, unscored."""
        windows = Windows.completed(self._collect(frame, poses), self._tracks.views)
        self.flat_windows += int(windows.flat.sum())
        return windows

    def _collect(self, frame: int, poses: Iterable[Pose]) -> CompletedWindows:
        """The windows that this frame completes, in pixels."""
        if frame <= self._frame:
            raise DataError(
                f"frame {frame}: expected a frame after {self._frame}, got {frame}",
                hint="feed frames in order, each once",
            )
        distinct = self._distinct(poses)
        keypoints, confidence, mended = prepare(
            np.array([p.keypoints for p in distinct]).reshape(-1, self.skeleton.V, 2),
            np.array([p.confidence for p in distinct]).reshape(-1, self.skeleton.V),
            self.skeleton,
            self.detector.skeleton,
            self.detector.config.joints,
            self.detector.model.noise,
        )
        self._frame = frame
        ids = np.array([pose.track_id for pose in distinct], dtype=np.int64)
        # the assembler counts for all of time: repairs of this frame are the difference
        filled, jumps = self._tracks.filled_poses, self._tracks.jumps
        found = self._tracks.push(frame, ids, keypoints, confidence)
        filled, jumps = self._tracks.filled_poses - filled, self._tracks.jumps - jumps
        self.counts += mended
        if filled or jumps:
            self.counts += Repairs(filled_poses=filled, jumps=jumps)
        return found

    def _distinct(self, poses: Iterable[Pose]) -> list[Pose]:
        poses = list(poses)
        distinct: dict[int, Pose] = {}
        for pose in poses:
            if len(pose.keypoints) != self.skeleton.V:
                raise DataError(
                    f"track {pose.track_id}: expected {self.skeleton.V} joints "
                    f"({self.skeleton.name}), got {len(pose.keypoints)}",
                    hint="give the stream the skeleton of its poses",
                )
            distinct.setdefault(pose.track_id, pose)
        self.duplicate_poses += len(poses) - len(distinct)
        return list(distinct.values())


Update = tuple[Stream, int, Iterable[Pose]]
"""A camera's stream, the number of a frame, and the poses in it."""


def update_all(updates: Sequence[Update]) -> list[WindowScores]:
    """Score frames of several cameras in one call; the results equal those of `update`.

    Examples:
        >>> doors = [Stream(detector, fps=25), Stream(detector, fps=25)]
        >>> [len(scores.A) for scores in update_all([(door, 0, []) for door in doors])]
        [0, 0]
    """
    found = []
    for result in update_each(updates):
        if isinstance(result, Exception):
            raise result
        found.append(result)
    return found


def update_each(updates: Sequence[Update]) -> list[WindowScores | Exception]:
    """Like `update_all`, but a frame that fails gives its error and the others are still scored."""
    if not updates:
        return []
    detector = updates[0][0].detector
    if any(stream.detector is not detector for stream, _, _ in updates):
        raise ConfigError(
            "streams: expected one detector for all, got several",
            hint="score the cameras of each detector together",
        )
    # each camera's windows, or its error; then one call scores the windows of all
    found: list[CompletedWindows | Exception] = []
    for stream, frame, poses in updates:
        try:
            found.append(stream._collect(frame, poses))
        except Exception as error:
            found.append(error)
    scored = iter(_scored(detector, [one for one in found if not isinstance(one, Exception)]))
    # scores go back to the streams in the order of the updates
    results: list[WindowScores | Exception] = []
    for (stream, _, _), one in zip(updates, found, strict=True):
        if isinstance(one, Exception):
            results.append(one)
        elif isinstance(result := next(scored), Exception):
            results.append(result)
        else:
            scores, n_flat = result
            stream.flat_windows += n_flat
            results.append(stream.excuse(scores, one) if stream.excuse else scores)
    return results


ScoredWindows = tuple[WindowScores, int]
"""The scores of a frame's windows, and how many of them are flat."""


def _scored(
    detector: Detector, found: Sequence[CompletedWindows]
) -> Sequence[ScoredWindows | Exception]:
    """Score the windows of several streams in one call; if that fails, score each separately."""
    if not found:
        return []
    try:
        windows = Windows.completed(CompletedWindows.joined(found), detector.view_settings)
        scores = detector.score_windows(windows)
    except Exception as error:
        if len(found) == 1:
            return [error]
        return [one for part in found for one in _scored(detector, [part])]
    parts, end = [], 0
    for of_stream in found:
        part = slice(end, end := end + len(of_stream.frame))
        parts.append((scores.part(part), int(windows.flat[part].sum())))
    return parts
