"""Events and recordings for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepvad.events.record import Record, event_id
from stepvad.explain.event import EventExplanation, MotionFrames, PartShare, Phrase, ScaleWeight
from stepvad.formats import write_clip
from stepvad.poses import Clip
from stepvad.site.recorder import RECORDINGS
from stepvad.site.store.events import Store

SINKS = ("file", "mqtt")
UNIQUE = "Kamera-Zq7-Hinterhof"


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


def explanation(*says: str) -> EventExplanation:
    """Why an event has its score, in these words."""
    motion = MotionFrames(
        *(100, 10.0, 1, 900, ((0, 1),), ((10, 10), (11, 10)), ((0, 0, 10, 10), (1, 1, 11, 11))),
        ghost=((0, 0, 10, 10), (1, 1, 11, 11)),
        heat=((0, 100), (0, 50)),
    )
    return EventExplanation(
        motion=motion,
        track=7,
        frame=101,
        score=6.5,
        energy=7.0,
        confidence=0.93,
        scales=(ScaleWeight(0.1, 1.0),),
        ghost_energy=0.4,
        ghost_is_normal=True,
        words=tuple(Phrase(words, 100, 101) for words in says),
        parts=(PartShare("left arm", 1.0),),
    )


def kinds(store: Store, sink: str) -> list[str]:
    """Of the messages that wait for a sink."""
    return [message.kind for message in store.outbox.pending(sink)]


def fill(store: Store, n: int) -> None:
    """Events of two cameras in turn, with poses and refused messages."""
    for number in range(n):
        camera = UNIQUE if number % 2 else "yard"
        one = record(camera, number, why=f"{camera} " * (number % 40))
        store.change("new", one)
        store.put_poses(one.id, f"poses of {camera} ".encode() * number)
        store.put_explanation(one.id, explanation(f"of {camera}"))
        if number % 3:
            store.change("end", one.ended("calm", one.start_time + 2))
    for message in store.outbox.pending("mqtt", limit=20):
        store.outbox.refused(message, f"no {message.message.after.camera} here")


BEGIN = 1_790_000_000.0


def name_of(camera: str, begin: float) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(begin))
    return f"{camera}-{stamp}-{int(begin % 1 * 1000):03}"


def record_clips(
    data: Path, camera: str, clips: Sequence[Clip], begin: float = BEGIN, every_s: float = 120.0
) -> list[Path]:
    """Write clips as recordings that begin `every_s` after one another."""
    directory = data / RECORDINGS / camera
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, clip in enumerate(clips):
        name = name_of(camera, begin + number * every_s)
        paths.append(directory / f"{name}.parquet")
        write_clip(replace(clip, name=name), paths[-1])
    return paths
