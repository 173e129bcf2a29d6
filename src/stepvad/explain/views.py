"""Explanations of many windows, of one view or of several whose scores are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import ViewKind
from stepvad.detector import Detector
from stepvad.explain import ghosts, words
from stepvad.explain.explanation import (
    Attribution,
    Explanation,
    ViewShare,
    attribute,
    attribute_distance,
)
from stepvad.explain.words import MENTIONED, MOST_PARTS, Finding, ViewedNumbers, rank
from stepvad.model.scoring import View
from stepvad.model.usual import Centroids
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.body import place
from stepvad.windows.runs import Sampling
from stepvad.windows.views import MEANINGS, ViewWindows, Windows, numbers, view_shape

RARE = 0.05
"""Windows of a view of usual motion that are rarer than this are outside the normal range."""
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
    explained = ExplainedWindows.explain(detector, windows, observed)
    return [explained.explanation(n, frames[n], clip) for n in range(len(windows))]


@dataclass(frozen=True, slots=True, eq=False)
class ViewBatch:
    """N windows being explained in one view, beside the nearest normal ones.

    Of poses, `seen` and `ghost` are motions `(N, T, V, 2)` in pixels of the model's joints, as the
    K components retain them: all that is scored. Of motion and place, they are `(N, numbers)`.
    """

    detector: Detector
    view: View
    windows: Windows
    attribution: Attribution
    seen: NDArray[np.float32]
    ghost: NDArray[np.float32]
    ghost_energy: NDArray[np.float32]
    """The highest standardised energy of the ghosts over all scales, `(N,)`; 0 of usual motion."""
    is_odd: NDArray[np.bool_]
    """Windows outside the normal range, `(N,)`: these get phrases."""

    @classmethod
    def explain(
        cls, detector: Detector, view: View, windows: Windows, observed: NDArray[np.float32]
    ) -> ViewBatch:
        """Compute the nearest normal windows, and attributions relative to them."""
        config, space, learned = view.config, view.model.space, view.model.learned
        # observed and nearest normal points in PC-space, (N, K) each
        pi_x = space.project(windows.x)
        if isinstance(learned, Centroids):
            normal = learned.points[learned.nearest(pi_x)]
            attribution = attribute_distance(space, windows.x, normal)
            ghost_energy = np.zeros(len(windows), np.float32)
            d = attribution.score.astype(np.float32)
            is_odd = view.rarity(d, windows.ages(config)) > -np.log(RARE)
        else:
            normal = ghosts.nearest_normal(detector, pi_x)
            attribution = attribute(detector, windows.x, windows.weight(config), normal)
            ghost_energy = ghosts.standardised(detector, normal).max(axis=1)
            is_odd = ghosts.standardised(detector, pi_x).max(axis=1) > ghosts.NORMAL_RANGE
        # from components to pixels or numbers; ghosts of people go where these are
        shape = view_shape(config, detector.skeleton.V)
        shown = [space.reconstruct(z, shape) for z in (pi_x, normal)]
        if config.view == "pose":
            seen, ghost = (place(x, observed, config) for x in shown)
            ghost = ghosts.align(ghost, seen, detector.skeleton)
        else:
            seen, ghost = map(numbers, shown)
        return cls(detector, view, windows, attribution, seen, ghost, ghost_energy, is_odd)

    def contributions(self, n: int, source: Skeleton) -> NDArray[np.float64]:
        """Contributions to the view's own score by the joints of the clip, `(T, V)`."""
        by_joint = self.attribution.contributions[n].T
        return skeletons.give_back(by_joint, source, self.detector.skeleton)

    def meanings(self, n: int) -> dict[str, float]:
        """Contributions to the view's own score by meanings, such as `speed`; none of poses."""
        view = self.view.config.view
        if view == "pose":
            return {}
        (by_number,) = numbers(self.attribution.coordinates[n : n + 1])
        meanings = MEANINGS[view]
        return {name: float(by_number[list(which)].sum()) for name, which in meanings.items()}

    def findings(self, n: int, frames: NDArray[np.int64], source: Skeleton) -> tuple[Finding, ...]:
        """Findings on the n-th window; none if it is in the normal range."""
        if not self.is_odd[n]:
            return ()
        if self.view.config.view == "pose":
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
            if self.view.config.view == "motion":
                says = viewed.motion(name)
            else:
                says = viewed.place(name, leads=name == ranked_names[0])
            found.append(Finding(name, (), None, first, last, f"person {says}"))
        return tuple(found)

    def _viewed(self, n: int) -> ViewedNumbers:
        """The numbers of the n-th window beside those of normal footage."""
        one, usual = slice(n, n + 1), self.view.model.usual
        score, age = self.attribution.score[one], self.windows.ages(self.view.config)[one]
        (nats,) = self.view.rarity(score.astype(np.float32), age)
        return ViewedNumbers(
            self.seen[n].astype(np.float64),
            self.ghost[n].astype(np.float64),
            np.empty((0, 0)) if usual is None else usual,
            float(np.exp(-nats)),
            self.detector.origin.windows,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedWindows:
    """N windows being explained in all views that they are long enough for."""

    detector: Detector
    windows: Windows
    observed: NDArray[np.float32]
    batches: tuple[ViewBatch | None, ...]
    """Explanations of each view's windows; None if it has none."""
    rows: NDArray[np.int64]
    """Rows of the windows in these, `(N, views)`; -1 if they are too short for a view."""
    added: NDArray[np.float64]
    """Contributions of views to the score, `(N, views)`."""
    bases: NDArray[np.float64]
    """Those of their nearest normal windows."""
    slopes: NDArray[np.float64]
    """By how much the score rises with that of a view, from its nearest normal window on."""

    @classmethod
    def explain(
        cls, detector: Detector, windows: Windows, observed: NDArray[np.float32]
    ) -> ExplainedWindows:
        """Explain each view's windows by their own scores, and say what these add."""
        parts = windows.views or (ViewWindows(np.arange(len(windows)), windows),)
        batches = tuple(
            ViewBatch.explain(detector, view, own.windows, observed[own.rows, -view.config.T :])
            if len(own.rows)
            else None
            for own, view in zip(parts, detector.views, strict=True)
        )
        # each view's own scores, and those of its nearest normal windows, (n,) each
        scores, below = (
            [np.zeros(0) if one is None else getattr(one.attribution, name) for one in batches]
            for name in ("score", "base")
        )
        # where they are, and how far each is above its base, (N, views)
        rows = np.full((len(windows), len(parts)), -1)
        span = np.zeros(rows.shape)
        for number, own in enumerate(parts):
            rows[own.rows, number] = np.arange(len(own.rows))
            span[own.rows, number] = scores[number] - below[number]
        if len(parts) == 1:
            added, bases, slopes = scores[0][:, None], below[0][:, None], np.ones(rows.shape)
        else:
            # the slope of the joined score along each view's own, (N, views)
            added, bases = detector.contributions(windows), detector.contributions(windows, below)
            slopes = np.divide(added - bases, span, out=np.zeros(rows.shape), where=span > LEVEL)
            bases = np.where(span > LEVEL, bases, added)
        return cls(detector, windows, observed, batches, rows, added, bases, slopes)

    def explanation(self, n: int, frames: NDArray[np.int64], clip: Clip) -> Explanation:
        """The n-th explanation, over the joints of the clip; `frames` of the longest view."""
        source, target = clip.skeleton, self.detector.skeleton
        active = self._active(n)
        poses = [one for one in active if one[1].view.config.view == "pose"]
        # the longest pose at hand, or the longest view if there is none
        longest = slice(-max(batch.view.config.T for _, batch, _ in poses or active), None)
        frames = frames[longest]
        observed = skeletons.restore(self.observed[n, longest], source, target)
        # contributions (T, V) of views that end together; the ghost is that of the view adding most
        contributions, ghost = np.zeros(observed.shape[:2]), observed.copy()
        for k, batch, row in reversed(poses):
            last = slice(-batch.view.config.T, None)
            contributions[last] += self.slopes[n, k] * batch.contributions(row, source)
            ghost[last] = skeletons.restore(batch.ghost[row], source, target)
        meanings: dict[str, float] = {}
        for k, batch, row in active:
            for name, own in batch.meanings(row).items():
                meanings[name] = meanings.get(name, 0.0) + float(self.slopes[n, k]) * own
        score, config = float(self.added[n].sum()), self.detector.config
        # the scales that decided, and the score before weighting, of an energy
        energy, weights = score, np.zeros(0)
        if len(self.batches) == 1:
            attribution = active[0][1].attribution
            energy, weights = float(attribution.energy[n]), attribution.scales[n]
        return Explanation(
            clip=clip.name,
            track=int(self.windows.track_id[n]),
            frames=frames,
            skeleton=source,
            score=score,
            confidence=float(self.windows.weight(config)[n]),
            energy=energy,
            scales={float(config.sigmas[i]): float(weights[i]) for i in np.flatnonzero(weights)},
            base=float(self.bases[n].sum()),
            contributions=contributions,
            observed=observed,
            ghost=ghost,
            ghost_energy=max(float(batch.ghost_energy[row]) for _, batch, row in active),
            findings=self._findings(n, frames, source),
            views=self._shares(n),
            meanings=meanings,
        )

    def _active(self, n: int) -> list[tuple[int, ViewBatch, int]]:
        """Views that the n-th window is long enough for, and its row, by what they add."""
        found = [
            (k, batch, int(self.rows[n, k]))
            for k, batch in enumerate(self.batches)
            if batch is not None and self.rows[n, k] >= 0
        ]
        return sorted(found, key=lambda one: -self.added[n, one[0]])

    def _shares(self, n: int) -> tuple[ViewShare, ...]:
        """Contributions of several views, also of those not at hand."""
        at_hand = self.rows[n] >= 0
        total = float(self.added[n, at_hand].sum())
        shares = np.where(at_hand, self.added[n], 0) / (total if total > 0 else 1)
        columns = (self.added[n], self.bases[n], shares, at_hand)
        rows = zip(self.detector.views, *(column.tolist() for column in columns), strict=True)
        found = [ViewShare(one.config.view, one.config.view_name, *row) for one, *row in rows]
        return tuple(found) if len(found) > 1 else ()

    def _findings(self, n: int, frames: NDArray[np.int64], source: Skeleton) -> tuple[Finding, ...]:
        """Findings of the kinds of views that the score is due to, the largest share first."""
        by_kind: dict[ViewKind, list[tuple[int, ViewBatch, int]]] = {}
        for one in self._active(n):
            by_kind.setdefault(one[1].view.config.view, []).append(one)
        adds = {kind: sum(self.added[n, k] for k, *_ in own) for kind, own in by_kind.items()}
        least = MENTIONED_VIEW * sum(adds.values())
        # of each subject the view that adds most speaks
        found: dict[str, Finding] = {}
        for kind in sorted(adds, key=lambda kind: -adds[kind]):
            for _, batch, row in by_kind[kind] if adds[kind] >= least else ():
                for finding in batch.findings(row, frames[-batch.view.config.T :], source):
                    found.setdefault(finding.subject, finding)
        return _without_repetition([*found.values()])


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
