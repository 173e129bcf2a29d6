"""The link from an event to the clip of a video recorder."""

from __future__ import annotations

import time
from urllib.parse import quote

from stepvad.incidents.record import Record

BEFORE_S, AFTER_S = 10.0, 10.0
"""Seconds of the recording before the start and after the end of an event."""
OPEN_S = 60.0
"""Length of the clip of an event that goes on."""


def recording_url(template: str, record: Record) -> str:
    """The address of the recording of an event, with a margin before and after it."""
    ended = record.start_time + OPEN_S if record.end_time is None else record.end_time
    start, end = int(record.start_time - BEFORE_S), int(ended + AFTER_S) + 1
    values = {
        "camera": record.camera,
        "id": record.id,
        "start": str(start),
        "end": str(end),
        "start_iso": _iso(start),
        "end_iso": _iso(end),
    }
    return template.format_map({name: quote(value, safe="") for name, value in values.items()})


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
