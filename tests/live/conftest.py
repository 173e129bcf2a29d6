"""What tests of a site share: the small model of the demo, and an empty store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.detector import Detector
from stepvad.live import demo
from stepvad.live.store import Store
from tests.live.records import SINKS


@pytest.fixture(scope="session")
def small_model() -> Detector:
    """A model of people who walk and stand."""
    return Detector.load(demo.MODEL, threads=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of two sinks, always at the same time."""
    made = Store(tmp_path / "data" / "events.db", SINKS, clock=lambda: 2000.0)
    yield made
    made.close()
