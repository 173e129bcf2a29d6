"""What a shard publishes and keeps, in order: events, unreadable messages, states."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from stepvad.fleet.wire import encode_event
from stepvad.fleet.worker.checkpoint import ShardCheckpoint, ShardState
from stepvad.fleet.worker.scoring import Announcement
from stepvad.fleet.worker.shard import PoisonMessage

FRAME_TIME = "Stepvad-Frame-Time"
"""Header with the time at which the broker received the frame that changed an event."""
WORKER = "Stepvad-Worker"
"""Header with the worker that published an event: that of the latest claim on the subject."""
BURIED = 65_536
"""Bytes kept of an unreadable message."""


class OutgoingMessage(NamedTuple):
    """A message to publish, and the time of the frame that caused it."""

    subject: str
    data: bytes
    id: str
    is_event: bool
    headers: dict[str, str] | None = None
    time: float = 0.0

    @classmethod
    def of_event(cls, change: Announcement, subject: str, worker: str) -> OutgoingMessage:
        """A change of an event."""
        slot = change.slot if change.kind == "update" else 0
        data = encode_event(change.site, change.kind, change.before, change.after)
        headers = {WORKER: worker}
        if change.time:
            headers[FRAME_TIME] = f"{change.time:.6f}"
        id = f"{change.after.id}:{change.kind}:{slot}"
        return cls(subject, data, id, True, headers, change.time)

    @classmethod
    def of_poison(cls, one: PoisonMessage, prefix: str, stream: str) -> OutgoingMessage:
        """A message of a stream that could not be read."""
        delivery, reason, problem = one
        headers = {
            "Stepvad-Reason": reason,
            "Stepvad-Problem": problem[:200].encode("ascii", "replace").decode(),
            "Stepvad-Subject": delivery.subject,
            "Stepvad-Size": str(len(delivery.data)),
        }
        id = f"dead:{stream}:{delivery.sequence}"
        return cls(f"{prefix}.{reason}", delivery.data[:BURIED], id, False, headers)


class Checkpoint(NamedTuple):
    """A checkpoint to write after all messages queued before it."""

    state: ShardState
    is_last: bool
    recalled_since: int | None = None
    """While events of a former owner are open, a successor has to read from here on."""

    def pack(self, owner: str, said: int) -> bytes:
        """Serialise with the sequence of the last message on the event subject."""
        if self.recalled_since is not None:
            said = min(said, self.recalled_since)
        state = replace(self.state, said=said).to_json()
        return ShardCheckpoint("" if self.is_last else owner, state).pack()


OutgoingItem = OutgoingMessage | Checkpoint
