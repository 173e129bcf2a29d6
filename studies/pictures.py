"""Draw the pictures of the paper: traversal, lowpass, reconstruction, timelines.

    python -m studies pictures traversal people -o traversal.png
    python -m studies pictures lowpass people -o lowpass.png --K 8 48 256
    python -m studies pictures reconstruction people -o reconstruction.png --table errors.csv
    python -m studies pictures timelines people --model model.safetensors -o timelines

`traversal`: what the first two principal components do to a standing and to a moving person; the
components come from the training clips, the people from normal frames of the test clips, and the
unchanged person is grey. `lowpass`: how a small number of components removes noise from a moving
person; the noise is Gaussian, on coordinates whose spread in y is 1. `reconstruction`: the mean
squared error over all test windows between the reconstruction of the noisy window and the clean
one. `timelines`: scores of the best and the worst separated test clips, into a directory.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.cli.terminal import (
    print_table,
    progress_bars,
    say,
    write_table,
)
from stepvad.config import Config
from stepvad.errors import DataError, Report, silent
from stepvad.evaluation import baselines, metrics, protocol
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.protocol import ScoredClip
from stepvad.formats import file_stem
from stepvad.formats.labels import FrameLabels
from stepvad.model.footage import Footage
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.model.scoring import BATCH
from stepvad.poses import Clip, Track
from stepvad.report.plots import draw_timeline
from stepvad.skeletons import Skeleton
from stepvad.windows.runs import WindowIndex
from stepvad.windows.views import ViewSettings
from studies import fits
from studies.plots.curves import AxisLabels, Series, draw_curves
from studies.plots.looks import OTHERS, LineStyle
from studies.plots.sequences import SequenceRow, draw_sequences

BOTTLENECKS = (8, 48, 256)
"""Components in the paper's picture: too few, the paper's choice, too many."""
SHOWN_K = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384)
"""Numbers of components in the printed table; a file has them all."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fits.parser_of(__doc__)
    parser.add_argument("name", choices=PICTURES)
    parser.add_argument("data", type=Path, help="data set: poses under pose, labels under gt")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--T", type=int, default=12, help="frames in a window")
    parser.add_argument("--K", type=int, nargs="+", help="components")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    parser.add_argument("--table", type=Path, help="of `reconstruction`: .csv, or Markdown")
    parser.add_argument("--model", type=Path, help="of `timelines`")
    parser.add_argument("--clips", type=int, default=6, help="of `timelines`")
    given = parser.parse_args(arguments)
    PICTURES[given.name](given)


def traversal(given: Namespace) -> None:
    """Draw what the first two principal components do to a standing and to a moving person."""
    T, K, output = given.T, given.K[0] if given.K else 48, given.output
    config, dataset = Config(T=T, K=K), open_dataset(given.data)
    with progress_bars() as report:
        space, footage = fit_space(dataset, config, report)
    space = narrowed(space, K)
    people = normal_footage(dataset, config, footage.skeleton)
    chosen = choose_people(people.index, footage.skeleton, space)
    rows = []
    for name, person in zip(("standing", "moving"), chosen, strict=True):
        (still,) = traverse(space, person.x, 0, [0.0])
        for component in (0, 1):
            moved = traverse(space, person.x, component, MULTIPLES)
            rows.append(
                SequenceRow(f"{name}\nPC {component + 1}", moved, still[None].repeat(len(moved), 0))
            )
    columns = ["0 σ" if multiple == 0 else f"{multiple:+g} σ" for multiple in MULTIPLES]
    caption = f"first, middle and last of {T} frames, light to dark; grey: 0 σ"
    draw_sequences(rows, columns, output, skeleton=footage.skeleton, caption=caption)
    standing, moving = (f"{person.way:.2f}" for person in chosen)
    say(f"in {T} frames, standing goes {standing} heights of the body, moving {moving}")
    print(output)


