"""Events of pose files as JSON lines, which anyone can read and `stepvad feedback` answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.formats import files, limits
from stepvad.incidents.events import Event
from stepvad.poses import MAX_FPS

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvent:
    """An event of a clip, with all that is needed to see it again."""

    id: str
    clip: str
    camera: str | None
    """None where the threshold is that for all cameras."""
    model: str
    """The file."""
    poses: tuple[str, ...]
    """The files or directories of which the clip is one."""
    fps: float
    threshold: float
    model_sha256: str
    event: Event

    def line(self) -> str:
        """As one line of JSON."""
        facts = {"schema": SCHEMA, **asdict(self)}
        event = facts.pop("event")
        return json.dumps(facts | event, ensure_ascii=False)


def write(events: Iterable[FoundEvent], path: Path) -> None:
    """Write events, a line each; whole or not at all."""
    with replacing(path) as temporary:
        text = "".join(f"{event.line()}\n" for event in events)
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read(path: Path) -> dict[str, FoundEvent]:
    """The events of a file by their id."""
    found = {}
    lines = (
        files.read_bytes(path, most=limits.MAX_LABEL_BYTES)
        .decode("utf-8", errors="replace")
        .splitlines()
    )
    for number, line in enumerate(lines, start=1):
        if line.strip():
            event = _event(line, f"{path}, line {number}")
            found[event.id] = event
    return found


def _event(line: str, place: str) -> FoundEvent:
    try:
        facts = json.loads(line)
        if facts["schema"] != SCHEMA:
            raise ValueError(f"schema {facts['schema']!r:.40}")
        numbers = [facts[name] for name in ("first_s", "last_s", "peak", "peak_s", "threshold")]
        if not all(map(math.isfinite, numbers)) or not 0 < facts["fps"] < MAX_FPS:
            raise ValueError("numbers that are not finite")
        event = Event(
            first_s=float(facts["first_s"]),
            last_s=float(facts["last_s"]),
            tracks=tuple(map(int, facts["tracks"])),
            peak=float(facts["peak"]),
            peak_s=float(facts["peak_s"]),
            peak_track=int(facts["peak_track"]),
        )
        return FoundEvent(
            id=str(facts["id"]),
            clip=str(facts["clip"]),
            camera=None if facts["camera"] is None else str(facts["camera"]),
            model=str(facts["model"]),
            poses=tuple(map(str, facts["poses"])),
            fps=float(facts["fps"]),
            threshold=float(facts["threshold"]),
            model_sha256=str(facts["model_sha256"]),
            event=event,
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{place}: expected an event of schema {SCHEMA}, got something else "
            f"({str(error)[:200]})",
            hint="such lines are written by: stepvad score MODEL POSES --events events.jsonl",
        ) from error
