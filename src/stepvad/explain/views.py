"""Explanations of many windows, of one view or of several whose scores are joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config, ViewKind
from stepvad.detector import Detector
from stepvad.explain import ghosts, words
from stepvad.explain.explanation import Attribution, Explanation, ViewShare, attribute
from stepvad.explain.words import MENTIONED, MOST_PARTS, Finding, ViewedNumbers, rank
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.body import place
from stepvad.windows.runs import Sampling
from stepvad.windows.views import MEANINGS, Windows, numbers, view_shape

MENTIONED_VIEW = 0.15
"""Smallest share of the score for a kind of view to be mentioned; the first always is."""
LEVEL = 1e-6
"""A window whose score is this close to that of its nearest normal one is that window."""


def explain_windows(
    detector: Detector,
    clip: Clip,
    windows: Windows,
    observed: NDArray[np.float32],
    sampling: Sampling,
) -> list[Explanation]:
    """Explain windows; `observed (N, T, V, 2)` are their poses in pixels of the clip."""
    # the frame of each pose, (N, T): a window's own is that of its last pose
    frames = windows.frame[:, None] + sampling.frames - sampling.frames[-1]
    if len(detector.views) > 1:
        joined = JoinedViews.explain(detector, windows, observed)
        return [joined.explanation(n, frames[n], clip) for n in range(len(windows))]
    detector.expect_pose("explain")
    batch = ViewBatch.explain(detector, windows, observed)
    return [batch.explanation(n, frames[n], clip) for n in range(len(windows))]


@dataclass(frozen=True, slots=True, eq=False)
class ViewBatch:
    """N windows being explained in one view, beside the nearest normal ones.

    Of poses, `seen` and `ghost` are motions `(N, T, V, 2)` in pixels of the model's joints, as the
    K components retain them: all that is scored. Of motion and place, they are `(N, numbers)`.
    """

    detector: Detector
    """The detector of this view alone."""
    windows: Windows
    observed: NDArray[np.float32]
    """The poses as they were, `(N, T, V, 2)`."""
    attribution: Attribution
    seen: NDArray[Any]
    ghost: NDArray[Any]
    ghost_energy: NDArray[np.float32]
    """The highest standardised energy of the ghosts over all scales, `(N,)`."""
    is_odd: NDArray[np.bool_]
    """Windows outside the normal range at some scale, `(N,)`: these get phrases."""

    @classmethod
    def explain(
        cls,
        detector: Detector,
        windows: Windows,
        observed: NDArray[np.float32],
    ) -> ViewBatch:
        """Compute the nearest normal windows, and attributions relative to them."""
        config, space = detector.config, detector.model.space
        # observed and nearest normal points in PC-space, (N, K) each
        pi_x = space.project(windows.x)
        normal = ghosts.nearest_normal(detector, pi_x)
        shape = view_shape(config, detector.skeleton.V)
        seen: NDArray[Any]
        ghost: NDArray[Any]
        if config.view == "pose":
            # back from PC-space to pixels, (N, T, V, 2); ghosts go where the people are
            seen, ghost = (
                place(space.reconstruct(z, shape), observed, config) for z in (pi_x, normal)
            )
            ghost = ghosts.align(ghost, seen, detector.skeleton)
        else:
            both = windows.x, space.reconstruct(normal, shape)
            seen, ghost = (numbers(x).astype(np.float64) for x in both)
        return cls(
            detector,
            windows,
            observed,
            attribute(detector, windows.x, windows.weight(config), normal),
            seen,
            ghost,
            ghosts.standardised(detector, normal).max(axis=1),
            ghosts.standardised(detector, pi_x).max(axis=1) > ghosts.NORMAL_RANGE,
        )

    def explanation(self, n: int, frames: NDArray[np.int64], clip: Clip) -> Explanation:
        """The n-th explanation, by this view of poses alone, over the joints of the clip."""
        attribution, source, target = self.attribution, clip.skeleton, self.detector.skeleton
        sigmas, weights = self.detector.config.sigmas, attribution.scales[n]
        return Explanation(
            clip=clip.name,
            track=int(self.windows.track_id[n]),
            frames=frames,
            skeleton=source,
            score=float(attribution.score[n]),
            confidence=float(self.windows.weight(self.detector.config)[n]),
            energy=float(attribution.energy[n]),
            scales={float(sigmas[i]): float(weights[i]) for i in np.flatnonzero(weights)},
            base=float(attribution.base[n]),
            contributions=self.contributions(n, source),
            observed=skeletons.restore(self.observed[n], source, target),
            ghost=skeletons.restore(self.ghost[n], source, target),
            ghost_energy=float(self.ghost_energy[n]),
            findings=self.findings(n, frames, source),
        )

    def contributions(self, n: int, source: Skeleton) -> NDArray[np.float64]:
        """Contributions to the view's own score by the joints of the clip, `(T, V)`."""
        by_joint = self.attribution.contributions[n].T
        return skeletons.give_back(by_joint, source, self.detector.skeleton)

    def meanings(self, n: int) -> dict[str, float]:
        """Contributions to the view's own score by meanings, such as `speed`; none of poses."""
        view = self.detector.config.view
        if view == "pose":
            return {}
        (by_number,) = numbers(self.attribution.coordinates[n : n + 1])
        meanings = MEANINGS[view]
        return {name: float(by_number[list(which)].sum()) for name, which in meanings.items()}

    def findings(self, n: int, frames: NDArray[np.int64], source: Skeleton) -> tuple[Finding, ...]:
        """Findings on the n-th window; none if it is in the normal range."""
        if not self.is_odd[n]:
            return ()
        if self.detector.config.view == "pose":
            seen, ghost = (
                skeletons.restore(motion[n], source, self.detector.skeleton)
                for motion in (self.seen, self.ghost)
            )
            ranked = rank(self.contributions(n, source), frames, source)
            return words.describe(seen, ghost, ranked, frames, source)
        by_meaning = self.meanings(n)
        raising = sum(max(one, 0.0) for one in by_meaning.values())
        if raising <= 0:
            return ()
        ranked_names = sorted(by_meaning, key=lambda name: -by_meaning[name])
        least = MENTIONED * raising
        said = [name for name in ranked_names if by_meaning[name] >= least] or ranked_names[:1]
        first, last = int(frames[0]), int(frames[-1])
        viewed = self._viewed(n)
        found = []
        for name in said[:MOST_PARTS]:
            if self.detector.config.view == "motion":
                says = viewed.motion(name)
            else:
                says = viewed.place(name, leads=name == ranked_names[0])
            found.append(Finding(name, (), None, first, last, f"person {says}"))
        return tuple(found)

    def _viewed(self, n: int) -> ViewedNumbers:
        """The numbers of the n-th window beside those of normal footage."""
        one, (view,) = slice(n, n + 1), self.detector.views
        score, age = self.attribution.score[one], self.windows.ages(self.detector.config)[one]
        (nats,) = view.rarity(score.astype(np.float32), age)
        rarity, n_normal = float(np.exp(-nats)), self.detector.origin.windows
        return ViewedNumbers(self.seen[n], self.ghost[n], view.model.usual, rarity, n_normal)


