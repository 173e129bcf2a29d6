"""Poses of any number of cameras in, standardised windows out (Sec. 3, Sec. 4.1).

`prepare` repairs poses, `gaps` holds the only gap rule, `sampling` takes a window's poses by the
clock, `views` say what it shows, `standardise` scales it. `cutting` cuts a clip from the `runs` of
its tracks; `assembler` takes poses as they arrive, of one camera or of many.
"""

from __future__ import annotations

from stepvad.windows.cutting import cut, cut_in_pieces
from stepvad.windows.index import Run, WindowIndex
from stepvad.windows.prepare import prepare
from stepvad.windows.runs import clip_runs
from stepvad.windows.sampling import Sampling
from stepvad.windows.standardise import place, standardise
from stepvad.windows.values import Repairs, Windows
from stepvad.windows.views import view_shape

__all__ = [
    "Repairs",
    "Run",
    "Sampling",
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
