"""Events of a fleet and messages about them, for tests."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from stepvad.events.record import Record, message
from stepvad.events.rules import ChangeKind
from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.event_message import ID, FleetChange, change_of
from tests.site.records import record

CAMERA = "north/yard"


def event(number: int = 0, camera: str = CAMERA, **more: Any) -> Record:
    """The start of an event of a fleet."""
    return record(camera, number, **more)


def body(kind: ChangeKind, one: Record, /, *, site: str = "north", **more: Any) -> bytes:
    """A message as a worker writes it."""
    return json.dumps(asdict(message(kind, None, one)) | {"site": site} | more).encode()


def delivery(data: bytes, sequence: int = 1, id: str = "") -> Delivery:
    return Delivery("stepvad.events.1", data, sequence, 0.0, headers={ID: id})


def change(
    kind: ChangeKind, after: Record, sequence: int = 1, turn: int = 0, *, tenant: str = ""
) -> FleetChange:
    data = body(kind, after, site=after.camera.partition("/")[0])
    found = change_of(delivery(data, sequence, f"{after.id}:{kind}:{turn}"), tenant=tenant)
    assert found is not None
    return found


def over(one: Record, lasts_s: float = 5.0) -> Record:
    return one.ended("calm", one.start_time + lasts_s)


def worse(one: Record, top_score: float) -> Record:
    return replace(one, top_score=top_score, score=top_score)
