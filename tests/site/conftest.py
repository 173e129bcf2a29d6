"""What tests of a site share: an empty store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.site import stages
from stepvad.site.store.events import Store
from tests.site.records import SINKS

SOON_S = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of two sinks, always at the same time."""
    made = Store(tmp_path / "data" / "events.db", SINKS, clock=lambda: 2000.0)
    yield made
    made.close()


@pytest.fixture
def blocked_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log that nobody reads, such as a full pipe: whoever writes to it waits."""
    monkeypatch.setattr(stages, "REPORT_S", 0.1)
    released = threading.Event()

    class Blocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            released.wait(SOON_S)

    handler, logger = Blocked(logging.CRITICAL), logging.getLogger("stepvad.site")
    logger.addHandler(handler)
    yield
    released.set()
    for thread in threading.enumerate():
        if thread.name == "report":
            thread.join(SOON_S)
    logger.removeHandler(handler)
