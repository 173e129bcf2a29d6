"""What a broker acknowledged to a process, written down as it did."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from stepvad.fleet.broker.bus import Published
from stepvad.fleet.broker.nats import NatsBus

NO_ID = "-"


class Acknowledged(NamedTuple):
    """A message that the broker said it stored."""

    time: float
    subject: str
    id: str
    sequence: int
    is_duplicate: bool
    data: bytes


def record_publishing(path: Path, *, bodies: bool = False) -> None:
    """From now on, acknowledgements leave a line each, with what was sent if `bodies`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    publish = NatsBus.publish

    async def recording(
        self: NatsBus,
        subject: str,
        data: bytes,
        *,
        id: str | None = None,
        expect: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Published:
        done = await publish(self, subject, data, id=id, expect=expect, headers=headers)
        kept = base64.b64encode(data).decode() if bodies else ""
        facts = time.time(), subject, id or NO_ID, done.sequence, int(done.is_duplicate), kept
        os.write(file, ("\t".join(map(str, facts)) + "\n").encode())
        return done

    NatsBus.publish = recording  # type: ignore[method-assign]  # as it was, and written down


def acknowledged(paths: Iterable[Path]) -> list[Acknowledged]:
    """What was written down; a last line may be cut by a kill."""
    found = []
    for path in paths:
        for line in path.read_text().split("\n")[:-1] if path.exists() else []:
            at, subject, id, sequence, duplicate, data = line.split("\t")
            facts = float(at), subject, id, int(sequence), duplicate == "1"
            found.append(Acknowledged(*facts, base64.b64decode(data)))
    return found
