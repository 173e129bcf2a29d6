"""One camera as its worker knows it: what is due, what was told, what a successor needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepvad.fleet.wire import Batch, Connection
from stepvad.fleet.worker.reorder import Reorder
from stepvad.incidents.camera import CameraEvents, Subject
from stepvad.incidents.record import Record
from stepvad.poses import MAX_FPS

PAST = 8
"""Connections remembered, so that what comes late from them is known as such."""


@dataclass(slots=True, eq=False)
class Camera:
    """A camera of a shard, connection after connection."""

    site: str
    subject: Subject
    epoch: int
    wall0: float
    number: int
    """Of the connection, among those of the assembler."""
    reorder: Reorder
    events: CameraEvents = field(init=False)
    known: Connection | None = None
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

    def begin(self, connection: Connection, number: int) -> None:
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

    def state(self) -> dict[str, Any]:
        """What a successor needs, as plain values."""
        facts: dict[str, Any] = {
            "site": self.site,
            "rate": self.subject.rate,
            "epoch": self.epoch,
            "wall0": self.wall0,
            "past": list(self.past),
            "scored": self.scored,
            "from": min((seq for _, seq, _ in self.needed), default=self.scored),
            "sequence": self.last_sequence,
            "over": self.is_over,
            "lost": self.is_lost,
        }
        if not self.events.is_idle:
            facts["watcher"] = self.events.state()
            facts["told"] = None if self.told is None else self.told.to_json()
        return facts

    @classmethod
    def restore(cls, subject: Subject, facts: Mapping[str, Any], number: int, now: float) -> Camera:
        """The camera that `state` told of; its windows come again with its frames."""
        _check(facts)
        made = cls(
            site=facts["site"],
            subject=subject,
            epoch=facts["epoch"],
            wall0=facts["wall0"],
            number=number,
            reorder=Reorder(facts["scored"] if facts["over"] else facts["from"]),
            past=tuple(facts["past"]),
            scored=facts["scored"],
            last_sequence=facts["sequence"],
            heard=now,
            is_over=facts["over"],
            is_lost=facts["lost"],
        )
        if "watcher" in facts:
            made.events.restore(facts["watcher"])
            made.told = None if facts["told"] is None else Record.from_json(facts["told"])
        return made

    def _events(self) -> CameraEvents:
        made = CameraEvents(self.subject, lambda: self.epoch, kept_s=0.0)
        made.begin(self.wall0)
        return made


def _check(facts: Mapping[str, Any]) -> None:
    """Refuse values of other types than `Camera.state` has."""
    counts = [facts[name] for name in ("epoch", "scored", "from", "sequence")]
    wall0, rate = facts["wall0"], facts["rate"]
    if not (
        isinstance(facts["site"], str)
        and {*map(type, counts), *map(type, facts["past"])} <= {int}
        and all(0 <= count < 2**63 for count in counts)
        and {type(facts["over"]), type(facts["lost"])} == {bool}
        and {type(wall0), type(rate)} <= {int, float}
        and abs(wall0) <= 1e12
        and 0 < rate <= MAX_FPS
    ):
        raise ValueError("a camera with values of other types")
