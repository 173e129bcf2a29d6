"""The nearest normal motion: a window led down the learned energy until it is normal (Sec. 3.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.parts import BODY
from stepvad.folded import Folded
from stepvad.modelfile import Model
from stepvad.scoring import standardise_energies
from stepvad.skeletons import Skeleton

GOAL = 0.0
"""Where the descent stops: at every scale no more than the mean energy of the training windows."""
NORMAL_RANGE = 2.0
"""Standardised energy up to which a window is in the normal range, at every scale.

Two standard deviations above the mean: about 95 of 100 training windows are.
"""
STEP = 0.7
"""Share of the way to the goal, along the gradient, that one step goes."""
MARGIN = 1e-3
"""How far below the goal a step aims, so that the last one arrives."""
MAX_STEPS = 50


def nearest_normal(folded: Folded, model: Model, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The end of a descent from each point `(N, K)`, itself where it is at the goal already.

    Each step lowers the energy of the scale that is the farthest above the goal: with E the
    standardised energy and g its gradient, z becomes z - step (E - goal) g / |g|², where a linear
    energy would be that share nearer to the goal. max_i E_i may rise on the way, as where it is
    the lowest two scales take turns; the lowest point seen counts.
    """
    z, best = pi_x.copy(), pi_x.copy()
    lowest = np.full(len(z), np.inf, dtype=np.float32)
    rows = np.arange(len(z))
    for _ in range(MAX_STEPS):
        E = standardised(folded, model, z[rows])
        highest = E.max(axis=1)
        lower = rows[highest < lowest[rows]]
        lowest[rows] = np.minimum(lowest[rows], highest)
        best[lower] = z[lower]
        rows, E = rows[highest > GOAL], E[highest > GOAL]
        if not len(rows):
            break
        z[rows] -= STEP * _way(folded, model, z[rows], E)
    return best


def standardised(folded: Folded, model: Model, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The energies of Eq. 8, `(N, L)`, in float32 and numpy, whatever the runtime."""
    return standardise_energies(folded.energies(pi_x), model.E_mean, model.E_var)


def _way(
    folded: Folded, model: Model, z: NDArray[np.float32], E: NDArray[np.float32]
) -> NDArray[np.float32]:
    """From each point the way to the goal, were the energy of its worst scale linear."""
    worst = E.argmax(axis=1)
    _, grad_f = folded.slopes(z, worst)
    above = (E.max(axis=1) - GOAL + MARGIN) * np.sqrt(model.E_var)[worst]
    steep = np.maximum(np.square(grad_f).sum(axis=1), np.finfo(np.float32).tiny)
    return (above / steep)[:, None].astype(np.float32) * grad_f


def align(
    ghost: NDArray[np.float32], observed: NDArray[np.float32], skeleton: Skeleton
) -> NDArray[np.float32]:
    """Ghosts `(N, T, V, 2)` as large as the people they belong to, and where these stand.

    A window is known up to its place and size. Both are chosen such that bones are as long as the
    observed ones, all frames together, and that the torsos' middles coincide.
    """
    torso = [v for v, joint in enumerate(skeleton.joints) if joint in BODY["torso"]]
    long, short = (_bone_lengths(windows, skeleton) for windows in (observed, ghost))
    size = np.divide(long, short, out=np.ones_like(long), where=(long > 0) & (short > 0))
    here, there = (w[:, :, torso or slice(None)].mean(axis=(1, 2)) for w in (ghost, observed))
    moved = (ghost - here[:, None, None]) * size[:, None, None, None] + there[:, None, None]
    return moved.astype(np.float32)


def _bone_lengths(windows: NDArray[np.float32], skeleton: Skeleton) -> NDArray[np.float64]:
    """The length of all bones in all frames together, `(N,)`."""
    bones = np.array(skeleton.bones, dtype=np.int64).reshape(-1, 2)
    ends = windows[:, :, bones].astype(np.float64)  # (N, T, bones, 2, 2)
    return np.linalg.norm(ends[..., 1, :] - ends[..., 0, :], axis=-1).sum(axis=(1, 2))
