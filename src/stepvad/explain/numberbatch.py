"""Explanations of windows of motion or place, many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.explain import ghosts
from stepvad.explain.attribution import Attribution, attribute
from stepvad.explain.numberwords import ViewedNumbers
from stepvad.explain.words import MENTIONED, MOST_PARTS, Finding
from stepvad.model.modelfile import ViewModel
from stepvad.windows import Windows, view_shape
from stepvad.windows.views import MEANINGS, numbers

PERSON = "person"


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
