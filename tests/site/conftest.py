"""What tests of a site share: an empty store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.site.store.events import Store
from tests.site.records import SINKS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of two sinks, always at the same time."""
    made = Store(tmp_path / "data" / "events.db", SINKS, clock=lambda: 2000.0)
    yield made
    made.close()
