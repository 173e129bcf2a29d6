"""What tests of a site share: a small model of walkers."""

from __future__ import annotations

import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.poses import Clip


@pytest.fixture(scope="session")
def small_model(walkers: list[Clip]) -> Detector:
    """Fitted in a second, on people who walk and stand."""
    config = Config(
        T=12, K=16, width=16, blocks=2, sigma_width=8, L=4, max_steps=20, batch_size=128
    )
    return Detector.fit(walkers, config)
