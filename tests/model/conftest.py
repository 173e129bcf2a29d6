"""DOC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stepvad.config import Config, Reference
from stepvad.detector import Detector
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip
from stepvad.skeletons import STEP18
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings, Windows

QUICK = replace(Config.short(), K=24, width=128, sigma_width=32, max_steps=60)
KINDS = {
    "step": QUICK,
    "vanilla": replace(QUICK, network="vanilla"),
    "raw": replace(QUICK, reference=Reference(projection="raw"), network="vanilla"),
    "one block": replace(QUICK, blocks=1, L=3, aggregation="top2"),
}


@pytest.fixture(scope="session")
def trained(walkers: list[Clip]) -> Callable[[str], Detector]:
    """Models fitted on walkers, on numpy, each when it is first asked for."""
    made: dict[str, Detector] = {}

    def detector(kind: str = "step") -> Detector:
        if kind not in made:
            made[kind] = Detector.fit(walkers, KINDS[kind]).with_engine("numpy")
        return made[kind]

    return detector


@pytest.fixture(scope="session")
def test_windows(walker_test: list[tuple[Clip, FrameLabels]]) -> Windows:
    """All windows of the test clips, normal and abnormal, as the default settings cut them."""
    parts = []
    for clip, _ in walker_test:
        parts.append(cut(clip, [ViewSettings(Config())], STEP18)[0].windows(slice(None)))
    fields = ("x", "c", "track_id", "frame", "flat")
    return Windows(*(np.concatenate([getattr(part, f) for part in parts]) for f in fields))
