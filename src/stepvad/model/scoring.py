"""From energies to anomaly scores (Eq. 8), of one view or several, and from windows to frames.

The paper has one view, whose score is Eq. 8. The distances of several views to their nearest usual
motion are ranked among those of footage that the model has not seen. A young window, of a person
who has just come, scores differently from a whole one: it is ranked among windows of about as many
poses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from stepvad.config import Aggregation, Config, Runtime
from stepvad.errors import ConfigError, DataError, Progress, Report, silent
from stepvad.model.engines import EngineNetwork, Weights, fold
from stepvad.model.pcspace import PCSpace
from stepvad.model.usual import Centroids
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Repairs
from stepvad.windows.runs import Sampling, cut_in_pieces
from stepvad.windows.views import Pace, Views, ViewSettings, Windows, n_columns

Placement = Literal["latest", "center", "backtrack", "backtrack_max"]
Floor = Literal["global", "per_clip"]
Smoothing = Literal["filled", "scored"]
BATCH = 1024
"""Windows cut and scored at once; keeps memory from growing with the clip."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowScores:
    """Scores of N windows: `track_id`, last `frame`, confidence `c` and score `A`, all `(N,)`.

    `E (N, L)` are the energies standardised per noise scale, the fraction in Eq. 8. `seen (N,)` is
    the share of a window's poses that were seen, not interpolated: 1 unless stated. `lacking (N,)`
    is how many frames a window is short of the T of its clip, because its track is young: 0 unless
    stated, as it is in the scores of a clip.

    Examples:
        >>> scores = detector.score(clip).windows
        >>> worst = scores.A.argmax()  # its person and its last frame:
        >>> scores.track_id[worst] in {track.id for track in clip.tracks}
        True
    """

    track_id: NDArray[np.int64]
    frame: NDArray[np.int64]
    c: NDArray[np.float32]
    E: NDArray[np.float32]
    A: NDArray[np.float32]
    seen: NDArray[np.float32] = None  # type: ignore[assignment]  # becomes ones
    lacking: NDArray[np.int64] = None  # type: ignore[assignment]  # becomes zeros

    def __post_init__(self) -> None:
        """Take poses for seen, and windows for whole, unless stated otherwise."""
        if self.seen is None:
            object.__setattr__(self, "seen", np.ones(len(self.A), np.float32))
        if self.lacking is None:
            object.__setattr__(self, "lacking", np.zeros(len(self.A), np.int64))

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.A)

    def __repr__(self) -> str:
        """The scores in one line."""
        people = len(np.unique(self.track_id))
        highest = f", highest={self.A.max():.3g}" if len(self) else ""
        return f"WindowScores(N={len(self)}, tracks={people}{highest})"

    def part(self, rows: slice | NDArray[np.int64]) -> WindowScores:
        """The scores of some of the windows."""
        return WindowScores(
            self.track_id[rows],
            self.frame[rows],
            self.c[rows],
            self.E[rows],
            self.A[rows],
            self.seen[rows],
            self.lacking[rows],
        )

    def lengths(self, T: int) -> NDArray[np.int64]:
        """Number of frames that each window covers, `(N,)`: T or fewer, and none before frame 0."""
        return np.minimum(T - self.lacking, self.frame + 1)

    @classmethod
    def join(cls, parts: Sequence[WindowScores], L: int) -> WindowScores:
        """All parts in order."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(
            track_id=np.concatenate([nothing, *(part.track_id for part in parts)]),
            frame=np.concatenate([nothing, *(part.frame for part in parts)]),
            c=np.concatenate([np.empty(0, np.float32), *(part.c for part in parts)]),
            E=np.concatenate([np.empty((0, L), np.float32), *(part.E for part in parts)]),
            A=np.concatenate([np.empty(0, np.float32), *(part.A for part in parts)]),
            seen=np.concatenate([np.empty(0, np.float32), *(part.seen for part in parts)]),
            lacking=np.concatenate([nothing, *(part.lacking for part in parts)]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """A detector's scores of one clip.

    Examples:
        >>> scores = detector.score(clip)
        >>> scores.frames.shape == (clip.n_frames,) and scores.A.shape == scores.windows.frame.shape
        True
    """

    clip: str
    n_frames: int
    T: int
    """Frames of the clip that a window covers; `windows.lacking` says which cover fewer."""
    windows: WindowScores
    counts: Repairs
    """Repairs made before scoring."""
    flat_windows: int
    """Windows with too little spread to be scaled by it."""

    def __repr__(self) -> str:
        """The scores in one line."""
        return f"Scores({self.clip!r}, n_frames={self.n_frames}, T={self.T}, {self.windows})"

    @property
    def A(self) -> NDArray[np.float32]:
        """A(x) of every window, `(N,)`; higher is more abnormal."""
        return self.windows.A

    @property
    def frames(self) -> NDArray[np.float32]:
        """Online score of every frame, `(n_frames,)`: its worst person, NaN where there is none."""
        return frame_scores(self.windows, self.n_frames, self.T)


def score_clip(
    clip: Clip,
    views: Views,
    skeleton: Skeleton,
    score_windows: Callable[[Windows], WindowScores],
    *,
    report: Report = silent,
) -> Scores:
    """Score every window of a clip; memory beyond clip and scores does not grow with it."""
    parts: list[WindowScores] = []
    counts, flat = Repairs(), 0
    for index, mended in cut_in_pieces(clip, views, skeleton):
        counts += mended
        for first in range(0, len(index), BATCH):
            rows = slice(first, first + BATCH)
            windows = index.windows(rows)
            parts.append(replace(score_windows(windows), lacking=index.lacking(rows)))
            flat += int(windows.flat.sum())
        report(Progress("scoring", counts.poses, clip.n_poses, clip.name))
    return Scores(
        clip.name,
        clip.n_frames,
        Sampling.for_views(views, clip.fps).span,
        WindowScores.join(parts, n_columns(views)),
        counts,
        flat,
    )


def standardise_energies(
    energies: NDArray[np.float32], E_mean: NDArray[np.float64], E_var: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(f(π(x), σ_i) - Ē_i) / √Var(E_i), `(N, L)` (the fraction in Eq. 8)."""
    return ((energies - E_mean) / np.sqrt(E_var)).astype(np.float32)


