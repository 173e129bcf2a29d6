"""Checkpoints of shards in the broker, from which another worker resumes: typed and versioned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from stepvad.codec import Count, JsonObject, check_version, from_plain, to_plain
from stepvad.errors import DataError
from stepvad.events import rules
from stepvad.events.camera import CameraEventsState
from stepvad.events.record import Record
from stepvad.fleet.broker.bus import Position
from stepvad.fleet.wire import UnreadableError
from stepvad.poses import MAX_FPS

VERSION = 1
"""Layout version of a state; checkpoints without a version use this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraState:
    """The checkpoint of one camera."""

    site: str
    rate: Annotated[float, Meta(gt=0, le=MAX_FPS)]
    epoch: Count
    wall0: rules.Time
    past: tuple[Count, ...]
    scored: Count
    first: Count
    """The first frame that windows in progress need."""
    sequence: Count
    is_over: bool
    is_lost: bool
    events: CameraEventsState | None = None
    """None while no event is open or pending."""
    reported: Record | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """The checkpoint of a shard."""

    floor: Position
    """The position up to which no message is needed any more."""
    cameras: Mapping[str, CameraState]
    """By name, as `site/camera`."""
    said: Count = 0
    """Sequence of the last message on its event subject, set when the checkpoint is written."""

    def to_json(self) -> JsonObject:
        """Plain values."""
        facts: JsonObject = to_plain(self)
        return facts

    @classmethod
    def from_json(cls, facts: object) -> ShardState:
        """Parse the output of `to_json`; raise `UnreadableError` for anything else."""
        try:
            return from_plain(cls, facts, "state")
        except DataError as error:
            raise UnreadableError(
                f"state: expected that of a shard, got: {error.problem[:200]}"
            ) from None


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
