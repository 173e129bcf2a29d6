"""Event messages: validation, and which of two changes is newer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from stepvad.errors import DataError
from stepvad.events.record import Record, camera_key, event_id
from stepvad.events.rules import ChangeKind
from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.wire import decode_event

RANKS: Mapping[ChangeKind, int] = {kind: rank for rank, kind in enumerate(get_args(ChangeKind))}
MAX_BYTES = 1 << 20
LONGEST = 300
"""Most characters of a name or an id."""
ID = "Nats-Msg-Id"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """One change of one event of a fleet, as received."""

    site: str
    camera: str
    """Without the site."""
    kind: ChangeKind
    record: Record
    """The event; its camera is `site/camera`."""
    turn: int
    """Of two changes of the same kind, the one with the higher turn is newer."""
    sequence: int
    """Stream sequence of the message."""

    @property
    def rank(self) -> int:
        """Order of the kinds; a later kind is newer regardless of its turn."""
        return RANKS[self.kind]


def change_of(delivery: Delivery, *, site: str | None = None) -> FleetChange | None:
    """Parse the change in a message, None for a claim; reject it if it is not from `site`.

    The turn is the last part of the message id, a slot number.
    """
    if len(delivery.data) > MAX_BYTES:
        raise DataError(f"event: expected at most {MAX_BYTES} bytes, got {len(delivery.data)}")
    try:
        told = decode_event(delivery.data)
    except OverflowError as error:
        raise DataError(f"event: expected the fields of an event, got: {error}") from None
    if told is None:
        return None
    if site is not None and site != told.site:
        raise DataError(f"event: expected one of site {site}, got one of {told.site}")
    record = told.after
    _check(record)
    of, _, camera = record.camera.partition("/")
    if of != told.site or not camera:
        raise DataError(f"event: expected a camera {told.site}/..., got {record.camera!r:.80}")
    if record.id.partition("-")[0] != camera_key(record.camera):
        raise DataError(f"event {record.id}: expected an id of camera {record.camera}")
    # words that a site found after the end come as an update of what is over
    kind = "end" if told.kind == "update" and not record.is_open else told.kind
    if (kind == "end") == record.is_open:
        raise DataError(
            f"event {record.id}: expected an end time if it is an end, and otherwise none"
        )
    return FleetChange(
        site=told.site,
        camera=camera,
        kind=kind,
        record=record,
        turn=_turn((delivery.headers or {}).get(ID, "")),
        sequence=delivery.sequence,
    )


def of_fleet(record: Record, site: str) -> Record:
    """Prefix the camera of a site's event with the site, to make its name and id unique."""
    camera = f"{site}/{record.camera}"
    track = record.tracks[0] if record.tracks else record.track_id
    id = event_id(camera, record.epoch, track, record.frame_seq)
    return replace(record, camera=camera, id=id)


def _check(record: Record) -> None:
    """Reject text that the database cannot store or a page cannot show."""
    for name in ("id", "camera", "label", "model_id", "model_sha256"):
        _text(getattr(record, name), name, LONGEST)
    for zone in record.zones:
        _text(zone, "a zone", LONGEST)
    if record.why is not None:
        _text(record.why, "why", MAX_BYTES)


def _text(value: object, name: str, longest: int) -> None:
    if not isinstance(value, str) or not len(value) <= longest or "\0" in value:
        raise DataError(f"event: expected up to {longest} characters as {name}, got another value")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"event: expected valid Unicode as {name}, got half a character") from None


def _turn(id: str) -> int:
    last = id.rpartition(":")[2]
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 19 else 0
