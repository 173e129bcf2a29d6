"""One camera as its worker knows it: what is due, what was told, what a successor needs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from stepvad.fleet.wire import Batch, CameraConnection
from stepvad.fleet.worker.checkpoint import CameraState
from stepvad.fleet.worker.reorder import Reorder
from stepvad.incidents.camera_events import CameraEvents, CameraProfile
from stepvad.incidents.record import Record

PAST = 8
"""Connections remembered, so that what comes late from them is known as such."""


@dataclass(slots=True, eq=False)
class FleetCamera:
    """A camera of a shard, connection after connection."""

    site: str
    subject: CameraProfile
    epoch: int
    wall0: float
    number: int
    """Of the connection, among those of the assembler."""
    reorder: Reorder
    events: CameraEvents = field(init=False)
    known: CameraConnection | None = None
    """What its latest message said of the connection: it fits this camera."""
    past: tuple[int, ...] = ()
    scored: int = 0
    """Frames before this number are done with: they only make windows whole."""
    last_slot: int = -1
    """The latest that was put into windows."""
    needed: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Messages with one of the latest frames: stream sequence, frame number, last slot."""
    last_sequence: int = 0
    heard: float = 0.0
    """When it last sent something, by the clock that never moves."""
    held_since: float | None = None
    """Since when frames wait for others before them."""
    told: Record | None = None
    """The event as it was last announced."""
    is_blank: bool = True
    """Whether there are no windows under way."""
    is_over: bool = False
    """Whether the connection ended; a silent one may go on."""
    is_lost: bool = False
    """Whether the camera said itself that it ended."""

    def __post_init__(self) -> None:
        """Watch a connection from its beginning."""
        self.events = self._events()

    @property
    def name(self) -> str:
        """The camera as `site/camera`."""
        return self.subject.camera

    @property
    def reach(self) -> int:
        """Slots that windows may reach back, those that are interpolated included."""
        return 2 * self.subject.detector.config.T

    def note(self, batch: Batch, sequence: int) -> None:
        """Remember where in the stream frames are, as long as windows need them."""
        last = batch.slots[-1]
        self.needed.append((sequence, batch.seq, last))
        oldest = min(self.last_slot, last) - self.reach
        while self.needed[0][2] < oldest:
            self.needed.popleft()

    def is_late(self, epoch: int) -> bool:
        """Whether a message is from a connection that is over."""
        return epoch in self.past or (self.is_lost and epoch == self.epoch)

    def begin(self, connection: CameraConnection, number: int) -> None:
        """Another connection, or the same one after a silence."""
        if connection.epoch != self.epoch:
            self.past = (*self.past, self.epoch)[-PAST:]
            self.scored = 0
        self.epoch, self.wall0, self.number = connection.epoch, connection.wall0, number
        self.reorder = Reorder(self.reorder.next if self.is_over and self.scored else None)
        self.last_slot = -1
        self.needed.clear()
        self.held_since, self.told = None, None
        self.is_over = self.is_lost = False
        self.events = self._events()

    def state(self) -> CameraState:
        """What a successor needs."""
        is_idle = self.events.is_idle
        return CameraState(
            site=self.site,
            rate=self.subject.rate,
            epoch=self.epoch,
            wall0=self.wall0,
            past=self.past,
            scored=self.scored,
            first=min((seq for _, seq, _ in self.needed), default=self.scored),
            sequence=self.last_sequence,
            is_over=self.is_over,
            is_lost=self.is_lost,
            events=None if is_idle else self.events.state(),
            told=None if is_idle else self.told,
        )

    @classmethod
    def restore(
        cls, subject: CameraProfile, state: CameraState, number: int, now: float
    ) -> FleetCamera:
        """The camera that `state` told of; its windows come again with its frames."""
        made = cls(
            site=state.site,
            subject=subject,
            epoch=state.epoch,
            wall0=state.wall0,
            number=number,
            reorder=Reorder(state.scored if state.is_over else state.first),
            past=state.past,
            scored=state.scored,
            last_sequence=state.sequence,
            heard=now,
            is_over=state.is_over,
            is_lost=state.is_lost,
        )
        if state.events is not None:
            made.events.restore(state.events)
            made.told = state.told
        return made

    def _events(self) -> CameraEvents:
        made = CameraEvents(self.subject, lambda: self.epoch, kept_s=0.0)
        made.begin(self.wall0)
        return made
