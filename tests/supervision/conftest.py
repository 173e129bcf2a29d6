"""A log that hangs, for whatever must exit nevertheless."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from stepvad.supervision import stuck

SOON_S = 20.0


@pytest.fixture
def blocked_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log that nobody reads, such as a full pipe: whoever writes to it waits."""
    monkeypatch.setattr(stuck, "REPORT_S", 0.1)
    released = threading.Event()

    class Blocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            released.wait(SOON_S)

    handler, logger = Blocked(logging.CRITICAL), logging.getLogger("stepvad.supervision")
    logger.addHandler(handler)
    yield
    released.set()
    for thread in threading.enumerate():
        if thread.name == "report":
            thread.join(SOON_S)
    logger.removeHandler(handler)
