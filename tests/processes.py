"""What tests of several rooms ask about processes that they started."""

from __future__ import annotations

import os
import time

import pytest


def wait_until_nobody_is_left(group: int) -> None:
    """Until a group of processes is gone; it fails if that takes long."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("processes outlive the sweep that started them")
