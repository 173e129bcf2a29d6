"""The motion around a peak as a static film strip."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.event import HEAT, ROOM, Motion
from stepvad.video.timeline import clock

STILLS = 6
"""Frames in a film strip."""
LARGEST_DOT = 0.055
"""Dot radius of the joint that contributes most, relative to the width of the view."""


def strip(motion: Motion, fps: float) -> str:
    """Render a few frames side by side; works without scripts and in print."""
    shown = np.unique(np.linspace(0, len(motion.observed) - 1, STILLS).round().astype(np.int64))
    both = np.concatenate([motion.observed[shown], motion.ghost[shown]], axis=1)
    low, high = both.min(axis=1), both.max(axis=1)
    size = max(int(ROOM * (high - low).max()), 1)
    corners = (low + high - size) // 2  # each frame centred on its own, all on one scale
    stills = [
        f"<li>{_still(motion, at, corner, size)}<span>"
        f"{clock((motion.first_frame + at) / fps, tenths=True)}</span></li>"
        for at, corner in zip(shown.tolist(), corners, strict=True)
    ]
    return f'<ol class="strip">{"".join(stills)}</ol>'


def _still(motion: Motion, at: int, corner: NDArray[np.int64], size: int) -> str:
    """Render one frame as a square of `size` from `corner`."""
    observed, ghost = motion.observed[at] - corner, motion.ghost[at] - corner
    largest = LARGEST_DOT * size
    dots = [
        f'<circle cx="{x}" cy="{y}" r="{round(largest * (heat / HEAT) ** 0.5)}"/>'
        for (x, y), heat in zip(observed.tolist(), motion.heat[at].tolist(), strict=True)
        if heat
    ]
    return (
        f'<svg viewBox="0 0 {size} {size}" aria-hidden="true">'
        f'<path class="ghost" d="{_path(motion, ghost)}"/>'
        f'<path class="bone" d="{_path(motion, observed)}"/>'
        f'<g class="heat">{"".join(dots)}</g></svg>'
    )


def _path(motion: Motion, joints: NDArray[np.int64]) -> str:
    """Bones as one SVG path; joints if there are no bones."""
    if not motion.bones:
        return "".join(f"M{x} {y}h1" for x, y in joints.tolist())
    ends = [(joints[a], joints[others].mean(axis=0).round().astype(np.int64))
            for a, *others in motion.bones]  # fmt: skip
    return "".join(f"M{a[0]} {a[1]}L{b[0]} {b[1]}" for a, b in ends)
