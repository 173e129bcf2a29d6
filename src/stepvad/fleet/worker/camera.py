"""A worker's state of one camera: frames in order, last published event, checkpoint."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from stepvad.events.camera import CameraEvents, CameraProfile
from stepvad.events.record import Record
from stepvad.fleet.wire import Batch, CameraConnection, UnreadableError
from stepvad.fleet.worker.checkpoint import CameraState
from stepvad.skeletons import missing_joints
from stepvad.windows.runs import Sampling

DEPTH = 5
"""How many messages a late one may arrive behind."""


class Reorder:
    """Orders the batches of one connection by sequence number; holds early ones back."""

    def __init__(self, next_seq: int | None = None) -> None:
        self.next = next_seq
        """Number of the next expected frame; None before the first."""
        self.duplicates = 0
        """Frames that arrived twice or too late."""
        self.missed = 0
        """Frames that never arrived."""
        self._held: dict[int, Batch] = {}

    def __len__(self) -> int:
        """Batches held."""
        return len(self._held)

    def push(self, batch: Batch) -> list[Batch]:
        """Add a batch and return those that are now in order."""
        if self.next is None:
            # connections count from 0: earlier messages may still arrive
            self.next = 0 if batch.seq <= DEPTH * max(len(batch), 1) else batch.seq
        if batch.seq == self.next and not self._held:
            self.next = batch.end
            return [batch]
        known = self._held.get(batch.seq)
        if batch.end <= self.next or (known is not None and known.end >= batch.end):
            self.duplicates += len(batch)
            return []
        if known is not None:
            self.duplicates += len(known)
        self._held[batch.seq] = batch
        released = self._consecutive()
        if len(self._held) > DEPTH:
            released += self.skip()
        return released

    def skip(self) -> list[Batch]:
        """Give up on the next missing frames and return the held batches that follow."""
        released: list[Batch] = []
        if self._held and self.next is not None:
            first = min(self._held)
            self.missed += max(first - self.next, 0)
            self.next = max(self.next, first)
            released = self._consecutive()
        return released

    def flush(self) -> list[Batch]:
        """Return everything held, at the end of a connection."""
        released = []
        while self._held:
            released += self.skip()
        return released

    def leave_out(self, batch: Batch) -> int:
        """Skip past a batch and return how many of its frames were still due."""
        due = batch.seq if self.next is None else self.next
        self.next = max(due, batch.end)
        self._held = {seq: held for seq, held in self._held.items() if held.end > self.next}
        return max(batch.end - max(due, batch.seq), 0)

    def _consecutive(self) -> list[Batch]:
        released: list[Batch] = []
        while self._held and self.next is not None and min(self._held) <= self.next:
            batch = self._held.pop(min(self._held))
            seen = min(self.next - batch.seq, len(batch))
            self.duplicates += seen
            if seen < len(batch):
                released.append(batch.part(seen, len(batch)) if seen else batch)
                self.next = batch.end
        return released


PAST = 8
"""Past connections remembered, to recognise their late messages."""


@dataclass(slots=True, eq=False)
class FleetCamera:
    """One camera of a shard, across its connections."""

    site: str
    profile: CameraProfile
    epoch: int
    wall0: float
    number: int
    """Identifies the connection in the assembler."""
    reorder: Reorder
    events: CameraEvents = field(init=False)
    reach: int = field(init=False)
    """How many slots back windows may reach, including interpolated ones."""
    known: CameraConnection | None = None
    """The connection header of the latest message, already checked against this camera."""
    past: tuple[int, ...] = ()
    scored: int = 0
    """Frames before this number are already scored; they only complete windows."""
    last_slot: int = -1
    """The latest slot added to windows."""
    needed: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Messages that windows still need: stream sequence, frame number, last slot."""
    replay_from: int | None = None
    """The first frame that windows in progress need, until it is replayed after a takeover."""
    last_sequence: int = 0
    heard: float = 0.0
    """Monotonic time of its last message."""
    held_since: float | None = None
    """Monotonic time since which frames are held back for earlier ones."""
    reported: Record | None = None
    """The last published version of the open event."""
    is_blank: bool = True
    """Whether no windows are in progress."""
    is_over: bool = False
    """Whether the connection ended; one that timed out may resume."""
    is_lost: bool = False
    """Whether the camera itself reported that the connection was lost."""

    def __post_init__(self) -> None:
        """Start watching the connection."""
        self.events = self._events()
        sampling = Sampling.for_rate(self.profile.detector.config, self.profile.rate)
        self.reach = sampling.span + sampling.gap

    @property
    def name(self) -> str:
        """The camera as `site/camera`."""
        return self.profile.camera

    def note(self, batch: Batch, sequence: int) -> None:
        """Record the stream sequence of a batch for as long as windows need its frames."""
        last = batch.slots[-1]
        self.needed.append((sequence, batch.seq, last))
        self.replay_from = None
        oldest = min(self.last_slot, last) - self.reach
        while self.needed[0][2] < oldest:
            self.needed.popleft()

    def need_nothing(self) -> None:
        """Forget the frames of windows in progress, which will not be completed."""
        self.needed.clear()
        self.replay_from = None

    def is_late(self, epoch: int) -> bool:
        """Whether a message belongs to a connection that has ended."""
        return epoch in self.past or (self.is_lost and epoch == self.epoch)

    def check(self, connection: CameraConnection) -> None:
        """Reject frames of another camera, or ones that this camera's model cannot score."""
        if connection.name != self.name:
            raise UnreadableError(
                f"poses: expected those of {self.name}, got some of {connection.name}"
            )
        given, target = connection.skeleton, self.profile.detector.skeleton
        if missing := missing_joints(given, target):
            raise UnreadableError(
                f"poses: expected the joints of {target.name}, "
                f"got {given.name} without {', '.join(missing[:3])}"
            )
        if connection.epoch == self.epoch and connection.rate != self.profile.rate:
            raise UnreadableError(
                f"poses: expected {self.profile.rate} frames a second, got {connection.rate}"
            )

    def begin(self, connection: CameraConnection, number: int) -> None:
        """Start a new connection, or resume the current one after it timed out."""
        if connection.epoch != self.epoch:
            self.past = (*self.past, self.epoch)[-PAST:]
            self.scored = 0
        self.epoch, self.wall0, self.number = connection.epoch, connection.wall0, number
        self.reorder = Reorder(self.reorder.next if self.is_over and self.scored else None)
        self.last_slot = -1
        self.need_nothing()
        self.held_since, self.reported = None, None
        self.is_over = self.is_lost = False
        self.events = self._events()

    def state(self) -> CameraState:
        """The checkpoint that another worker resumes from."""
        is_idle = self.events.is_idle
        first = self.scored if self.replay_from is None else self.replay_from
        return CameraState(
            site=self.site,
            rate=self.profile.rate,
            epoch=self.epoch,
            wall0=self.wall0,
            past=self.past,
            scored=self.scored,
            first=min((seq for _, seq, _ in self.needed), default=first),
            sequence=self.last_sequence,
            is_over=self.is_over,
            is_lost=self.is_lost,
            events=None if is_idle else self.events.state(),
            reported=None if is_idle else self.reported,
        )

    @classmethod
    def restore(
        cls, profile: CameraProfile, state: CameraState, number: int, now: float
    ) -> FleetCamera:
        """Restore a camera from `state`; its windows are rebuilt from replayed frames."""
        made = cls(
            site=state.site,
            profile=profile,
            epoch=state.epoch,
            wall0=state.wall0,
            number=number,
            reorder=Reorder(state.scored if state.is_over else state.first),
            past=state.past,
            scored=state.scored,
            replay_from=None if state.is_over else state.first,
            last_sequence=state.sequence,
            heard=now,
            is_over=state.is_over,
            is_lost=state.is_lost,
        )
        if state.events is not None:
            made.events.restore(state.events)
            made.reported = state.reported
        return made

    def _events(self) -> CameraEvents:
        made = CameraEvents(self.profile, lambda: self.epoch, kept_s=0.0)
        made.start_connection(self.wall0)
        return made
