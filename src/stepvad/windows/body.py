"""A linear model of the human body, which places joints that were not found, or not surely.

A pose is x_j = t + s (m_j + U_j z) + noise: a mean shape m and K ways U to deviate from it, of size
s at place t, with z ~ N(0, I). It is linear in (t, s, s z), so the likeliest body, given where
joints were found and how noisy that is, is the solution of one small system. A joint that was not
found has infinite noise: it takes no part, and goes where the body has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.skeletons import COCO17, STEP18, Skeleton, convert

FILE = Path(__file__).with_name("body.json")
"""The model of COCO-17, learned from motion capture by `python -m studies learn-body`."""
SIZE_SPREAD = 0.5
"""Prior spread of a body's size, relative to the extent of the joints that were found."""
SMALLEST = 1e-3
"""Smallest extent of a body, in pixels."""
AT_ONCE = 256
"""Poses solved at once; bounds memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """Mean shape `mean (V, 2)`, `axes (V, 2, K)` and the variance `noise (V, 2)` of the rest.

    The unit is the height of the mean shape.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    noise: NDArray[np.float64]

    def settle(
        self, keypoints: NDArray[np.float32], variance: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Poses `(n, V, 2)` where they are expected, given the `variance (n, V)` of each joint.

        The unit of the variance is the extent of the pose, squared. A joint without noise stays,
        one with infinite noise goes where the body has it. A pose without any joint stays as it is.
        Poses are independent: any batching gives the same bits.
        """
        settled = keypoints.copy()
        some = np.flatnonzero(np.isfinite(variance).any(axis=1) & (variance > 0).any(axis=1))
        for first in range(0, len(some), AT_ONCE):
            rows = some[first : first + AT_ONCE]
            settled[rows] = self._settled(keypoints[rows], variance[rows][..., None])
        return settled

    def _settled(
        self, keypoints: NDArray[np.float32], variance: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Mean of each joint's position, given all of them and their variance `(n, V, 1)`."""
        fitted = self._fitted(keypoints, variance)
        kept = self.noise / (self.noise + variance)
        between = fitted + kept * (np.where(np.isfinite(variance), keypoints, 0) - fitted)
        return np.where(variance == 0, keypoints, between.astype(np.float32))

    def _fitted(
        self, keypoints: NDArray[np.float32], variance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The likeliest body, `(n, V, 2)`."""
        n, V, _ = keypoints.shape
        there = np.isfinite(variance)
        middle, size = extent(keypoints, there)
        y = np.where(there, (keypoints - middle) / size, 0.0).reshape(n, 2 * V, 1)
        precision = (1 / (self.noise + variance)).reshape(n, 2 * V, 1)
        design, products, prior = _system(self)
        # sums over the middle axis run in order: any batching gives the same bits
        normal = (precision * products).sum(axis=1).reshape(n, *prior.shape) + prior
        right = (precision * y * design).sum(axis=1)
        right[:, 2] += prior[2, 2]
        solution = np.linalg.solve(normal, right[..., None])  # (n, 3 + K, 1)
        fitted = (solution * design.T).sum(axis=1).reshape(n, V, 2)
        return np.asarray(fitted * size + middle)


@cache
def _system(body: Body) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """What each coordinate says of (t, s, s z), `(2V, 3 + K)`; its products; the prior."""
    V, _, K = body.axes.shape
    place = np.tile(np.eye(2), (V, 1))
    design = np.column_stack([place, body.mean.reshape(-1), body.axes.reshape(-1, K)])
    products = (design[:, :, None] * design[:, None, :]).reshape(2 * V, -1)
    return design, products, np.diag([0.0, 0.0, 1 / SIZE_SPREAD**2, *np.ones(K)])


def extent(
    keypoints: NDArray[np.float32], there: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middle `(n, 1, 2)` of the joints that are there, and how far they reach, `(n, 1, 1)`."""
    joints = keypoints.astype(np.float64)
    middle = np.where(there, joints, 0.0).sum(axis=1, keepdims=True) / there.sum(1, keepdims=True)
    far = np.where(there, np.abs(joints - middle), 0.0).max(axis=1, keepdims=True)
    size = 2 * far[..., 1:]  # upright people: the height says more than the width
    return middle, np.maximum(np.maximum(size, far[..., :1]), SMALLEST)


@cache
def body_of(skeleton: Skeleton) -> Body | None:
    """The body of a skeleton; None for one that is not known."""
    if skeleton.joints not in (COCO17.joints, STEP18.joints):
        return None
    facts = json.loads(FILE.read_text(encoding="utf-8"))
    known = [np.array(facts[name], np.float64) for name in ("mean", "axes", "noise")]
    if skeleton.joints == STEP18.joints:
        known = [convert(values[None], COCO17, STEP18)[0] for values in known]
    return Body(*known)
