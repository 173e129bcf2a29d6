"""Poses of any number of cameras in, standardised windows out (Sec. 3, Sec. 4.1).

`body` prepares poses and standardises windows, `views` say what a window shows. `runs` holds the
only gap rule and cuts the windows of a clip by the clock; `live` takes poses as they arrive, of one
camera or of many.
"""

from __future__ import annotations

from stepvad.windows.body import Repairs, place, prepare, standardise
from stepvad.windows.runs import Run, Sampling, WindowIndex, clip_runs, cut, cut_in_pieces
from stepvad.windows.views import ViewSettings, Windows, view_shape

__all__ = [
    "Repairs",
    "Run",
    "Sampling",
    "ViewSettings",
    "WindowIndex",
    "Windows",
    "clip_runs",
    "cut",
    "cut_in_pieces",
    "place",
    "prepare",
    "standardise",
    "view_shape",
]
