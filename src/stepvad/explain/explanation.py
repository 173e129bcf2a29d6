"""Why a window has its score: joints, moments, noise scale, confidence, and the normal motion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.codec import JsonObject
from stepvad.config import View
from stepvad.explain import ghosts, parts
from stepvad.explain.parts import BodyPart
from stepvad.explain.words import Finding
from stepvad.skeletons import Skeleton


@dataclass(frozen=True, slots=True)
class ViewShare:
    """What one of several views adds to a score."""

    view: View
    name: str
    """The view, and how long its windows are."""
    contribution: float
    base: float
    """What its nearest normal window would add in place of it."""
    share: float
    """Fraction of what all views at hand add; 0 if it is not at hand."""
    at_hand: bool
    """Whether the person was there for long enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """One window's score, decomposed over the joints and frames of the clip.

    `score` is `base` plus all `contributions (T, V)`, to 1e-4; with several views, plus all
    `meanings` too. `observed (T, V, 2)` and the nearest normal motion `ghost (T, V, 2)` are in
    pixels.
    """

    clip: str
    track: int
    frames: NDArray[np.int64]
    skeleton: Skeleton
    score: float
    confidence: float
    """The factor by which the score was multiplied."""
    energy: float
    """The score before weighting: standard deviations above the mean of the training windows.

    With several views, the joined score at full confidence.
    """
    scales: dict[float, float]
    """Noise scales σ that decided, and their weights; a single one if the aggregation is `max`.

    Empty with several views.
    """
    base: float
    """The score of the nearest normal motion, at the same scales and confidence."""
    contributions: NDArray[np.float64]
    observed: NDArray[np.float32]
    ghost: NDArray[np.float32]
    ghost_energy: float
    """Its highest standardised energy over all scales."""
    findings: tuple[Finding, ...]
    views: tuple[ViewShare, ...] = ()
    """What each of several views adds to the score; they sum to it. Empty if there is one."""
    meanings: Mapping[str, float] = field(default_factory=dict)
    """Contributions of what motion and place mean, such as `speed`."""

    @property
    def parts(self) -> tuple[BodyPart, ...]:
        """Parts of the body, and meanings, by contribution, the largest first."""
        return parts.rank(self.contributions, self.frames, self.skeleton, self.meanings)

    @property
    def shares(self) -> dict[str, float]:
        """Share of the score of `pose`, `motion` and `place`, with several views."""
        found: dict[str, float] = {}
        for view in self.views:
            found[view.view] = found.get(view.view, 0.0) + view.share
        return found

    @property
    def share_words(self) -> str:
        """The same in words, such as `pose 40 %, motion 55 %, place 5 %`."""
        return ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.shares.items())

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
        several: JsonObject = {
            "views": [asdict(view) for view in self.views],
            "meanings": dict(self.meanings),
        }
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
            **(several if self.views else {}),
        }
