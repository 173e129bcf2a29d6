"""The bus protocol: publish, consume, acknowledge, lease, and store small states.

A call raises `UnavailableError` when the broker does not answer; the caller retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta

from stepvad.codec import LARGEST, Count
from stepvad.errors import StepvadError
from stepvad.events import rules
from stepvad.fleet.subjects import EVENTS


class UnavailableError(StepvadError):
    """The broker is unreachable or busy; retry later."""


class LimitError(UnavailableError):
    """The stream is full, or a site has too many events in it; retry later."""


class TooLargeError(StepvadError):
    """The message is larger than the broker takes; it will never be stored."""


class ConflictError(StepvadError):
    """Another process wrote in between: we no longer hold the lease, shard or revision."""


class Delivery(NamedTuple):
    """A message from a stream."""

    subject: str
    data: bytes
    sequence: int
    """Its stream sequence."""
    time: float
    """When the broker received it, by the broker's clock, in Unix seconds."""
    tries: int = 1
    """Number of deliveries, this one included."""
    reply: str = ""
    """Subject for its acknowledgement."""
    headers: Mapping[str, str] | None = None


class Published(NamedTuple):
    """The broker's acknowledgement of a published message."""

    sequence: int
    is_duplicate: bool
    """Whether a message with this id was already stored, at `sequence`."""


class Entry(NamedTuple):
    """A small state and its revision."""

    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the stream of poses; a broker that lost the stream starts a new one."""

    stream: str = ""
    """Identifies the stream, to detect a recreated one; empty means the current one."""
    sequence: Annotated[int, Meta(ge=-1, le=LARGEST - 1)] = 0
    """The last message to skip."""
    seen: Count = 0
    """The last message read; `seen_at` is when the broker received it. Brokers that die in turn
    lose their latest in-memory messages and reuse the sequence numbers."""
    seen_at: rules.Time = 0.0

    def after(self, delivery: Delivery) -> Position:
        """The position after a message that was read."""
        return Position(self.stream, delivery.sequence, delivery.sequence, delivery.time)


class Consumer(Protocol):
    """Reads messages of a stream in order."""

    @property
    def position(self) -> Position:
        """The last message returned."""

    @property
    def end(self) -> Position:
        """The last message of the stream when the consumer was first created."""

    @property
    def restarts(self) -> int:
        """How often it was recreated; after that there may be a backlog."""

    @property
    def is_drained(self) -> bool:
        """Whether the broker said that nothing more is pending; silence does not say so."""

    async def fetch(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """Return up to `most` available messages; none if none arrives in time."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages; not needed for consumers of poses."""

    async def lag(self) -> int:
        """Messages pending at the broker."""

    async def close(self) -> None:
        """Stop consuming."""


class Bus(Protocol):
    """The operations a fleet needs from a broker."""

    connections: int
    """Number of reconnects."""

    async def setup(self) -> None:
        """Create missing streams and buckets; reject a different number of shards."""

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        id: str | None = None,
        expect: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Published:
        """Store a message, once per id.

        With `expect`, raise `ConflictError` unless the subject's last message has that sequence.
        """

    async def said(self, subject: str, after: int) -> Sequence[bytes]:
        """The events of a subject after a sequence."""

    async def poses(self, shard: int, name: str, after: Position) -> Consumer:
        """Consume the frames of a shard after a position; only one reader may use the name."""

    async def events(self, name: str, stream: str = EVENTS) -> Consumer:
        """Consume all events not acknowledged under this name; several readers may share it.

        Sites that score by themselves have a stream of their own.
        """

    async def lease(self, name: str, value: bytes, revision: int = 0) -> int:
        """Take (revision 0) or renew a lease; raise `ConflictError` if it expired or is taken."""

    async def leases(self) -> Mapping[str, bytes]:
        """All leases that have not expired."""

    async def release(self, name: str) -> None:
        """Release a lease."""

    async def read(self, key: str) -> Entry | None:
        """Read a small state; None if there is none."""

    async def write(self, key: str, value: bytes, revision: int) -> int:
        """Replace the state of this revision (0: none yet); return its new revision."""

    async def time(self) -> float:
        """The broker's clock, in Unix seconds."""

    async def close(self) -> None:
        """Close the connection."""
