"""Explanations of many windows, of one view or of several whose scores are joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config, View
from stepvad.detector import Detector
from stepvad.explain import ghosts, words
from stepvad.explain.explanation import Attribution, Explanation, ViewShare, attribute
from stepvad.explain.words import MENTIONED, MOST_PARTS, Finding, ViewedNumbers, rank
from stepvad.model.modelfile import ViewModel
from stepvad.poses import Clip
from stepvad.windows import Sampling, Windows, place, view_shape
from stepvad.windows.views import MEANINGS, numbers

MENTIONED_VIEW = 0.15
"""Smallest share of the score for a kind of view to be mentioned; the first always is."""
LEVEL = 1e-6
"""A window whose score is this close to that of its nearest normal one is that window."""

PERSON = "person"


def explain_views(
    detector: Detector,
    clip: Clip,
    windows: Windows,
    observed: NDArray[np.float32],
    sampling: Sampling,
) -> list[Explanation]:
    """Explain windows of several views; `observed (N, T, V, 2)` are their poses in pixels."""
    joined = _Joined.of(detector, windows, observed, sampling)
    return [joined.explanation(n, clip) for n in range(len(windows))]


@dataclass(frozen=True, slots=True, eq=False)
class PoseBatch:
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
        cls,
        detector: Detector,
        windows: Windows,
        observed: NDArray[np.float32],
        sampling: Sampling,
    ) -> PoseBatch:
        """Compute ghosts and attributions of windows; motions are in pixels."""
        config, space = detector.config, detector.model.space
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
            sampling,
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
        ranked = rank(contributions, frames, source)
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


@dataclass(frozen=True, slots=True, eq=False)
class NumberBatch:
    """N windows being explained, as `(N, numbers)`: those seen, and the nearest normal ones."""

    view: ViewModel
    taken: Attribution
    seen: NDArray[np.float64]
    normal: NDArray[np.float64]
    ghost_energy: NDArray[np.float32]
    odd: NDArray[np.bool_]
    """Which windows are outside the normal range at some scale, and so get phrases."""
    ages: NDArray[np.int64]
    """Poses at hand for each window."""

    @classmethod
    def of(cls, detector: Detector, view: ViewModel, windows: Windows) -> NumberBatch:
        """Compute the nearest normal numbers and attributions of windows."""
        space, config = detector.model.space, detector.config
        pi_x = space.project(windows.x)
        normal = ghosts.nearest_normal(detector, space, pi_x)
        back = space.reconstruct(normal, view_shape(config, detector.skeleton.V))
        return cls(
            view,
            attribute(detector, space, windows.x, windows.weight(config), normal),
            numbers(windows.x).astype(np.float64),
            numbers(back).astype(np.float64),
            ghosts.standardised(detector, normal).max(axis=1),
            ghosts.standardised(detector, pi_x).max(axis=1) > ghosts.NORMAL_RANGE,
            windows.ages(config),
        )

    def meanings(self, n: int) -> dict[str, float]:
        """What each meaning of the numbers adds to the view's own score of the n-th window."""
        (added,) = numbers(self.taken.coordinates[n : n + 1])
        meanings = MEANINGS[self.view.model.config.view]
        return {name: float(added[list(which)].sum()) for name, which in meanings.items()}

    def findings(self, n: int, first_frame: int, last_frame: int) -> tuple[Finding, ...]:
        """What is unusual about the n-th window; nothing if it is in the normal range."""
        added = self.meanings(n)
        raising = sum(max(one, 0.0) for one in added.values())
        if not self.odd[n] or raising <= 0:
            return ()
        ranked = sorted(added, key=lambda name: -added[name])
        said = [name for name in ranked if added[name] >= MENTIONED * raising][:MOST_PARTS]
        return tuple(
            Finding(name, (), None, first_frame, last_frame, f"{PERSON} {self._phrase(n, name)}")
            for name in said or ranked[:1]
        )

    def _phrase(self, n: int, name: str) -> str:
        config, added = self.view.model.config, self.meanings(n)
        score, age = self.taken.score[n : n + 1], self.ages[n : n + 1]
        (nats,) = self.view.surprise(score.astype(np.float32), age)
        viewed = ViewedNumbers(
            self.seen[n],
            self.normal[n],
            self.view.usual,
            float(np.exp(-nats)),
            self.view.model.origin.windows,
        )
        meanings = MEANINGS[config.view]
        if config.view == "motion":
            return viewed.motion(name, [*meanings].index(name), meanings[name])
        return viewed.place(name, name == max(added, key=lambda one: added[one]))


