from __future__ import annotations

import pytest

from stepvad import Config, Detector
from stepvad.poses import Clip
from stepvad.report.page import ReportedClip
from tests.report.pages import case_of, joined_walkers


@pytest.fixture(scope="session")
def detector(walkers: list[Clip]) -> Detector:
    return Detector.fit(walkers, Config(K=12, width=16, max_steps=8, ema_warmup=True))


@pytest.fixture(scope="session")
def yard() -> Clip:
    return joined_walkers(16, seed=4)


@pytest.fixture(scope="session")
def case(detector: Detector, yard: Clip) -> ReportedClip:
    return case_of(detector, yard)
