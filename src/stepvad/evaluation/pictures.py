"""Data behind the paper's pictures: PC-space at work, and the best and worst scored clips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.evaluation import metrics
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.protocol import ScoredClip
from stepvad.formats.labels import FrameLabels
from stepvad.model.footage import BATCH, Footage
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.poses import Clip, Track
from stepvad.progress import Report, silent
from stepvad.skeletons import Skeleton
from stepvad.windows import WindowIndex

MULTIPLES = (-3.0, -1.5, 0.0, 1.5, 3.0)
"""Steps of a traversal, in standard deviations of a component."""
NOISES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Gaussian noise on standardised coordinates, from the paper's table on jitter (Supp. D)."""
STATIC = (0.0, 0.05)
MOVING = (0.85, 0.95)
"""Quantiles of distance for people who stand and who move; the farthest are tracker errors."""


@dataclass(frozen=True, slots=True, eq=False)
class PicturedWindow:
    """One window `x (2, V, T)`, and the distance its person covers in body heights."""

    x: NDArray[np.float32]
    way: float


def fit_space(dataset: Dataset, config: Config, report: Report = silent) -> tuple[PCSpace, Footage]:
    """The whitened PC-space of the training windows with all components, and the footage."""
    footage = Footage.read(dataset.train_clips(), config)
    D = 2 * footage.skeleton.V * config.T
    rows = (w.x.reshape(len(w), D) for w in footage.batches("components", report))
    return PCSpace.fit(Moments.of(rows, D), None), footage


def narrowed(space: PCSpace, K: int) -> PCSpace:
    """The first K components of a space."""
    if not 1 <= K <= len(space.Lambda_K):
        raise DataError(
            f"K: expected 1 to {len(space.Lambda_K)}, the rank of the windows, got {K}",
            hint="choose a smaller K",
        )
    return PCSpace(space.mu, space.W_K[:, :K], space.Lambda_K[:K], space.whitening)


def normal_footage(dataset: Dataset, config: Config, skeleton: Skeleton) -> Footage:
    """The normal frames of all test clips, a source of people not used in the fit."""
    normal = (normal_part(clip, labels) for clip, labels in dataset.test_clips())
    return Footage.read(normal, config, skeleton)


def normal_part(clip: Clip, labels: FrameLabels) -> Clip:
    """The same clip without the poses of abnormal frames."""
    tracks = []
    for track in clip.tracks:
        kept = ~labels.abnormal[track.frames]
        tracks.append(
            Track(track.id, track.frames[kept], track.keypoints[kept], track.confidence[kept])
        )
    return Clip(clip.name, clip.fps, clip.n_frames, tuple(tracks), clip.skeleton)


def ways(index: WindowIndex, skeleton: Skeleton) -> NDArray[np.float64]:
    """Distance of each window's person from first to last frame, in body heights `(N,)`.

    Measured at the middle of the hips, or of all joints if the skeleton has no hips.
    """
    T = index.config.T
    hips = [v for v, name in enumerate(skeleton.joints) if name.endswith("_hip")]
    centre = index.keypoints[:, hips or slice(None)].mean(axis=1, dtype=np.float64)  # (n, 2)
    tall = np.ptp(index.keypoints[..., 1], axis=1).astype(np.float64)
    height = np.median(tall[index.start[:, None] + np.arange(T)], axis=1)
    way = np.linalg.norm(centre[index.start + T - 1] - centre[index.start], axis=1)
    return way / np.maximum(height, 1e-6)


def choose_people(
    index: WindowIndex, skeleton: Skeleton, space: PCSpace
) -> tuple[PicturedWindow, PicturedWindow]:
    """One standing and one moving person, each the most typical in PC-space.

    Both are chosen from the more confident half of all windows.
    """
    way = ways(index, skeleton)
    confidence = index.confidence[index.start[:, None] + np.arange(index.config.T)].mean(axis=1)
    sure = np.flatnonzero(confidence >= np.median(confidence))
    return _most_usual(index, way, sure, STATIC, space), _most_usual(
        index, way, sure, MOVING, space
    )


