"""What tests of a fleet share: clips in which something happens."""

from __future__ import annotations

import pytest

from stepvad.benchmark.walkers import make_clips
from stepvad.poses import Clip


@pytest.fixture(scope="session")
def scenes() -> list[Clip]:
    """Clips of twelve seconds; in most somebody does what is unusual."""
    return [clip for clip, _ in make_clips(6, seed=5, seconds=12.0, anomalies=True)]