def anomaly_score(
    E: NDArray[np.float32], c: NDArray[np.float32] | float, aggregation: Aggregation = "max"
) -> NDArray[np.float32]:
    """A(x) = c(x) max_i E_i, `(N,)`, from standardised energies `E (N, L)` (Eq. 8).

    Other aggregations as in Supp. Tables S6 and S7: the sum, the mean of the two or three largest,
    or the single scale with the given number.
    """
    return np.asarray(c * aggregate(E, aggregation), dtype=np.float32)


def aggregate(E: NDArray[np.float32], aggregation: Aggregation) -> NDArray[np.float32]:
    """One number per window from its L standardised energies."""
    match aggregation:
        case "max":
            return E.max(axis=1)
        case "sum":
            return E.sum(axis=1)
        case "top2" | "top3":
            largest = int(aggregation[-1])
            return np.sort(E, axis=1)[:, -largest:].mean(axis=1)
        case _:
            return E[:, aggregation]


def scale_weights(E: NDArray[np.float32], aggregation: Aggregation) -> NDArray[np.float64]:
    """Weights w `(N, L)` of the scales, for which `aggregate` equals Σ_i w_i E_i."""
    match aggregation:
        case "max":
            kept, weight = E.argmax(axis=1)[:, None], 1.0
        case "sum":
            return np.ones(E.shape)
        case "top2" | "top3":
            largest = int(aggregation[-1])
            kept, weight = np.argsort(E, axis=1)[:, -largest:], 1 / largest
        case _:
            kept, weight = np.full((len(E), 1), aggregation), 1.0
    w = np.zeros(E.shape)
    np.put_along_axis(w, kept, weight, axis=1)
    return w


