"""Frame by frame, the same windows and scores as on the finished clip (Sec. 4.1, online)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.poses import Pose
from stepvad.scoring import WindowScores
from stepvad.skeletons import COCO17, Skeleton
from stepvad.windows import Counts, Run, WindowIndex, extend, prepare


class Stream:
    """One camera, scored as its frames arrive.

    A window is scored when its last frame arrives. Where a person was missed for at most T frames,
    the windows of the missed frames come late, with the frame that shows the person again; nothing
    else ever waits. Memory grows with the people in view, not with time.
    """

    def __init__(self, detector: Detector, *, skeleton: Skeleton = COCO17) -> None:
        if detector.config.drop_last_window:
            raise ConfigError(
                "drop_last_window: expected False for a stream, got True",
                hint="a stream cannot know which window of a track is the last",
            )
        self.detector = detector
        self.skeleton = skeleton
        self.counts = Counts()
        self.flat_windows = 0
        self.duplicate_poses = 0
        self._frame = -1
        self._tails: dict[int, Run] = {}
        """The latest poses of each track, as many as its next window needs."""

    def update(self, frame: int, poses: Iterable[Pose]) -> WindowScores:
        """Scores of the windows that this frame completes.

        Those of missed frames have a smaller `frame`; of two poses with one track id the first
        counts.
        """
        if frame <= self._frame:
            raise DataError(
                f"frame {frame}: expected a frame after {self._frame}, got {frame}",
                hint="feed frames in order, each once",
            )
        T = self.detector.config.T
        runs = self._extend(frame, self._distinct(poses))
        self._frame = frame
        self._tails = {
            id_: tail for id_, tail in self._tails.items() if frame - tail.last_frame <= T
        }
        index = WindowIndex.of(runs, self.detector.config, self.detector.skeleton.V)
        windows = index.windows(slice(None))
        self.flat_windows += int(windows.flat.sum())
        return self.detector.score_windows(windows)

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

    def _extend(self, frame: int, poses: list[Pose]) -> list[Run]:
        """Append the poses to their tracks; the runs hold the new windows and no others."""
        if not poses:
            return []
        keypoints, confidence, mended = prepare(
            np.stack([pose.keypoints for pose in poses]),
            np.stack([pose.confidence for pose in poses]),
            self.skeleton,
            self.detector.skeleton,
        )
        self.counts += mended
        return [
            self._append(Run(pose.track_id, frame, keypoints[i : i + 1], confidence[i : i + 1]))
            for i, pose in enumerate(poses)
        ]

    def _append(self, pose: Run) -> Run:
        T = self.detector.config.T
        tail = self._tails.get(pose.track_id)
        if tail is not None and pose.first_frame - tail.last_frame > T + 1:
            tail = None  # more than T frames missing
        run, n_new = extend(tail, pose, np.array([pose.first_frame]))
        self.counts += Counts(filled_poses=n_new - 1)
        self._tails[pose.track_id] = run.part(-max(T - 1, 1), len(run))
        return run.part(-(n_new + T - 1), len(run))
