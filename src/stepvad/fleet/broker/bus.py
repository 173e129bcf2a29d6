"""What a bus does: publish, consume, acknowledge, lease, and keep small states.

Whoever waits for the broker gets an `UnavailableError` when it does not answer and tries again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stepvad.errors import StepvadError


class UnavailableError(StepvadError):
    """The broker does not answer, or not now: try again."""


class ConflictError(StepvadError):
    """Somebody else wrote in between: what was held is no longer ours."""


class Delivery(NamedTuple):
    """A message from a stream."""

    subject: str
    data: bytes
    sequence: int
    """Its place in the stream."""
    time: float
    """When the broker took it, by the broker's clock, in unix seconds."""
    tries: int = 1
    """How often it was delivered."""
    reply: str = ""
    """Where it is acknowledged."""
    headers: Mapping[str, str] | None = None


class Published(NamedTuple):
    """What the broker says of a message that it took."""

    sequence: int
    is_duplicate: bool
    """Whether it had one of this id already, at `sequence`."""


class Entry(NamedTuple):
    """A small state and its revision."""

    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the stream of poses; a broker that lost the stream begins another one."""

    stream: str = ""
    """Tells the stream from one that was made anew; empty: whichever there is."""
    sequence: int = 0
    """The last message that is not wanted."""
    seen: int = 0
    """A message that was read, and when the broker took it: brokers that die in turn lose the
    latest in their memory, and number others like them."""
    seen_at: float = 0.0

    def after(self, delivery: Delivery) -> Position:
        """Behind a message that was read."""
        return Position(self.stream, delivery.sequence, delivery.sequence, delivery.time)


class Consumer(Protocol):
    """Messages of a stream, in their order."""

    @property
    def position(self) -> Position:
        """The last message that was handed out."""

    @property
    def restarts(self) -> int:
        """How often it was made anew, after which there may be something to catch up with."""

    async def fetch(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """Messages that are there, at most so many; none if none comes in time."""

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are done with; consumers of poses have no need of it."""

    async def lag(self) -> int:
        """Messages that wait at the broker."""

    async def close(self) -> None:
        """Take no more."""


class Bus(Protocol):
    """A broker, as far as a fleet needs one."""

    connections: int
    """How often the connection was lost and came back."""

    async def setup(self) -> None:
        """Make the streams and buckets that are not there; refuse another number of shards."""

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        id: str | None = None,
        expect: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Published:
        """Have a message stored; once for an id.

        With `expect`, a `ConflictError` unless the last message of this subject has that sequence.
        """

    async def said(self, subject: str, after: int) -> Sequence[bytes]:
        """The events of a subject after a sequence."""

    async def poses(self, shard: int, name: str, after: Position) -> Consumer:
        """The frames of a shard after a place, for one reader of this name."""

    async def events(self, name: str) -> Consumer:
        """All events that readers of this name did not acknowledge; several may share a name."""

    async def lease(self, name: str, value: bytes, revision: int = 0) -> int:
        """Take a lease (revision 0) or renew it; a `ConflictError` if it ran out or is taken."""

    async def leases(self) -> Mapping[str, bytes]:
        """All leases that did not run out."""

    async def release(self, name: str) -> None:
        """Give a lease back."""

    async def read(self, key: str) -> Entry | None:
        """A small state."""

    async def write(self, key: str, value: bytes, revision: int) -> int:
        """Replace the state of this revision (0: none yet); its new revision."""

    async def time(self) -> float:
        """The broker's clock, in unix seconds."""

    async def close(self) -> None:
        """Hang up."""