def _most_usual(
    index: WindowIndex,
    way: NDArray[np.float64],
    rows: NDArray[np.int64],
    quantiles: tuple[float, float],
    space: PCSpace,
) -> PicturedWindow:
    """The row nearest to the mean in PC-space, among rows with a distance between two quantiles."""
    low, high = np.quantile(way[rows], quantiles)
    rows = rows[(way[rows] >= low) & (way[rows] <= high)]
    pi_x = [
        np.linalg.norm(space.project(index.windows(rows[first : first + BATCH]).x), axis=1)
        for first in range(0, len(rows), BATCH)
    ]
    row = rows[np.concatenate(pi_x).argmin()]
    return PicturedWindow(index.windows(np.array([row])).x[0], float(way[row]))


def traverse(
    space: PCSpace, x: NDArray[np.float32], component: int, multiples: Sequence[float]
) -> NDArray[np.float32]:
    """The window `x (2, V, T)` moved along one component of PC-space, `(len(multiples), 2, V, T)`.

    A multiple of 0 gives the window's reconstruction from the components.
    """
    step = np.zeros((len(multiples), len(space.Lambda_K)), dtype=np.float32)
    step[:, component] = np.array(multiples) * np.sqrt(space.Lambda_K[component])
    moved = space.project(x[None]) + step / space.scale
    return space.reconstruct(moved, _shape(x))


def low_pass(
    space: PCSpace, x: NDArray[np.float32], noises: Sequence[float], K: int | None, *, seed: int
) -> NDArray[np.float32]:
    """The window `x (2, V, T)` with noise of each size, reconstructed from K components.

    K = None returns the noisy windows unchanged. All sizes scale the same draw.
    """
    drawn = np.random.default_rng(seed).standard_normal(x.shape, dtype=np.float32)
    noisy = np.stack([x + np.float32(size) * drawn for size in noises])
    if K is None:
        return noisy
    through = narrowed(space, K)
    return through.reconstruct(through.project(noisy), _shape(x))


def reconstruction_errors(
    space: PCSpace, windows: Iterator[NDArray[np.float32]], noises: Sequence[float], *, seed: int
) -> NDArray[np.float64]:
    """Mean squared error between clean windows and reconstructions of noisy ones, `(S, rank)`.

    One row per noise size, one column per K = 1, 2, … With orthonormal components and noise n, the
    error per coordinate is Σ_{j≤K} (w_jᵀ n)² + |x - μ|² - Σ_{j≤K} (w_jᵀ (x - μ))².
    """
    rng = np.random.default_rng(seed)
    D, rank = space.W_K.shape
    kept, noise, total, n = np.zeros(rank), np.zeros(rank), 0.0, 0
    for batch in windows:  # (n, D)
        centred = batch.reshape(len(batch), D) - space.mu
        drawn = rng.standard_normal(centred.shape, dtype=np.float32)
        kept += np.square(centred @ space.W_K, dtype=np.float64).sum(axis=0)
        noise += np.square(drawn @ space.W_K, dtype=np.float64).sum(axis=0)
        total += float(np.square(centred, dtype=np.float64).sum())
        n += len(batch)
    if not n:
        raise DataError("windows: expected at least one, got none", hint="add test clips")
    lost = np.maximum(total - np.cumsum(kept), 0)
    return np.stack([size**2 * np.cumsum(noise) + lost for size in noises]) / (n * D)


def separation(clip: ScoredClip) -> float:
    """AUROC of a clip's online scores over its counted, scored frames; NaN for one class."""
    frames = clip.scores.frames
    chosen = clip.labels.counted & ~np.isnan(frames)
    return metrics.auroc(clip.labels.abnormal[chosen], frames[chosen])


def best_and_worst(clips: Sequence[ScoredClip], n: int) -> list[tuple[ScoredClip, float]]:
    """The n / 2 best and n / 2 worst separated clips, best first, with their separations."""
    told = [(clip, separation(clip)) for clip in clips]
    ranked = sorted(
        ((clip, value) for clip, value in told if not np.isnan(value)),
        key=lambda pair: (-pair[1], pair[0].scores.clip),
    )
    if not ranked:
        raise DataError(
            "timelines: expected a test clip with normal and abnormal frames, got none",
            hint="scores within one clip need both",
        )
    n_best = -(-n // 2)
    worst = ranked[max(n_best, len(ranked) - n // 2) :]
    return ranked[:n_best] + worst


def _shape(x: NDArray[np.float32]) -> tuple[int, int, int]:
    two, V, T = x.shape
    return two, V, T