def lowpass(given: Namespace) -> None:
    """Draw how a small number of components removes noise from a moving person."""
    T, output = given.T, given.output
    config, dataset = Config(T=T), open_dataset(given.data)
    with progress_bars() as report:
        space, footage = fit_space(dataset, config, report)
    people = normal_footage(dataset, config, footage.skeleton)
    rank = len(space.Lambda_K)
    usual = narrowed(space, min(config.K, rank))
    _, person = choose_people(people.index, footage.skeleton, usual)
    noises = (0.0, 0.1, 0.2, 0.3, 0.5)
    rows = [
        SequenceRow(
            "noisy\nwindow" if bottleneck is None else f"K = {bottleneck}",
            low_pass(space, person.x, noises, bottleneck, seed=given.seed),
        )
        for bottleneck in (None, *(given.K or [k for k in BOTTLENECKS if k <= rank]))
    ]
    columns = ["no noise" if size == 0 else f"noise {size:g}" for size in noises]
    caption = f"first, middle and last of {T} frames, moved apart; noise per spread of y"
    draw_sequences(rows, columns, output, skeleton=footage.skeleton, caption=caption, apart=1.0)
    print(output)


def reconstruction(given: Namespace) -> None:
    """Draw how well K components reconstruct a window, at several noise levels."""
    T, output = given.T, given.output
    config, dataset = Config(T=T), open_dataset(given.data)
    with progress_bars() as report:
        space, train = fit_space(dataset, config, report)
        test = Footage.from_clips(
            (clip for clip, _ in dataset.test_clips()), [ViewSettings(config)], train.skeleton
        )
        windows = (windows.x for windows in test.batches("errors", report))
        errors = reconstruction_errors(space, windows, NOISES, seed=given.seed)
    _draw_errors(errors, NOISES, output, f"{dataset.name}, T = {T}")
    columns = ["K", *(f"noise {size:g}" for size in NOISES)]
    rows = [[str(k + 1), *(f"{e:.6f}" for e in column)] for k, column in enumerate(errors.T)]
    if given.table is not None:
        write_table(columns, rows, given.table)
    print_table(
        f"mean squared error of {len(test):,} test windows of {dataset.name}, T = {T}",
        columns,
        [rows[k - 1] for k in sorted({*SHOWN_K, len(rows)}) if k <= len(rows)],
    )


def timelines(given: Namespace) -> None:
    """Draw the scores of test clips over time: the best and the worst separated clips."""
    output = given.output
    output.mkdir(parents=True, exist_ok=True)
    with progress_bars() as report:
        scored = protocol.score_clips(
            baselines.load(given.model), open_dataset(given.data), report=report
        )
    rows = []
    for place, (clip, auroc) in enumerate(best_and_worst(scored, given.clips), start=1):
        name, classes = clip.scores.clip, ", ".join(clip.labels.classes)
        words = f"{name} ({classes})" if classes else name
        picture = output / f"{place}-{file_stem(name)}.png"
        title = f"{words}: AUROC {100 * auroc:.1f} %"
        draw_timeline(clip.scores, picture, abnormal=clip.labels.abnormal, title=title)
        rows.append([f"{100 * auroc:.1f}", name, classes, str(picture)])
    print_table("clips, best first (%)", ["AUROC", "clip", "classes", "picture"], rows)


def _draw_errors(
    errors: NDArray[np.float64], noises: Sequence[float], path: Path, title: str
) -> None:
    places = np.arange(1.0, errors.shape[1] + 1)
    looks = [LineStyle(OTHERS[number % len(OTHERS)]) for number in range(len(noises))]
    series = {
        "no noise" if size == 0 else f"noise {size:g}": Series(
            places, error, np.zeros_like(places), look=look, mark=_lowest(error)
        )
        for size, error, look in zip(noises, errors, looks, strict=True)
    }
    limits = float(errors[-1].min()) / 20, 1.5 * float(errors.max())
    draw_curves(
        series,
        path,
        AxisLabels("components kept, K", "mean squared error", "log2", "log", limits),
        title=f"{title} (dot: lowest error)",
    )


def _lowest(error: NDArray[np.float64]) -> float | None:
    """The K with the lowest error, or None if it is the largest."""
    best = int(error.argmin()) + 1
    return best if best < len(error) else None


PICTURES = {one.__name__: one for one in (traversal, lowpass, reconstruction, timelines)}

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
    footage = Footage.from_clips(dataset.train_clips(), [ViewSettings(config)])
    D = 2 * footage.skeleton.V * config.T
    rows = (w.x.reshape(len(w), D) for w in footage.batches("components", report))
    return PCSpace.fit(Moments.measure(rows, D), None), footage


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
    return Footage.from_clips(normal, [ViewSettings(config)], skeleton)


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
    T = index.sampling.T
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
    confidence = index.confidence[index.start[:, None] + np.arange(index.sampling.T)].mean(axis=1)
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
