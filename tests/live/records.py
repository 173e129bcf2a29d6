"""Events for tests."""

from __future__ import annotations

from typing import Any

from stepvad.live.record import Record, event_id


def record(camera: str = "yard", number: int = 0, **changes: Any) -> Record:
    """The start of an event; those of higher numbers are later."""
    facts: dict[str, Any] = {
        "id": event_id(camera, 1, 7, number),
        "camera": camera,
        "score": 4.0,
        "top_score": 5.0,
        "start_time": 1000.0 + number,
        "box": (1.0, 2.0, 30.0, 40.0),
        "zones": ("gate",),
        "model_id": "model",
        "model_sha256": "0" * 64,
        "track_id": 7,
        "tracks": (7,),
        "epoch": 1,
        "frame_seq": number,
        "confidence": 0.9,
        "threshold": 3.0,
        "scales": (1.0, 2.5),
    }
    return Record(**(facts | changes))
