"""The motion around a peak: numbers for the animation, and a film strip that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from stepvad.explain import Explanation
from stepvad.report.incidents import Look
from stepvad.skeletons import COCO17, LEFT_SHOULDER, RIGHT_SHOULDER, Skeleton
from stepvad.video.timeline import clock

PER_PIXEL = 10
"""Coordinates are whole tenths of a pixel."""
HEAT = 100
"""The joint that contributes most has this heat; others their share of it, none below 1."""
STILLS = 6
"""Frames of a film strip."""
ROOM = 1.12
"""Width of the view beside what it has to hold."""
LARGEST_DOT = 0.055
"""Radius of the dot of the joint that contributes most, in widths of the view."""
NOSE = COCO17.joints.index("nose")


@dataclass(frozen=True, slots=True, eq=False)
class Motion:
    """One person around a peak, n frames in tenths of pixels: `observed` and `ghost (n, V, 2)`.

    `heat (n, V)` is in 0..HEAT; `camera (n, 2)` is the middle of a view `size` wide and high that
    goes along with the person.
    """

    first_frame: int
    peak: int
    """Number of the last frame of the window of the peak, which has the score."""
    observed: NDArray[np.int64]
    ghost: NDArray[np.int64]
    heat: NDArray[np.int64]
    camera: NDArray[np.int64]
    size: int
    skeleton: Skeleton

    @classmethod
    def of(cls, look: Look) -> Motion:
        """That of all windows looked at."""
        windows = look.windows
        observed, ghost = (
            np.concatenate([PER_PIXEL * motion.astype(np.float64) for motion in motions])
            for motions in ([w.observed for w in windows], [w.ghost for w in windows])
        )
        camera = gaussian_filter1d(
            (observed.min(axis=1) + observed.max(axis=1)) / 2, len(observed) / 9, axis=0,
            mode="nearest",
        )  # fmt: skip
        reach = max(float(np.abs(m - camera[:, None]).max()) for m in (observed, ghost))
        first = int(windows[0].frames[0])
        return cls(
            first_frame=first,
            peak=int(look.peak.frames[-1]) - first,
            observed=_whole(observed),
            ghost=_whole(ghost),
            heat=_heat(windows),
            camera=_whole(camera),
            size=max(int(np.ceil(2 * ROOM * reach)), 1),
            skeleton=windows[0].skeleton,
        )

    @property
    def bones(self) -> list[list[int]]:
        """Pairs of joints; for COCO-17 the neck, which it has not, as three."""
        bones = [[a, b] for a, b in self.skeleton.bones]
        if self.skeleton == COCO17:
            bones.append([NOSE, LEFT_SHOULDER, RIGHT_SHOULDER])
        return bones

    def as_dict(self, fps: float) -> dict[str, Any]:
        """Plain numbers, all but `fps` and `size` by frame, to be played."""
        n = len(self.observed)
        return {
            "first": self.first_frame,
            "fps": fps,
            "peak": self.peak,
            "size": self.size,
            "bones": self.bones,
            "camera": self.camera.tolist(),
            "observed": self.observed.reshape(n, -1).tolist(),
            "ghost": self.ghost.reshape(n, -1).tolist(),
            "heat": self.heat.tolist(),
        }

    def strip(self, fps: float) -> str:
        """Some frames beside each other, which need no script and print well."""
        shown = np.unique(np.linspace(0, len(self.observed) - 1, STILLS).round().astype(np.int64))
        both = np.concatenate([self.observed[shown], self.ghost[shown]], axis=1)
        low, high = both.min(axis=1), both.max(axis=1)
        size = max(int(ROOM * (high - low).max()), 1)
        corners = (low + high - size) // 2  # each still about its own middle, all on one scale
        stills = [
            f"<li>{self._still(at, corner, size)}<span>"
            f"{clock((self.first_frame + at) / fps, tenths=True)}</span></li>"
            for at, corner in zip(shown.tolist(), corners, strict=True)
        ]
        return f'<ol class="strip">{"".join(stills)}</ol>'

    def _still(self, at: int, corner: NDArray[np.int64], size: int) -> str:
        """One frame as seen from a corner on."""
        observed, ghost = self.observed[at] - corner, self.ghost[at] - corner
        largest = LARGEST_DOT * size
        dots = [
            f'<circle cx="{x}" cy="{y}" r="{round(largest * (heat / HEAT) ** 0.5)}"/>'
            for (x, y), heat in zip(observed.tolist(), self.heat[at].tolist(), strict=True)
            if heat
        ]
        return (
            f'<svg viewBox="0 0 {size} {size}" aria-hidden="true">'
            f'<path class="ghost" d="{self._path(ghost)}"/>'
            f'<path class="bone" d="{self._path(observed)}"/>'
            f'<g class="heat">{"".join(dots)}</g></svg>'
        )

    def _path(self, joints: NDArray[np.int64]) -> str:
        """Bones as one line with many begins; joints alone where there are no bones."""
        if not self.bones:
            return "".join(f"M{x} {y}h1" for x, y in joints.tolist())
        ends = [(joints[a], joints[others].mean(axis=0).round().astype(np.int64))
                for a, *others in self.bones]  # fmt: skip
        return "".join(f"M{a[0]} {a[1]}L{b[0]} {b[1]}" for a, b in ends)


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return values.round().astype(np.int64)


def _heat(windows: Sequence[Explanation]) -> NDArray[np.int64]:
    """What joints add to the score, beside the one that adds most in all these windows."""
    added = np.concatenate([window.contributions for window in windows])
    return _whole(HEAT * np.clip(added / max(float(added.max()), 1e-9), 0, 1))
