"""Trivial scores that every method is printed beside: what they reach is not a method's merit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.spatial import KDTree

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.evaluation.datasets import Dataset
from stepvad.model import scoring
from stepvad.model.scoring import Placement, Scores
from stepvad.poses import Clip
from stepvad.windows.runs import Run, clip_runs
from stepvad.windows.views import ViewSettings

logger = logging.getLogger(__name__)

Motion = Literal["speed", "place"]
Trivial = Literal["persons", "confidence", "random", Motion]

TITLES: Mapping[Trivial, str] = {
    "persons": "number of persons",
    "confidence": "minus confidence",
    "random": "random",
    "speed": "speed alone",
    "place": "place alone",
}
"""All trivial scores, with their names in tables."""
MOTION: tuple[Motion, ...] = ("speed", "place")
"""Those that need the poses; `place` needs training clips as well."""
RANDOM_DRAWS = 10
"""Draws of the random score; its metrics are their means."""
MAX_PLACES = 20_000
"""Places of training footage kept, evenly spread over its windows."""
LEAST_HEIGHT = 1.0
"""Height in pixels of a body with a single joint."""


def people_scored(scores: Scores, placement: Placement) -> NDArray[np.float32]:
    """Number of people with a score in each frame; NaN instead of 0."""
    people = np.zeros(scores.n_frames, dtype=np.float32)
    for frame, _ in scoring.person_scores(scores.windows, scores.T, placement=placement):
        people[frame] += 1
    people[people == 0] = np.nan
    return people


def random_draws(clips: Sequence[Scores]) -> Iterator[list[Scores]]:
    """The same windows with random scores, `RANDOM_DRAWS` times."""
    for draw in range(RANDOM_DRAWS):
        rng = np.random.default_rng(draw)
        sizes = [len(scores.windows) for scores in clips]
        drawn = [rng.standard_normal(size, dtype=np.float32) for size in sizes]
        yield [with_scores(one, values) for one, values in zip(clips, drawn, strict=True)]


def with_scores(scores: Scores, values: NDArray[np.float32]) -> Scores:
    """The same windows with other scores `(N,)`."""
    return replace(scores, windows=replace(scores.windows, A=values))


@dataclass(frozen=True, slots=True, eq=False)
class BodyWindows:
    """The body as a whole in each window of T frames; arrays of N windows.

    `speed (N,)`: from first to last frame, of the centre of the joints, in body heights a second,
    or a frame if the clip's rate is unknown. `place (N, 3)`: x and y of the foot, the middle of the
    lower edge of the body's box, and log of the height, mean over the window.
    """

    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    speed: NDArray[np.float32]
    place: NDArray[np.float32]

    @classmethod
    def of_clip(cls, clip: Clip, T: int) -> BodyWindows:
        """All windows of a clip; missing joints do not count."""
        runs = [
            run
            for run, _ in clip_runs(clip, [ViewSettings(Config(T=T))], clip.skeleton)
            if len(run) >= T
        ]
        parts = [cls._of_run(run, T, clip.fps or 1.0) for run in runs]
        nothing, none = np.empty(0, np.int64), np.empty((0, 3), np.float32)
        return cls(
            np.concatenate([nothing, *(part.track_id for part in parts)]),
            np.concatenate([nothing, *(part.frame for part in parts)]),
            np.concatenate([none[:, 0], *(part.speed for part in parts)]),
            np.concatenate([none, *(part.place for part in parts)]),
        )

    @classmethod
    def _of_run(cls, run: Run, T: int, fps: float) -> BodyWindows:
        # the box of the body in each frame, (n, 2), its height, foot and centre
        low, high = run.keypoints.min(axis=1), run.keypoints.max(axis=1)
        height = np.maximum(high[:, 1] - low[:, 1], LEAST_HEIGHT)
        foot = np.stack([(low[:, 0] + high[:, 0]) / 2, high[:, 1]], axis=1)
        centre = run.keypoints.mean(axis=1)
        # the same over each window of T frames, by its last frame
        mean_height = sliding_window_view(height, T).mean(axis=1)
        moved = np.linalg.norm(centre[T - 1 :] - centre[: len(run) - T + 1], axis=1)
        place = sliding_window_view(foot, T, axis=0).mean(axis=2)
        frame = np.arange(run.first_frame + T - 1, run.last_frame + 1)
        return cls(
            np.full(len(frame), run.track_id),
            frame,
            moved / mean_height * np.float32(fps / (T - 1)),
            np.column_stack([place, np.log(mean_height)]),
        )

    def at(self, scores: Scores) -> BodyWindows | None:
        """The windows that were scored, in their order; None if one of them is not a window."""
        rows = {key: row for row, key in enumerate(_keys(self.track_id, self.frame))}
        found = [rows.get(key) for key in _keys(scores.windows.track_id, scores.windows.frame)]
        if None in found:
            return None
        chosen = np.array(found, dtype=np.int64)
        return BodyWindows(
            self.track_id[chosen], self.frame[chosen], self.speed[chosen], self.place[chosen]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of people in training footage."""

    tree: KDTree
    scale: NDArray[np.float32]
    """Standard deviation of each coordinate in training footage, `(3,)`."""

    @classmethod
    def of_clips(cls, clips: Iterable[Clip], T: int) -> Places | None:
        """The places of all windows of T frames; None if there is no window."""
        parts = [BodyWindows.of_clip(clip, T).place for clip in clips]
        places = np.concatenate([np.empty((0, 3), np.float32), *parts])
        if not len(places):
            return None
        # coordinates in deviations, so that x, y and height count alike
        spread = places.std(axis=0)
        scale = np.where(spread > 0, spread, 1).astype(np.float32)
        kept = np.linspace(0, len(places) - 1, min(len(places), MAX_PLACES)).astype(np.int64)
        return cls(KDTree(places[kept] / scale), scale)

    def distances(self, place: NDArray[np.float32]) -> NDArray[np.float32]:
        """Distance of each place `(N, 3)` to the nearest one of training footage, `(N,)`."""
        distances, _ = self.tree.query(place / self.scale)
        return np.asarray(distances, dtype=np.float32)


def motions(
    clips: Sequence[Scores], dataset: Dataset, *, T: int | None = None
) -> list[dict[Motion, NDArray[np.float32]]]:
    """Speed and place of the scored windows of all test clips, `(N,)`, as far as they are known.

    They are of the last T frames of a window; None takes all. Scores of frames or single poses are
    not of windows, and get neither. Without training clips there is no `place`.
    """
    places = None
    if clips and (span := T or clips[0].T) > 1:
        try:
            places = Places.of_clips(dataset.train_clips(), span)
        except DataError as error:
            logger.info("%s: no score by place alone: %s", dataset.name, error.problem)
    found: list[dict[Motion, NDArray[np.float32]]] = []
    for scores, (clip, _) in zip(clips, dataset.test_clips(), strict=True):
        span = T or scores.T
        body = BodyWindows.of_clip(clip, span).at(scores) if span > 1 else None
        found.append({} if body is None else {"speed": body.speed})
        if body is not None and places is not None:
            found[-1]["place"] = places.distances(body.place)
    return found


def known(found: Sequence[Mapping[Motion, object]]) -> list[Trivial]:
    """The trivial scores that all clips have."""
    return [name for name in TITLES if name not in MOTION or all(name in one for one in found)]


def _keys(track: NDArray[np.int64], frame: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return zip(track.tolist(), frame.tolist(), strict=True)
