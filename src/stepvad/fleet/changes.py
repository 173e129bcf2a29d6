"""What a message about an event says: whose it is, what it is now, and which of two is newer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from stepvad.errors import DataError
from stepvad.events import Kind
from stepvad.live.record import Record, camera_key, event_id

RANKS: Mapping[str, int] = {kind: rank for rank, kind in enumerate(("new", "update", "end"))}
MAX_BYTES = 1 << 20
LONGEST = 300
"""Characters of a name or an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one event of a fleet, as it came."""

    site: str
    camera: str
    """Without the site."""
    kind: Kind
    record: Record
    """Its camera is `site/camera`."""
    turn: int
    """Of two changes of a kind the one with the higher turn is newer."""
    sequence: int
    """Number of the message in its stream."""

    @property
    def rank(self) -> int:
        """A later kind is newer, whatever its turn."""
        return RANKS[self.kind]


def change_of(data: bytes, *, sequence: int, id: str = "", site: str | None = None) -> Change:
    """The change that a message tells; `site` is the one that its subject allows, if any.

    The turn is the last part of the message's `id`, which counts slots or letters.
    """
    facts = _facts(data)
    kind: Any = facts.get("type")
    if kind not in get_args(Kind):
        raise DataError(f"event: expected type new, update or end, got {str(kind)[:40]!r}")
    record = _record(facts.get("after"))
    named = _text(facts.get("site"), "site")
    if site is not None and site != named:
        raise DataError(f"event: expected one of site {site}, got one of {named}")
    of, _, camera = record.camera.partition("/")
    if of != named or not camera:
        raise DataError(f"event: expected a camera {named}/..., got {record.camera[:80]!r}")
    if record.id.partition("-")[0] != camera_key(record.camera):
        raise DataError(f"event {record.id[:80]}: expected an id of camera {record.camera[:80]}")
    if (kind == "end") == record.is_open:
        raise DataError(f"event {record.id}: expected an end time with an end and nothing else")
    return Change(
        site=named,
        camera=camera,
        kind=kind,
        record=record,
        turn=_turn(id),
        sequence=sequence,
    )


def of_fleet(record: Record, site: str) -> Record:
    """An event of a site as one of a fleet, where other sites have cameras of the same name."""
    camera = f"{site}/{record.camera}"
    track = record.tracks[0] if record.tracks else record.track_id
    id = event_id(camera, record.epoch, track, record.frame_seq)
    return replace(record, camera=camera, id=id)


def _facts(data: bytes) -> Mapping[str, Any]:
    if len(data) > MAX_BYTES:
        raise DataError(f"event: expected at most {MAX_BYTES} bytes, got {len(data)}")
    try:
        facts = json.loads(data)
        words = json.dumps(facts, ensure_ascii=False)
        words.encode()  # halves of characters are in no text
    except (ValueError, RecursionError) as error:
        raise DataError(f"event: expected JSON, got: {str(error)[:80]}") from None
    if not isinstance(facts, dict) or "\\u0000" in words:
        raise DataError("event: expected an object of JSON without NUL characters")
    return facts


def _record(facts: Any) -> Record:
    try:
        record = Record.from_json(facts)
    except OverflowError as error:
        raise DataError(f"event: expected the fields of an event, got: {error}") from None
    for name in ("id", "camera", "label", "model_id", "model_sha256"):
        _text(getattr(record, name), name)
    if not isinstance(record.why, str | None):
        raise DataError("event: expected a text as why, got another value")
    return record


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
        raise DataError(f"event: expected up to {LONGEST} characters as {name}, got another value")
    return value


def _turn(id: str) -> int:
    last = id.rpartition(":")[2]
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 19 else 0
