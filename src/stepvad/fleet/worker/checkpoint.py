"""Checkpoints of shards in the broker, from which another worker resumes: typed and versioned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepvad.codec import Fields, JsonObject, check_version, from_plain, to_plain
from stepvad.errors import DataError
from stepvad.events.camera import CameraEventsState
from stepvad.events.record import Record
from stepvad.events.rules import LATEST_S
from stepvad.fleet.broker.bus import Position
from stepvad.fleet.wire import UnreadableError
from stepvad.poses import MAX_FPS

VERSION = 1
"""Layout version of a state; checkpoints without a version use this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraState:
    """The checkpoint of one camera."""

    site: str
    rate: float
    epoch: int
    wall0: float
    past: tuple[int, ...]
    scored: int
    first: int
    """The first frame that windows in progress need."""
    sequence: int
    is_over: bool
    is_lost: bool
    events: CameraEventsState | None = None
    """None while no event is open or pending."""
    reported: Record | None = None

    def to_json(self) -> JsonObject:
        """Plain values."""
        facts: JsonObject = {
            "site": self.site,
            "rate": self.rate,
            "epoch": self.epoch,
            "wall0": self.wall0,
            "past": list(self.past),
            "scored": self.scored,
            "from": self.first,
            "sequence": self.sequence,
            "over": self.is_over,
            "lost": self.is_lost,
        }
        if self.events is not None:
            facts["watcher"] = to_plain(self.events)
            facts["told"] = None if self.reported is None else to_plain(self.reported)
        return facts

    @classmethod
    def from_json(cls, own: Fields) -> CameraState:
        """Parse the output of `to_json`."""
        rate = own.number("rate", most=MAX_FPS)
        if not rate > 0:
            raise own.unlike("rate", "a rate above 0")
        events = own.value("watcher") if "watcher" in own else None
        reported = None if events is None else own.value("told")
        return cls(
            site=own.text("site"),
            rate=rate,
            epoch=own.whole("epoch"),
            wall0=own.number("wall0", most=LATEST_S),
            past=own.wholes("past"),
            scored=own.whole("scored"),
            first=own.whole("from"),
            sequence=own.whole("sequence"),
            is_over=own.flag("over"),
            is_lost=own.flag("lost"),
            events=None
            if events is None
            else from_plain(CameraEventsState, events, "events of a camera"),
            reported=None if reported is None else from_plain(Record, reported, "event"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """The checkpoint of a shard."""

    floor: Position
    """The position up to which no message is needed any more."""
    cameras: Mapping[str, CameraState]
    """By name, as `site/camera`."""
    said: int = 0
    """Sequence of the last message on its event subject, set when the checkpoint is written."""

    def to_json(self) -> JsonObject:
        """Plain values."""
        return {
            "stream": self.floor.stream,
            "floor": self.floor.sequence,
            "seen": [self.floor.seen, self.floor.seen_at],
            "cameras": {name: camera.to_json() for name, camera in self.cameras.items()},
            "said": self.said,
        }

    @classmethod
    def from_json(cls, facts: object) -> ShardState:
        """Parse the output of `to_json`; raise `UnreadableError` for anything else."""
        try:
            own = Fields.wrap("state", facts)
            cameras = {
                name: CameraState.from_json(one) for name, one in own.objects("cameras").items()
            }
            return cls(floor=_floor(own), cameras=cameras, said=own.whole("said"))
        except DataError as error:
            raise UnreadableError(
                f"state: expected that of a shard, got: {error.problem[:200]}"
            ) from None


def _floor(own: Fields) -> Position:
    seen = own.items("seen") if "seen" in own else [0, 0.0]
    if len(seen) != 2:
        raise own.unlike("seen", "a number and a time")
    pair = Fields("state", {"seen": seen[0], "seen_at": seen[1]})
    return Position(
        own.text("stream"),
        own.whole("floor", least=-1),
        pair.whole("seen"),
        pair.number("seen_at", most=LATEST_S),
    )


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """The owner of a shard and its raw state.

    A state of a newer version is preserved for workers that can read it; the owner is always
    readable.
    """

    owner: str
    """Empty if the shard was released."""
    state: Mapping[str, object] | None = None
    version: int = VERSION

    def shard_state(self) -> ShardState | None:
        """The validated state; raise `UnreadableError` if it is newer or damaged."""
        if self.state is None:
            return None
        try:
            check_version("checkpoint", self.version, VERSION)
        except DataError as error:
            raise UnreadableError(error.problem, hint=error.hint) from None
        return ShardState.from_json(self.state)

    def pack(self) -> bytes:
        """Serialise for the broker."""
        import msgpack

        facts = {"owner": self.owner, "state": self.state, "version": self.version}
        data: bytes = msgpack.packb(facts)
        return data

    @classmethod
    def unpack(cls, value: bytes) -> ShardCheckpoint:
        """Parse the bytes of a checkpoint; raise `UnreadableError` for anything else."""
        import msgpack

        try:
            facts = msgpack.unpackb(value, strict_map_key=False)
        except Exception as error:  # msgpack raises many types; none may stop a worker
            raise UnreadableError(
                f"checkpoint: expected msgpack, got: {type(error).__name__}"
            ) from None
        match facts:
            case {"owner": str(owner), "state": None | dict() as state}:
                return cls(owner, state, facts.get("version", 1))
        raise UnreadableError("checkpoint: expected an owner and a state, got something else")
