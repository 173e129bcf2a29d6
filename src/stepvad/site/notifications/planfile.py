"""The plan of a notification sink on disk, so that it survives a restart."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.site.notifications.plan import NotificationPlan

DIRECTORY = "notifications"
"""Directory in the data directory of a site."""
MAX_BYTES = 1 << 20

logger = logging.getLogger(__name__)


def plan_file(data: Path, sink: str) -> Path:
    """The file of a sink; its name must be unique among sinks."""
    return data / DIRECTORY / (re.sub(r"[^A-Za-z0-9_-]", "-", sink) + ".json")


def load_plan(path: Path) -> NotificationPlan:
    """The plan as it was saved; an empty one if there is none or it cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"notifications: expected at most {MAX_BYTES} bytes, got more")
        return NotificationPlan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return NotificationPlan()
    except (OSError, ValueError, RecursionError, DataError) as error:
        logger.warning(
            "%s: cannot be read, so repeats and limits start afresh: %s", path, str(error)[:200]
        )
        return NotificationPlan()


def save_plan(path: Path, plan: NotificationPlan) -> None:
    """Save the plan; it is on disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(plan.to_json()), encoding="utf-8")
