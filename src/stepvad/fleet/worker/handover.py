"""Cameras that move between shards in mid-connection: what the former owner leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from stepvad.codec import Fields
from stepvad.errors import DataError
from stepvad.events.record import Record
from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.moving import Moved
from stepvad.fleet.wire import UnreadableError
from stepvad.fleet.worker.checkpoint import VERSION, CameraState

WAIT_S = 30.0
"""Longest wait for the state of a camera; then it starts without one."""
OVERDUE_S = 300.0
"""How much longer it is asked for, because of an event that nobody else would end."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The state of a camera, left by the owner of its former shard."""

    camera: str
    epoch: int
    """The connection that goes on elsewhere."""
    state: CameraState | None
    """None if the former owner knew nothing of the connection."""
    seq: int | None = None
    """Frames of the connection before the move; None from workers that did not tell."""

    @property
    def key(self) -> str:
        """Its key in the bucket of handovers, which takes only some characters."""
        return handover_key(self.camera)

    def pack(self) -> bytes:
        """Serialise for the broker."""
        import msgpack

        facts = {
            "version": VERSION,
            "camera": self.camera,
            "epoch": self.epoch,
            "state": None if self.state is None else self.state.to_json(),
            "seq": self.seq,
        }
        data: bytes = msgpack.packb(facts)
        return data

    @classmethod
    def unpack(cls, value: bytes) -> Handover:
        """Parse what `pack` made; raise `UnreadableError` for anything else."""
        import msgpack

        try:
            own = Fields.wrap("handover", msgpack.unpackb(value))
            own.version(VERSION)
            state = own.value("state")
            return cls(
                own.text("camera"),
                own.whole("epoch"),
                None if state is None else CameraState.from_json(own.fields("state")),
                own.whole("seq") if own.values.get("seq") is not None else None,
            )
        except DataError as error:
            raise UnreadableError(f"handover: {error.problem[:200]}") from None
        except Exception as error:  # msgpack raises many types; none may stop a worker
            raise UnreadableError(f"handover: expected msgpack, got: {error!r:.100}") from None


def handover_key(camera: str) -> str:
    """The key of a camera's handover."""
    return blake2b(camera.encode(), digest_size=16).hexdigest()


@dataclass(slots=True, eq=False)
class Newcomer:
    """A camera that moved here and whose state has not arrived; its messages wait."""

    camera: str
    moved: Moved
    since: float
    deliveries: list[Delivery] = field(default_factory=list)
    handover: Handover | None = None
    """Set once it has arrived."""

    def is_ready(self, now: float) -> bool:
        """Whether its messages can be read: the state is here, or does not come."""
        return self.handover is not None or now - self.since > WAIT_S

    def offer(self, handover: Handover) -> None:
        """Take the state if it is that of this move: a camera may move again soon after another."""
        is_ours = handover.camera == self.camera and handover.epoch == self.moved.epoch
        if is_ours and handover.seq in (None, self.moved.seq):
            self.handover = handover

    def state(self) -> CameraState | None:
        """The state to go on with; what the former owner got is scored already."""
        found = None if self.handover is None else self.handover.state
        if found is None:
            return None
        return replace(found, scored=max(found.scored, self.moved.seq), sequence=0)


@dataclass(slots=True, eq=False)
class Newcomers:
    """All cameras of a shard that wait for their state."""

    _waiting: dict[str, Newcomer] = field(default_factory=dict)
    """Keyed by the subject of their frames."""
    _overdue: list[Newcomer] = field(default_factory=list)
    """Cameras that started without their state."""

    def __iter__(self) -> Iterator[Newcomer]:
        """In the order in which they came."""
        return iter([*self._waiting.values()])

    def asking(self) -> list[Newcomer]:
        """All whose state is still wanted."""
        return [*self._waiting.values(), *self._overdue]

    def hold(self, delivery: Delivery) -> bool:
        """Keep a message if its camera waits already."""
        known = self._waiting.get(delivery.subject)
        if known is not None:
            known.deliveries.append(delivery)
        return known is not None

    def add(self, delivery: Delivery, camera: str, moved: Moved, now: float) -> None:
        """Keep the first message of a camera that moved here."""
        self._waiting[delivery.subject] = Newcomer(camera, moved, now, [delivery])

    def ready(self, now: float) -> list[tuple[str, Newcomer]]:
        """Take those that need not wait any longer."""
        found = [(subject, one) for subject, one in self._waiting.items() if one.is_ready(now)]
        for subject, one in found:
            del self._waiting[subject]
            if one.handover is None:
                self._overdue.append(one)
        return found

    def left_behind(self, now: float) -> list[tuple[str, Record]]:
        """Open events of states that came too late, with their sites."""
        late = [one for one in self._overdue if one.handover is not None]
        self._overdue = [
            one
            for one in self._overdue
            if one.handover is None and now - one.since < WAIT_S + OVERDUE_S
        ]
        states = [one.handover.state for one in late if one.handover is not None]
        return [(s.site, s.reported) for s in states if s is not None and s.reported is not None]

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