@dataclass(frozen=True, slots=True, eq=False)
class ActiveView:
    """One window in one view that it is long enough for."""

    batch: ViewBatch
    row: int
    """Its row in the batch."""
    contribution: float
    slope: float
    """By how much the joined score rises with the view's own."""

    @property
    def config(self) -> Config:
        """The settings of the view."""
        return self.batch.detector.config

    @property
    def base(self) -> float:
        """The rest of its contribution, without those of joints or meanings."""
        by_joint = self.batch.attribution.contributions[self.row]
        return self.contribution - self.slope * float(by_joint.sum())

    def findings(self, frames: NDArray[np.int64], source: Skeleton) -> tuple[Finding, ...]:
        """Findings on it; `frames` are those of the longest view."""
        return self.batch.findings(self.row, frames[-self.config.T :], source)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedViews:
    """N windows being explained in all views that they are long enough for."""

    detector: Detector
    windows: Windows
    observed: NDArray[np.float32]
    batches: tuple[ViewBatch | None, ...]
    """Explanations of each view's windows; None if it has none."""
    contributions: NDArray[np.float64]
    """Contributions of views to the score, `(N, views)`."""
    slopes: NDArray[np.float64]
    """By how much the score rises with that of a view, from its nearest normal window on."""
    energy: NDArray[np.float64]

    @classmethod
    def explain(
        cls, detector: Detector, windows: Windows, observed: NDArray[np.float32]
    ) -> JoinedViews:
        """Explain each view's windows by their own scores, and say what these add."""
        batches = tuple(
            ViewBatch.explain(
                replace(detector, views=(view,)),
                own.windows,
                observed[own.rows, -view.config.T :],
            )
            if len(own.rows)
            else None
            for own, view in zip(windows.views, detector.views, strict=True)
        )
        # each view's own scores, those of its nearest normal windows, and energies, (n,) each
        scores, bases, energies = (
            [
                np.zeros(0) if batch is None else getattr(batch.attribution, name)
                for batch in batches
            ]
            for name in ("score", "base", "energy")
        )
        # how far each view's own score is above its base, (N, views); 0 where it is not at hand
        span = np.zeros((len(windows), len(batches)))
        for number, view in enumerate(windows.views):
            span[view.rows, number] = scores[number] - bases[number]
        # the slope of the joined score along each view's own, (N, views)
        rise = detector.contributions(windows, scores) - detector.contributions(windows, bases)
        slopes = np.divide(rise, span, out=np.zeros_like(span), where=span > LEVEL)
        contributions = detector.contributions(windows)
        energy = detector.contributions(windows, energies).sum(axis=1)
        return cls(detector, windows, observed, batches, contributions, slopes, energy)

    def explanation(self, n: int, frames: NDArray[np.int64], clip: Clip) -> Explanation:
        """The n-th explanation, over the joints of the clip; `frames` of the longest view."""
        source, target = clip.skeleton, self.detector.skeleton
        active = [*self._active(n)]
        poses = [view for view in active if view.config.view == "pose"]
        # the longest pose at hand, or the longest view if there is none
        longest = slice(-max(view.config.T for view in poses or active), None)
        frames = frames[longest]
        observed = skeletons.restore(self.observed[n, longest], source, target)
        # contributions (T, V) of views that end together; the ghost is that of the view adding most
        contributions, ghost = np.zeros(observed.shape[:2]), observed.copy()
        for view in sorted(poses, key=lambda view: view.contribution):
            last = slice(-view.config.T, None)
            contributions[last] += view.slope * view.batch.contributions(view.row, source)
            ghost[last] = skeletons.restore(view.batch.ghost[view.row], source, target)
        meanings: dict[str, float] = {}
        for view in active:
            for name, own in view.batch.meanings(view.row).items():
                meanings[name] = meanings.get(name, 0.0) + view.slope * own
        shares = self._shares(n, active)
        return Explanation(
            clip=clip.name,
            track=int(self.windows.track_id[n]),
            frames=frames,
            skeleton=source,
            score=float(self.contributions[n].sum()),
            confidence=float(self.windows.weight(self.detector.config)[n]),
            energy=float(self.energy[n]),
            scales={},
            base=sum(view.base for view in shares),
            contributions=contributions,
            observed=observed,
            ghost=ghost,
            ghost_energy=max(float(view.batch.ghost_energy[view.row]) for view in active),
            findings=_joined_findings(active, frames, source),
            views=shares,
            meanings=meanings,
        )

    def _active(self, n: int) -> Iterator[ActiveView]:
        """The views that the n-th window is long enough for."""
        for number, (view, batch) in enumerate(zip(self.windows.views, self.batches, strict=True)):
            row = int(np.searchsorted(view.rows, n))
            if batch is not None and row < len(view.rows) and view.rows[row] == n:
                contribution, slope = self.contributions[n, number], self.slopes[n, number]
                yield ActiveView(batch, row, float(contribution), float(slope))

    def _shares(self, n: int, active: Sequence[ActiveView]) -> tuple[ViewShare, ...]:
        """Contributions of all views, also of those not at hand."""
        by_config = {view.config: view for view in active}
        total = sum(view.contribution for view in active)
        found = []
        contributions = self.contributions[n].tolist()
        for one, own in zip(self.detector.views, contributions, strict=True):
            config, view = one.config, by_config.get(one.config)
            share = own / total if view is not None and total > 0 else 0.0
            base = own if view is None else view.base
            found.append(
                ViewShare(config.view, config.view_name, own, base, share, view is not None)
            )
        return tuple(found)


def _joined_findings(
    active: Sequence[ActiveView], frames: NDArray[np.int64], source: Skeleton
) -> tuple[Finding, ...]:
    """Findings of the kinds of views that the score is due to, the largest share first."""
    by_kind: dict[ViewKind, float] = {}
    for view in active:
        by_kind[view.config.view] = by_kind.get(view.config.view, 0.0) + view.contribution
    least = MENTIONED_VIEW * sum(by_kind.values())
    found: list[Finding] = []
    for kind in sorted(by_kind, key=lambda kind: -by_kind[kind]):
        if by_kind[kind] >= least:
            own = [view for view in active if view.config.view == kind]
            own.sort(key=lambda view: -view.contribution)
            # poses of several lengths are one body; of numbers the strongest view speaks
            heard = own if kind == "pose" else own[:1]
            found += words.join(one for view in heard for one in view.findings(frames, source))
    return _without_repetition(found)


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
