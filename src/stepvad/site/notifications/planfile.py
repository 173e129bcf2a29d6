"""The plan of a notification sink on disk, so that it survives a restart."""

from __future__ import annotations

import re
from pathlib import Path

from stepvad.files import statefile
from stepvad.site.notifications.plan import NotificationPlan

DIRECTORY = "notifications"
"""Directory in the data directory of a site."""
MAX_BYTES = 1 << 20


def plan_file(data: Path, sink: str) -> Path:
    """The file of a sink; its name must be unique among sinks."""
    return data / DIRECTORY / (re.sub(r"[^A-Za-z0-9_-]", "-", sink) + ".json")


def load_plan(path: Path) -> NotificationPlan:
    """The plan as it was saved; an empty one if there is none or it is damaged.

    Raise `OSError` if it cannot be read now, `NewerVersionError` if it is of a newer version.
    """
    lost = "due messages are forgotten, and repeats and limits start afresh"
    found = statefile.read(path, NotificationPlan, "notifications", most=MAX_BYTES, lost=lost)
    return NotificationPlan() if found is None else found