def frame_scores(
    windows: WindowScores,
    n_frames: int,
    T: int,
    *,
    placement: Placement = "latest",
    person_sigma: float = 0.0,
) -> NDArray[np.float32]:
    """The score of each frame's worst person, `(n_frames,)`; NaN where no person has a score.

    Each person's scores are smoothed first, with a Gaussian of `person_sigma` frames.
    """
    worst = np.full(n_frames, np.nan, dtype=np.float32)
    for frame, score in person_scores(windows, T, placement=placement):
        worst[frame] = np.fmax(worst[frame], smooth(score, person_sigma))  # each frame once
    return worst


def person_scores(
    windows: WindowScores, T: int, *, placement: Placement = "latest"
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Frames and scores of each person, one run of consecutive frames at a time.

    `latest` and `center` give a window's score to its last or middle frame; `backtrack` to all its
    frames, each keeping the mean (`backtrack_max`: the maximum) of the windows that cover it. A
    young window covers the frames of its track only; those with the same middle share it as a mean.
    """
    # windows by person and frame, and the first frame that each covers, (N,)
    order = np.lexsort((windows.frame, windows.track_id))
    track_id, frame, A = windows.track_id[order], windows.frame[order], windows.A[order]
    length = windows.lengths(T)[order]
    first = frame - length + 1
    # a run ends with the person, or where a frame has no window
    broken = (np.diff(track_id) != 0) | (np.diff(frame) != 1) | (np.diff(first) > 1)
    for part in np.split(np.arange(len(A)), np.flatnonzero(broken) + 1):
        if len(part):
            yield _place(first[part], length[part], A[part], placement)


def _place(
    first: NDArray[np.int64],
    length: NDArray[np.int64],
    A: NDArray[np.float32],
    placement: Placement,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Assign the scores of consecutive windows, which begin in frame `first`, to frames."""
    match placement:
        case "latest":
            return first + length - 1, A
        case "center":
            return _middles(first + length // 2, A)
        case "backtrack" | "backtrack_max":
            last, T = first + length - 1, int(length.max())
            # row `late` of (T, frames): the window that ends `late` frames after the frame
            covered = np.arange(first[0], last[-1] + 1)
            reach = np.full((T, len(covered)), np.nan, dtype=np.float32)
            for late in range(T):
                whole = length > late
                reach[late, last[whole] - late - first[0]] = A[whole]
            merge = np.nanmean if placement == "backtrack" else np.nanmax
            return covered, merge(reach, axis=0).astype(np.float32)


def _middles(
    middle: NDArray[np.int64], A: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Each middle frame once, with the mean score of the windows that have it."""
    frame, which, count = np.unique(middle, return_inverse=True, return_counts=True)
    if len(frame) == len(middle):
        return frame, A
    return frame, (np.bincount(which, A) / count).astype(np.float32)


def fill_uncovered(
    clips: Sequence[NDArray[np.float32]], floor: Floor = "global"
) -> list[NDArray[np.float32]]:
    """Frame scores of all test clips, with frames without a score set to the floor.

    `global` is the lowest score of all clips minus 1, `per_clip` the lowest of the clip itself
    minus 1; a clip without any score falls back on the global floor.
    """
    # a frame without a score ranks below every frame with one
    lowest = min((float(np.nanmin(f)) for f in clips if not np.isnan(f).all()), default=0.0)
    filled = []
    for frames in clips:
        scored = frames[~np.isnan(frames)]
        local = float(scored.min()) if floor == "per_clip" and len(scored) else lowest
        filled.append(np.where(np.isnan(frames), np.float32(local - 1), frames))
    return filled


def smooth(scores: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Smooth a clip's scores with a Gaussian of `sigma` frames; 0 leaves them unchanged."""
    return gaussian_filter1d(scores, sigma) if sigma > 0 else scores


def smooth_scored(scores: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Like `smooth`, over frames with a score only; NaN stays where there is none."""
    scored = ~np.isnan(scores)
    weight = smooth(scored.astype(np.float32), sigma)
    total = smooth(np.where(scored, scores, np.float32(0)), sigma)
    return np.divide(total, weight, out=np.full_like(scores, np.nan), where=scored)


def true_runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First frame and end (exclusive) of every run of consecutive true frames."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


@dataclass(frozen=True, slots=True, eq=False)
class EnergyModel:
    """An energy that was trained, and its statistics over the training windows."""

    weights: Weights
    E_mean: NDArray[np.float64]
    """Ē_i, `(L,)`."""
    E_var: NDArray[np.float64]
    """Var(E_i), `(L,)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Everything that a fit learned and measured for one view."""

    space: PCSpace
    learned: EnergyModel | Centroids
    """By what windows are scored in this space."""
    noise: tuple[float, ...] = ()
    """Spread of joints by confidence; see `ViewSettings`."""
    pace: Pace | None = None
    """Usual speeds, of a motion alone."""
    usual: NDArray[np.float64] | None = None
    """Quantiles of how much there is of each meaning in normal footage, `(meanings, QUANTILES)`.

    Of a motion alone.
    """

    @property
    def energy(self) -> EnergyModel:
        """The energy; raise `ConfigError` if windows are scored by usual motion."""
        if isinstance(self.learned, Centroids):
            raise _no_energy()
        return self.learned

    @property
    def centroids(self) -> Centroids:
        """Usual motion; raise `ConfigError` if windows are scored by an energy."""
        if isinstance(self.learned, EnergyModel):
            raise ConfigError(
                "expected a model of usual motion, got one of the paper's energy",
                hint="fit one with: stepvad fit POSES --method usual",
            )
        return self.learned


def _no_energy() -> ConfigError:
    return ConfigError(
        "expected a model of the paper's energy, got one of usual motion",
        hint="fit one with: stepvad fit POSES --method step",
    )


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One view: its settings, its model on an engine, and how rare its scores are."""

    config: Config
    model: Model
    surprise: SurpriseByAge | None = None
    """The rarity of a distance among those of usual motion; None for an energy."""
    runtime: Runtime = "auto"
    """Engine that computes the energies, or `auto` or `fastest` to pick one."""
    threads: int | None = None
    """Threads per call; None uses OMP_NUM_THREADS or, if it is unset, all cores."""
    engine: EngineNetwork | None = field(init=False)
    """The network of an energy; None if windows are scored by usual motion."""

    def __post_init__(self) -> None:
        """Fold the network of an energy for scoring and load it into its engine."""
        engine, learned = None, self.model.learned
        if isinstance(learned, EnergyModel):
            folded = fold(learned.weights, self.config)
            engine = EngineNetwork.load(folded, self.runtime, self.threads)
        object.__setattr__(self, "engine", engine)

    @property
    def network(self) -> EngineNetwork:
        """The network of an energy; raise `ConfigError` if there is none."""
        if self.engine is None:
            raise _no_energy()
        return self.engine

    @property
    def settings(self) -> ViewSettings:
        """All that cutting its windows needs."""
        return ViewSettings(self.config, self.model.noise, self.model.pace)

    def energies(self, windows: Windows) -> NDArray[np.float32]:
        """f_θ(π(x), σ_i), `(N, L)`."""
        return self.network.energies(self.model.space.project(windows.x))

    def score(self, windows: Windows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Standardised energies E `(N, L)` and scores A(x) `(N,)` of its windows (Eq. 8).

        Of usual motion, both are the distance to the nearest.
        """
        learned = self.model.learned
        if isinstance(learned, Centroids):
            d = learned.distances(self.model.space.project(windows.x))
            return d[:, None], d
        E = standardise_energies(self.energies(windows), learned.E_mean, learned.E_var)
        return E, anomaly_score(E, windows.weight(self.config), self.config.aggregation)

    def rarity(self, A: NDArray[np.float32], n_poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """-log p of its scores `(N,)` of windows with so many poses at hand, `(N,)`."""
        return A if self.surprise is None else self.surprise(A, n_poses)


COMMON = 0.01
"""Share of normal windows above the last level; beyond it the tail is exponential."""
LEVELS = 128
"""Levels at which the distribution is kept."""
FEWEST = 200
"""Normal windows needed for a distribution: two of them in the tail."""
DOUBLING = 2
"""A band of ages ends where windows have twice the poses of its first ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Surprise:
    """-log p of a score: `nats (M,)` at `levels (M,)`, interpolated in between.

    Above the last level it grows by one nat per `scale`, as an exponential tail does.
    """

    levels: NDArray[np.float64]
    nats: NDArray[np.float64]
    scale: float

    @classmethod
    def measure(cls, A: NDArray[np.float32]) -> Surprise:
        """The distribution of these scores of normal windows."""
        if len(A) < FEWEST:
            raise DataError(
                f"expected at least {FEWEST} windows of each view to rank by, got {len(A)}",
                hint="fit on more footage",
            )
        # levels that are exceeded with probability p, the highest by one window in a hundred
        p = np.geomspace(1.0, COMMON, LEVELS)
        levels, kept = np.unique(np.quantile(A.astype(np.float64), 1 - p), return_index=True)
        # the mean excess is the scale of an exponential tail; never 0
        excess = A[levels[-1] < A] - levels[-1]
        scale = float(excess.mean()) if len(excess) else 0.0
        spread = float(np.ptp(levels)) / LEVELS
        return cls(levels, -np.log(p[kept]), max(scale, spread, float(np.finfo(np.float32).eps)))

    def __call__(self, A: NDArray[np.floating]) -> NDArray[np.float64]:
        """-log p of scores `(N,)`; 0 for the most ordinary ones."""
        inside = np.interp(A, self.levels, self.nats)
        return np.asarray(inside + np.maximum(A - self.levels[-1], 0) / self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class SurpriseByAge:
    """A distribution for each band of ages: windows of at least `first[i]` poses at hand."""

    first: tuple[int, ...]
    bands: tuple[Surprise, ...]
    table: tuple[NDArray[np.float64], ...] = field(init=False)
    """All levels `(M,)`, and -log p of each band at them and per unit above, `(bands, 1 + M)`."""

    def __post_init__(self) -> None:
        """Join the levels of all bands, so that one search finds a score among them."""
        levels = np.unique(np.concatenate([band.levels for band in self.bands]))
        nats = np.array([band(levels) for band in self.bands])
        slopes = np.diff(nats) / np.diff(levels)
        # below the first level all is usual, and the last one begins the tail
        n, tails = len(self.bands), [1 / band.scale for band in self.bands]
        slopes = np.column_stack([np.zeros(n), slopes, tails])
        starts = np.column_stack([np.zeros(n), nats])
        object.__setattr__(self, "table", (np.array(self.first), levels, starts, slopes))

    @classmethod
    def measure(
        cls, A: NDArray[np.float32], n_poses: NDArray[np.int64], config: Config
    ) -> SurpriseByAge:
        """The distributions of these scores of normal windows; bands with too few are joined."""
        first: list[int] = []
        bands: list[Surprise] = []
        # bands from whole windows down to the youngest, each half as old
        age, end = config.T, config.T + 1
        while True:
            own = A[(n_poses >= age) & (n_poses < end)]
            if len(own) >= FEWEST:
                first.insert(0, age)
                bands.insert(0, Surprise.measure(own))
                end = age
            if age <= config.shortest:
                break
            age = max(-(-age // DOUBLING), config.shortest)
        return cls(tuple(first), tuple(bands)) if bands else cls((age,), (Surprise.measure(A),))

    def __call__(self, A: NDArray[np.float32], n_poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """-log p of scores `(N,)` of windows with so many poses at hand, `(N,)`."""
        first, levels, starts, slopes = self.table
        # each score in the band of its age, the youngest of which takes what is younger, `(N,)`
        band = np.maximum(first.searchsorted(n_poses, side="right") - 1, 0)
        above = levels.searchsorted(A, side="right")
        beyond = A - levels[np.maximum(above - 1, 0)]
        return (starts[band, above] + slopes[band, above] * beyond).astype(np.float32)
