"""Explanations of windows of poses, many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.detector import Detector
from stepvad.explain import ghosts, parts, words
from stepvad.explain.attribution import Attribution, attribute
from stepvad.explain.explanation import Explanation
from stepvad.poses import Clip
from stepvad.windows import Sampling, Windows, place


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
