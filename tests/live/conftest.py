"""What tests of a site share: the small model of the demo."""

from __future__ import annotations

import pytest

from stepvad.detector import Detector
from stepvad.live import demo


@pytest.fixture(scope="session")
def small_model() -> Detector:
    """A model of people who walk and stand."""
    return Detector.load(demo.MODEL, threads=1)
