"""The ghost of an energy: the nearest normal motion in its PC-space (Sec. 3.1).

A window is projected to π(x), descends the learned energy there until it is normal, and is
reconstructed from its components (`explain/views.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.explain.words import parts_of
from stepvad.model.scoring import standardise_energies
from stepvad.skeletons import Skeleton

GOAL = 0.0
"""End of a descent: at or below the mean energy of the training windows at every scale."""
NORMAL_RANGE = 2.0
"""Standardised energy up to which a window is in the normal range, at every scale.

Two standard deviations above the mean, which covers about 95 of 100 training windows.
"""
STEP = 0.7
"""Fraction of the distance to the goal, along the gradient, covered by one step."""
LONGEST = 4.0
"""Largest step when one part moves, in whitened components."""
MARGIN = 1e-3
"""Distance below the goal at which a step aims, to ensure that the last one reaches it."""
PART_STEPS = 12
MAX_STEPS = 50
COURSES = 2
"""Slow trajectories by which a single part may move over the window: constant, and one way."""


def nearest_normal(detector: Detector, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The end of a descent from each π(x) `(N, K)`; points already at the goal are unchanged.

    The descent first moves the one part of the body that lowers the energy most by itself, so an
    unusual arm is not corrected by moving the legs; then everything moves.
    """
    z = pi_x.copy()
    rows = np.flatnonzero(standardised(detector, z).max(axis=1) > GOAL)
    z[rows] = move_all(detector, move_one_part(detector, z[rows]))
    return z


def move_all(detector: Detector, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Descend from each point `(N, K)` to the goal, or to the lowest point on the path.

    Each step lowers the energy of the scale that is farthest above the goal: with E the
    standardised energy and g its gradient, z becomes z - step (E - goal) g / |g|², which would take
    a linear energy that fraction of the distance to the goal. max_i E_i may rise on the path, as
    two scales alternate where it is low.
    """
    z, best = pi_x.copy(), pi_x.copy()
    lowest = np.full(len(z), np.inf, dtype=np.float32)
    rows = np.arange(len(z))
    for _ in range(MAX_STEPS):
        # the lowest point on each path so far
        E = standardised(detector, z[rows])
        highest = E.max(axis=1)
        lower = rows[highest < lowest[rows]]
        lowest[rows] = np.minimum(lowest[rows], highest)
        best[lower] = z[lower]
        # those above the goal go on, at the scale that is farthest above it
        rows, E = rows[highest > GOAL], E[highest > GOAL]
        if not len(rows):
            break
        worst = E.argmax(axis=1)
        _, g = _slopes(detector, z[rows], worst)
        z[rows] -= _step(E.max(axis=1), g, np.square(g).sum(axis=1))
    return best


def move_one_part(detector: Detector, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move one part of the body from each point `(N, K)`: the part that lowers the energy most.

    Takes the same steps at the scale that decides, for each part along the gradient in its own
    coordinates, restricted to slow trajectories.
    """
    ways = _ways_of_parts(detector)
    (N, K), P = pi_x.shape, len(ways)
    scale = standardised(detector, pi_x).argmax(axis=1)
    z = np.repeat(pi_x[:, None], P, axis=1)  # (N, P, K)
    best, lowest = z.copy(), np.full((N, P), np.inf, dtype=np.float32)
    for _ in range(PART_STEPS):
        E, g = _slopes(detector, z.reshape(N * P, K), np.repeat(scale, P))
        E, g = E.reshape(N, P), g.reshape(z.shape)
        lower = lowest > E
        best[lower], lowest[lower] = z[lower], E[lower]
        if (lowest <= GOAL).all():
            break
        # each part moves along the gradient in its own directions, (K, ways)
        for part, way in enumerate(ways):
            along: NDArray[np.float32] = g[:, part] @ way
            step = _step(E[:, part], along @ way.T, np.square(along).sum(axis=1))
            length = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), LONGEST)
            z[:, part] -= np.where(E[:, part, None] > GOAL, step * (LONGEST / length), 0)
    return best[np.arange(N), lowest.argmin(axis=1)]


def align(
    ghost: NDArray[np.float32], observed: NDArray[np.float32], skeleton: Skeleton
) -> NDArray[np.float32]:
    """Scale and move ghosts `(N, T, V, 2)` to the size and position of the observed people.

    A window is known up to position and size. They are chosen to match the total bone length over
    all frames and the centre of the torso.
    """
    torso = parts_of(skeleton).get("torso", [])
    long, short = (_bone_lengths(windows, skeleton) for windows in (observed, ghost))
    size = np.divide(long, short, out=np.ones_like(long), where=(long > 0) & (short > 0))
    # centres of the torso, (N, 2): that of the ghost goes to that of the person
    here, there = (w[:, :, torso or slice(None)].mean(axis=(1, 2)) for w in (ghost, observed))
    moved = (ghost - here[:, None, None]) * size[:, None, None, None] + there[:, None, None]
    return moved.astype(np.float32)


def standardised(detector: Detector, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The standardised energies of Eq. 8, `(N, L)`, in float32 and numpy, for any runtime."""
    learned = detector.model.energy
    f = detector.network.folded.energies(pi_x)
    return standardise_energies(f, learned.E_mean, learned.E_var)


def _slopes(
    detector: Detector, z: NDArray[np.float32], scale: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """E_i `(N,)` and its gradient `(N, K)`, standardised, at points with a scale each."""
    f, grad_f = detector.network.folded.slopes(z, scale)
    learned = detector.model.energy
    spread = np.sqrt(learned.E_var[scale])
    E = (f - learned.E_mean[scale]) / spread
    return E.astype(np.float32), (grad_f / spread[:, None]).astype(np.float32)


def _step(
    E: NDArray[np.float32], direction: NDArray[np.float32], slope: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The step along each direction `(N, K)`, along which the energy rises by `slope (N,)`."""
    share = STEP * (E - GOAL + MARGIN) / np.maximum(slope, np.finfo(np.float32).tiny)
    return (share[:, None] * direction).astype(np.float32)


def _ways_of_parts(detector: Detector) -> list[NDArray[np.float32]]:
    """Directions in PC-space, `(K, ways)`, of each part: its joints along slow trajectories."""
    space, T, V = detector.model.space, detector.config.T, detector.skeleton.V
    # slow trajectories over the window as unit vectors, (T, courses): cosines of a DCT-II
    course = np.cos(np.pi / T * np.outer(np.arange(T) + 0.5, np.arange(min(COURSES, T))))
    course /= np.linalg.norm(course, axis=0)
    # how each coordinate of a window moves a point, along the trajectories
    by_coordinate = (space.W_K / space.scale).reshape(2, V, T, -1)
    by_course = np.einsum("xvtk,tc->vxck", by_coordinate, course)  # (V, 2, courses, K)
    return [
        np.ascontiguousarray(by_course[joints].reshape(-1, by_course.shape[3]).T, np.float32)
        for joints in parts_of(detector.skeleton).values()
    ]


def _bone_lengths(windows: NDArray[np.float32], skeleton: Skeleton) -> NDArray[np.float64]:
    """Total length of all bones over all frames, `(N,)`."""
    bones = np.array(skeleton.bones, dtype=np.int64).reshape(-1, 2)
    ends = windows[:, :, bones].astype(np.float64)  # (N, T, bones, 2, 2)
    return np.linalg.norm(ends[..., 1, :] - ends[..., 0, :], axis=-1).sum(axis=(1, 2))
