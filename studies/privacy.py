"""What the centroids of a model of usual motion tell of the footage that it was fitted on.

    python -m studies privacy HR-ShanghaiTech --split hr
    python -m studies privacy HR-Avenue --split hr --method usual-place

Prints, of each view: the clusters of a single track, and of fewer than five, which a model leaves
out; how far its centroids are from the nearest window that it was fitted on; and the AUROC with
which a window of the training clips is told from one of clips that were held out, by its distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.cli.terminal import print_table
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation import custom
from stepvad.evaluation.comparison import Trials, experiments
from stepvad.evaluation.metrics import auroc
from stepvad.model.footage import Footage
from stepvad.model.scoring import BATCH, View
from stepvad.model.usual import (
    CENTROIDS,
    FEWEST_TRACKS,
    FOLDS,
    SAMPLE,
    Centroids,
    k_means,
)
from stepvad.poses import Clip
from studies import fits
from studies.usual import Division

COLUMNS = (
    *("view", "centroids", "clusters of one track", f"of fewer than {FEWEST_TRACKS}"),
    *("to the nearest window", "exact copies", "told from held-out"),
)
EXACT = 5e-4
"""Of a body's height, or of a deviation: two windows that are closer are the same."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("data", type=Path, help="poses under pose, labels under gt")
    parser.add_argument("--method", choices=("usual", "usual-place"), default="usual")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="full", help="full, hr, st, ub or validation")
    parser.add_argument("--fps", type=float, help="rate of clips that do not state one")
    given = parser.parse_args(arguments)
    division = Division.of(custom.opened(given.data, split=given.split), given.fps)
    trials = Trials(seeds=(given.seed,), fps=given.fps)
    (experiment,) = experiments([given.method], Config(), trials)[given.method]
    detector = experiment.fit(division.dataset)
    assert isinstance(detector, Detector)
    train = _Sample.of(detector, [*division.dataset.train_clips()])
    held = _Sample.of(detector, [clip for clip, _ in division.held_out or division.test])
    views = zip(detector.views, train.z, train.rows, held.z, strict=True)
    print_table("what centroids tell", COLUMNS, [_told(train, *view) for view in views])


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Windows of some clips, evenly spaced: what each view sees of them."""

    track: NDArray[np.int64]
    fold: NDArray[np.int64]
    z: list[NDArray[np.float32]]
    """Points of each view, `(n, K)`, and their rows among the windows, `(n,)`."""
    rows: list[NDArray[np.int64]]
    height: float
    """Mean height of a standardised body."""

    @classmethod
    def of(cls, detector: Detector, clips: Sequence[Clip]) -> _Sample:
        footage = Footage.from_clips(clips, detector.view_settings, detector.skeleton)
        index, views = footage.index, detector.views
        every = np.linspace(0, len(index), min(len(index), SAMPLE), endpoint=False, dtype=np.int64)
        z: list[list[NDArray[np.float32]]] = [[] for _ in views]
        rows: list[list[NDArray[np.int64]]] = [[] for _ in views]
        heights = []
        for first in range(0, len(every), BATCH):
            windows = index.windows(every[first : first + BATCH])
            heights.append(np.ptp(windows.views[0].windows.x[:, 1], axis=1).max(axis=1))
            for number, (own, view) in enumerate(zip(windows.views, views, strict=True)):
                z[number].append(view.model.space.project(own.windows.x))
                rows[number].append(first + own.rows)
        track = index.track_id[every]
        fold = np.repeat(np.arange(len(footage.n_tracks)) % FOLDS, footage.n_tracks)[track]
        points, which = [np.concatenate(one) for one in z], [np.concatenate(one) for one in rows]
        return cls(track, fold, points, which, float(np.concatenate(heights).mean()))


def _told(
    train: _Sample,
    view: View,
    z: NDArray[np.float32],
    rows: NDArray[np.int64],
    held: NDArray[np.float32],
) -> list[str]:
    """One line of the table."""
    learned, space = view.model.learned, view.model.space
    assert isinstance(learned, Centroids)
    # tracks in each cluster of the sample, before any is left out
    tracks = np.concatenate(
        [_tracks(z[own], train.track[rows[own]]) for own in _folds(train.fold[rows])]
    )
    # from each centroid to the nearest window: a mean over joints, or over numbers
    is_pose = view.config.view == "pose"
    unit = train.height * (len(space.mu) / 2) ** 0.5 if is_pose else z.shape[1] ** 0.5
    scale = space.scale if is_pose else np.float32(1)
    near = Centroids(z * scale, rows).distances(learned.points * scale) / unit
    seen, unseen = learned.distances(z), learned.distances(held)
    is_seen = np.arange(len(seen) + len(unseen)) < len(seen)
    told = auroc(is_seen, -np.concatenate([seen, unseen]))
    return [
        view.config.view_name,
        f"{len(learned)}",
        f"{(tracks == 1).mean():.1%}",
        f"{(tracks < FEWEST_TRACKS).mean():.1%}",
        f"{np.median(near):.1%} of a {'height' if is_pose else 'deviation'}",
        f"{(near < EXACT).mean():.1%}",
        f"{100 * told:.1f}",
    ]


def _folds(fold: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    return [fold == number for number in range(FOLDS)]


def _tracks(z: NDArray[np.float32], track: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of tracks in each of the clusters of one fold."""
    points, label = k_means(z, CENTROIDS // FOLDS, np.random.default_rng(0))
    pairs = np.unique(np.column_stack([label, track]), axis=0)
    return np.bincount(pairs[:, 0], minlength=len(points))