@dataclass(frozen=True, slots=True, eq=False)
class _SeenView:
    """One window in one view that it is long enough for."""

    config: Config
    batch: PoseBatch | NumberBatch
    row: int
    """Its row in the batch."""
    contribution: float
    slope: float
    """By how much the joined score rises with the view's own."""

    def pose(self, clip: Clip) -> Explanation | None:
        """The explanation of the view's own score; None for a view that is not a pose."""
        match self.batch:
            case PoseBatch():
                return self.batch.explanation(self.row, clip)
        return None

    @property
    def meanings(self) -> dict[str, float]:
        """What the meanings of motion or place add to the joined score."""
        match self.batch:
            case NumberBatch():
                added = self.batch.meanings(self.row)
                return {name: self.slope * one for name, one in added.items()}
        return {}

    def findings(self, frames: NDArray[np.int64]) -> tuple[Finding, ...]:
        """What is unusual about motion or place; `frames` are those of the longest pose."""
        own = frames[-self.config.T :]
        match self.batch:
            case NumberBatch():
                return self.batch.findings(self.row, int(own[0]), int(own[-1]))
        return ()

    @property
    def base(self) -> float:
        """What remains of its contribution without those of joints or meanings."""
        taken = self.batch.taken.contributions[self.row]
        return self.contribution - self.slope * float(taken.sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """N windows being explained in all views that they are long enough for."""

    detector: Detector
    windows: Windows
    observed: NDArray[np.float32]
    sampling: Sampling
    batches: tuple[PoseBatch | NumberBatch | None, ...]
    """Explanations of each view's windows; None if it has none."""
    added: NDArray[np.float64]
    """What each view adds to the score, `(N, views)`."""
    slope: NDArray[np.float64]
    """By how much the score rises with that of a view, from its nearest normal window on."""
    energy: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        detector: Detector,
        windows: Windows,
        observed: NDArray[np.float32],
        sampling: Sampling,
    ) -> _Joined:
        """Explain each view's windows by their own scores, and say what these add."""
        batches = tuple(
            _batch(detector, number, windows, observed, sampling)
            for number in range(len(detector.parts))
        )
        own, below, energies = (
            [np.zeros(0) if batch is None else getattr(batch.taken, name) for batch in batches]
            for name in ("score", "base", "energy")
        )
        way = np.zeros((len(windows), len(batches)))
        for number, view in enumerate(windows.views):
            way[view.rows, number] = own[number] - below[number]
        rise = detector.contributions(windows, own) - detector.contributions(windows, below)
        slope = np.divide(rise, way, out=np.zeros_like(way), where=way > LEVEL)
        added = detector.contributions(windows)
        energy = detector.contributions(windows, energies).sum(axis=1)
        return cls(detector, windows, observed, sampling, batches, added, slope, energy)

    def explanation(self, n: int, clip: Clip) -> Explanation:
        """The n-th explanation, over the joints of the clip."""
        seen = [*self._seen(n)]
        poses = [(view, pose) for view in seen if (pose := view.pose(clip)) is not None]
        frames, observed = self._motion(n, seen, clip)
        contributions, ghost = np.zeros(observed.shape[:2]), observed.copy()
        for view, pose in sorted(poses, key=lambda pair: pair[0].contribution):
            last = slice(-len(pose.frames), None)
            contributions[last] += view.slope * pose.contributions
            ghost[last] = pose.ghost  # that of the view that adds most is seen
        meanings: dict[str, float] = {}
        for view in seen:
            for name, added in view.meanings.items():
                meanings[name] = meanings.get(name, 0.0) + added
        shares = self._shares(n, seen)
        return Explanation(
            clip=clip.name,
            track=int(self.windows.track_id[n]),
            frames=frames,
            skeleton=clip.skeleton,
            score=float(self.added[n].sum()),
            confidence=float(self.windows.weight(self.detector.config)[n]),
            energy=float(self.energy[n]),
            scales={},
            base=sum(view.base for view in shares),
            contributions=contributions,
            observed=observed,
            ghost=ghost,
            ghost_energy=max(float(view.batch.ghost_energy[view.row]) for view in seen),
            findings=_findings(seen, poses, frames),
            views=shares,
            meanings=meanings,
        )

    def _seen(self, n: int) -> Iterator[_SeenView]:
        """The views that the n-th window is long enough for."""
        for number, (view, batch) in enumerate(zip(self.windows.views, self.batches, strict=True)):
            row = int(np.searchsorted(view.rows, n))
            if batch is not None and row < len(view.rows) and view.rows[row] == n:
                added, slope = float(self.added[n, number]), float(self.slope[n, number])
                yield _SeenView(self.detector.parts[number].config, batch, row, added, slope)

    def _motion(
        self, n: int, seen: Sequence[_SeenView], clip: Clip
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Frames and poses of the longest pose at hand, or of the longest view if there is none."""
        poses = [view.config.T for view in seen if view.config.view == "pose"]
        last = slice(-max(poses or [view.config.T for view in seen]), None)
        frames = self.windows.frame[n] + self.sampling.frames - self.sampling.frames[-1]
        observed = self.observed[n, last]
        return frames[last], skeletons.restore(observed, clip.skeleton, self.detector.skeleton)

    def _shares(self, n: int, seen: Sequence[_SeenView]) -> tuple[ViewShare, ...]:
        """What each view adds, also those not at hand."""
        by_config = {view.config: view for view in seen}
        total = sum(view.contribution for view in seen)
        found = []
        for config, added in zip(self.detector.config.views, self.added[n].tolist(), strict=True):
            view = by_config.get(config)
            share = added / total if view is not None and total > 0 else 0.0
            base = added if view is None else view.base
            found.append(
                ViewShare(config.view, config.view_name, added, base, share, view is not None)
            )
        return tuple(found)


def _findings(
    seen: Sequence[_SeenView],
    poses: Sequence[tuple[_SeenView, Explanation]],
    frames: NDArray[np.int64],
) -> tuple[Finding, ...]:
    """Findings of the kinds of views that the score is due to, the largest share first."""
    added: dict[View, float] = {}
    for view in seen:
        added[view.config.view] = added.get(view.config.view, 0.0) + view.contribution
    ranked = sorted(added, key=lambda kind: -added[kind])
    least = MENTIONED_VIEW * sum(added.values())
    found: list[Finding] = []
    for kind in [kind for kind in ranked if added[kind] >= least]:
        if kind == "pose":
            strongest = sorted(poses, key=lambda pair: -pair[0].contribution)
            found += words.join(one for _, pose in strongest for one in pose.findings)
        else:
            found += _strongest(seen, kind).findings(frames)
    return _without_repetition(found)


def _strongest(seen: Sequence[_SeenView], kind: View) -> _SeenView:
    """The view of this kind that adds most."""
    return max(
        (view for view in seen if view.config.view == kind), key=lambda view: view.contribution
    )


def _without_repetition(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, without what another one tells better.

    The speed of the body is that of the motion; who lies is wide.
    """
    subjects = {finding.subject for finding in found}
    lies = any("lying" in finding.adjectives for finding in found)
    kept = [one for one in found if not (lies and one.subject == "width")]
    if "speed" not in subjects:
        return tuple(kept)
    body = (replace(one, speed=None) if one.subject == words.BODY else one for one in kept)
    return tuple(one for one in body if one.subject != words.BODY or one.adjectives)


def _batch(
    detector: Detector,
    number: int,
    windows: Windows,
    observed: NDArray[np.float32],
    sampling: Sampling,
) -> PoseBatch | NumberBatch | None:
    """The windows of one view, explained by their own scores."""
    part, view = detector.parts[number], windows.views[number]
    if not len(view.rows):
        return None
    if part.config.view != "pose":
        return NumberBatch.of(part, detector.model.views[number], view.windows)
    T = part.config.T
    own = Sampling(T, sampling.ratio)
    return PoseBatch.of(part, view.windows, observed[view.rows, -T:], own)
