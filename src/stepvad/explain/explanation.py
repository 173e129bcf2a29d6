"""Why a window has its score: joints, moments, noise scale, confidence, and the normal motion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.explain import ghosts, parts, words
from stepvad.explain.attribution import Attribution, attribute
from stepvad.explain.parts import BodyPart
from stepvad.explain.words import Finding
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import Scores
from stepvad.payload import JsonObject
from stepvad.poses import Clip
from stepvad.progress import Report, silent
from stepvad.skeletons import Skeleton
from stepvad.windows import Sampling, WindowIndex, cut, place

Place = tuple[int, int]
"""A window: its track, and the last frame it covers."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """One window's score, decomposed over the joints and frames of the clip.

    `score` is `base` plus all `contributions (T, V)`, to 1e-4. `observed (T, V, 2)` and the nearest
    normal motion `ghost (T, V, 2)` are in pixels.
    """

    clip: str
    track: int
    frames: NDArray[np.int64]
    skeleton: Skeleton
    score: float
    confidence: float
    """The factor by which the score was multiplied."""
    energy: float
    """The score before weighting: standard deviations above the mean of the training windows."""
    scales: dict[float, float]
    """Noise scales σ that decided, and their weights; a single one if the aggregation is `max`."""
    base: float
    """The score of the nearest normal motion, at the same scales and confidence."""
    contributions: NDArray[np.float64]
    observed: NDArray[np.float32]
    ghost: NDArray[np.float32]
    ghost_energy: float
    """Its highest standardised energy over all scales."""
    findings: tuple[Finding, ...]

    @property
    def parts(self) -> tuple[BodyPart, ...]:
        """Parts of the body by contribution, the largest first."""
        return parts.rank(self.contributions, self.frames, self.skeleton)

    @property
    def words(self) -> tuple[str, ...]:
        """A phrase for each unusual finding; none for a window in the normal range."""
        return tuple(finding.words for finding in self.findings)

    @property
    def taken_off(self) -> float:
        """The reduction of the score due to low pose confidence."""
        return self.energy - self.score

    @property
    def ghost_is_normal(self) -> bool:
        """Whether the descent ended in the normal range at every scale."""
        return self.ghost_energy <= ghosts.NORMAL_RANGE

    def as_dict(self) -> JsonObject:
        """Everything as plain values for JSON."""
        return {
            "clip": self.clip,
            "track": self.track,
            "frames": self.frames.tolist(),
            "joints": list(self.skeleton.joints),
            "score": self.score,
            "confidence": self.confidence,
            "energy": self.energy,
            "scales": [{"sigma": sigma, "weight": weight} for sigma, weight in self.scales.items()],
            "base": self.base,
            "contributions": self.contributions.tolist(),
            "parts": [asdict(part) for part in self.parts],
            "observed": self.observed.tolist(),
            "ghost": self.ghost.tolist(),
            "ghost_energy": self.ghost_energy,
            "ghost_is_normal": self.ghost_is_normal,
            "words": list(self.words),
        }


def explain(
    detector: Detector, clip: Clip, places: Sequence[Place] | None = None
) -> list[Explanation]:
    """Explain the windows of these tracks that end in these frames, together and in order.

    Without `places`: the window with the highest score; empty if there are no scores.
    """
    if places is None:
        places = [place for _, place in highest(detector.score(clip), 1)]
    if not places:
        return []
    detector = detector.explained
    space = _space(detector)
    index = _index(detector, clip, {track for track, _ in places})
    rows = _rows(index, clip, places)
    batch = _Batch.of(detector, space, index, rows)
    return [batch.explanation(n, clip) for n in range(len(rows))]


def explain_event(
    detector: Detector, clip: Clip, track: int, first_frame: int, last_frame: int
) -> tuple[list[Explanation], tuple[str, ...]]:
    """Explain one person between two frames: adjacent windows, and phrases for all of them.

    The windows end in the last frame, one window before it and so on; they are sorted by score, the
    highest first. Phrases about one part of the body are merged over time.
    """
    detector = detector.explained
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


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """N windows being explained; motions `(N, T, V, 2)` in pixels, of the model's joints."""

    detector: Detector
    taken: Attribution
    track: NDArray[np.int64]
    frame: NDArray[np.int64]
    sampling: Sampling
    weight: NDArray[np.float32]
    observed: NDArray[np.float32]
    seen: NDArray[np.float32]
    """The observed motion as the K components retain it: all that is scored."""
    ghost: NDArray[np.float32]
    ghost_energy: NDArray[np.float32]
    odd: NDArray[np.bool_]
    """Which windows are outside the normal range at some scale, and so get phrases."""

    @classmethod
    def of(
        cls, detector: Detector, space: PCSpace, index: WindowIndex, rows: NDArray[np.int64]
    ) -> _Batch:
        """Compute ghosts and attributions of the windows in these rows; motions are in pixels."""
        config = detector.config
        windows = index.windows(rows)
        observed, _ = index.poses(rows)
        pi_x, weight = space.project(windows.x), windows.weight(config)
        normal = ghosts.nearest_normal(detector, space, pi_x)
        shape = (2, detector.skeleton.V, config.T)
        seen, ghost = (
            place(space.reconstruct(points, shape), observed, config) for points in (pi_x, normal)
        )
        return cls(
            detector,
            attribute(detector, space, windows.x, weight, normal),
            windows.track_id,
            windows.frame,
            index.sampling,
            weight,
            observed,
            seen,
            ghosts.align(ghost, seen, detector.skeleton),
            ghosts.standardised(detector, normal).max(axis=1),
            ghosts.standardised(detector, pi_x).max(axis=1) > ghosts.NORMAL_RANGE,
        )

    def explanation(self, n: int, clip: Clip) -> Explanation:
        """The n-th explanation, over the joints of the clip."""
        source, target = clip.skeleton, self.detector.skeleton
        taken = self.taken
        frames = self.frame[n] + self.sampling.frames - self.sampling.frames[-1]
        contributions = skeletons.give_back(taken.contributions[n].T, source, target)  # (T, V)
        observed, seen, ghost = (
            skeletons.restore(motion[n], source, target)
            for motion in (self.observed, self.seen, self.ghost)
        )
        ranked = parts.rank(contributions, frames, source)
        sigmas = self.detector.config.sigmas
        decided = np.flatnonzero(taken.scales[n])
        return Explanation(
            clip=clip.name,
            track=int(self.track[n]),
            frames=frames,
            skeleton=source,
            score=float(taken.score[n]),
            confidence=float(self.weight[n]),
            energy=float(taken.energy[n]),
            scales={float(sigmas[i]): float(taken.scales[n, i]) for i in decided},
            base=float(taken.base[n]),
            contributions=contributions,
            observed=observed,
            ghost=ghost,
            ghost_energy=float(self.ghost_energy[n]),
            findings=words.describe(seen, ghost, ranked, frames, source) if self.odd[n] else (),
        )


def _space(detector: Detector) -> PCSpace:
    space = detector.model.space
    if isinstance(space, PCSpace):
        return space
    raise ConfigError(
        f"explain: expected a linear projection, 'pca' or 'raw', got "
        f"{detector.config.projection!r}",
        hint="fit a model of method step or raw",
    )


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
