"""A shard: a subset of the cameras; turns their frames into event changes."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stepvad.errors import DataError
from stepvad.events.record import EndedBy
from stepvad.fleet.broker.bus import Delivery, Position
from stepvad.fleet.subjects import Subjects
from stepvad.fleet.wire import (
    Batch,
    CameraConnection,
    EventMessage,
    UnreadableError,
    decode,
    decode_event,
)
from stepvad.fleet.worker.camera import FleetCamera, Reorder
from stepvad.fleet.worker.checkpoint import ShardState
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.scoring import Announcement, BatchScorer, Work, changed

logger = logging.getLogger(__name__)


FORGET_S = 20.0
"""After a takeover frames may still come: edges send their latest again if a broker lost them."""


class RecalledEvents:
    """Open events that a former owner published after its last checkpoint.

    Replaying the frames recreates most of them.
    """

    def __init__(self) -> None:
        self._open: dict[str, EventMessage] = {}
        self._since = 0
        self._until = Position()
        """The last message of poses that the former owner can have seen."""
        self._due = 0.0

    def load(self, said: Iterable[bytes], *, since: int, until: Position, now: float) -> None:
        """Read what the former owner published after message `since` of the events."""
        self._since, self._until, self._due = since, until, now + FORGET_S
        for data in said:
            with suppress(UnreadableError):
                message = decode_event(data)
                if message is not None and message.kind == "end":
                    self._open.pop(message.after.id, None)
                elif message is not None:
                    self._open[message.after.id] = message

    @property
    def since(self) -> int | None:
        """After which message of the events a successor has to read; None if nothing is open."""
        return self._since if self._open else None

    def recreate(self, ids: Iterable[str]) -> None:
        """Leave events to the cameras that made them again."""
        for id in ids:
            self._open.pop(id, None)

    def is_due(self, position: Position, now: float, *, is_drained: bool) -> bool:
        """Whether all frames that the former owner saw were read again, if they still exist."""
        until = self._until
        is_read = position.stream != until.stream or position.sequence >= until.sequence
        return now >= self._due and (is_read or is_drained)

    def forgotten(self, known: Set[str]) -> list[Announcement]:
        """End those that were not recreated because their frames have expired."""
        found: list[Announcement] = []
        for id_, message in self._open.items():
            if id_ not in known:
                logger.info("event %s: its frames are gone", id_)
                record = message.after.ended("interrupted", message.after.start_time)
                found.append(Announcement(message.site, "end", message.after, record, 0, 0.0))
        self._open.clear()
        return found

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open)


MOST_CAMERAS = 10_000
"""Most cameras of one shard."""
TRIES = 3
"""Attempts to read a message before it is dropped."""
NONSENSE_S = 600.0
"""A frame that seems older than this means the broker's clock was moved."""
HELD_S = 1.0
"""Longest time frames are held back for earlier ones."""


class PoisonMessage(NamedTuple):
    """An unreadable message."""

    delivery: Delivery
    reason: str
    problem: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Age at which frames are shed, and silence after which a camera is lost."""

    shed_s: float = 1.5
    silent_s: float = 30.0


@dataclass(slots=True, eq=False)
class Shard:
    """The cameras of a shard; one worker owns it at a time."""

    number: int
    subjects: Subjects
    models: FleetModels
    scorer: BatchScorer
    pace: Pace
    cameras: dict[str, FleetCamera] = field(default_factory=dict)
    """Keyed by the subject of their frames."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Frames by camera: shed, duplicate, missed, late, refused."""
    position: Position = field(default_factory=Position)
    """The last message taken."""
    changes: list[Announcement] = field(default_factory=list)
    dead: list[PoisonMessage] = field(default_factory=list)
    recalled: RecalledEvents = field(default_factory=RecalledEvents)
    is_shedding: bool = False
    _doubtful: list[tuple[Delivery, int]] = field(default_factory=list)
    _works: list[Work] = field(default_factory=list)
    _held_back: dict[str, FleetCamera] = field(default_factory=dict)
    """Cameras with frames held back."""
    _unknown: set[str] = field(default_factory=set)

    def take(
        self, deliveries: Sequence[Delivery], now: float, clock: float | None
    ) -> Sequence[Work]:
        """Return the frames that are due; `clock` is the broker's, None to shed nothing."""
        self._works = []
        again, self._doubtful = self._doubtful, []
        for delivery, tries in again:
            self._try(delivery, tries, now, None)
        for delivery in deliveries:
            self._try(delivery, 0, now, clock)
        if deliveries:
            self.position = self.position.after(deliveries[-1])
        self._release(now)
        works, self._works = self._works, []
        return works

    def flush(self) -> None:
        """Score the frames taken so far, before a camera ends or sheds frames."""
        works, self._works = self._works, []
        if works:
            self.changes += self.scorer.score(works)

    def end_silent(self, now: float) -> None:
        """End the events of cameras that stopped sending."""
        for camera in self.cameras.values():
            if not camera.is_over and now - camera.heard > self.pace.silent_s:
                logger.info("camera %s: silent for %g s", camera.name, now - camera.heard)
                self._lose(camera, "camera lost")

    def end_forgotten(self, now: float, *, is_drained: bool) -> None:
        """End recalled events that were not recreated because their frames have expired."""
        self.recalled.recreate(change.after.id for change in self.changes)
        is_due = self.recalled.is_due(self.position, now, is_drained=is_drained)
        if is_due and self.recalled:
            going = {c.reported.id for c in self.cameras.values() if c.reported is not None}
            self.changes += self.recalled.forgotten(going)

    def hear_all(self, now: float) -> None:
        """Reset the silence timers of all cameras, after the broker was unreachable."""
        for camera in self.cameras.values():
            camera.heard = now

    def floor(self) -> Position:
        """The position up to which no message is needed any more."""
        needed = [c.needed[0][0] for c in self.cameras.values() if c.needed and not c.is_over]
        needed += [delivery.sequence for delivery, _ in self._doubtful]
        at = self.position
        return replace(at, sequence=min([at.sequence, *(first - 1 for first in needed)]))

    def state(self) -> ShardState:
        """Build the checkpoint; drop cameras that ended and are no longer needed."""
        floor = self.floor()
        for subject, camera in [*self.cameras.items()]:
            if camera.is_over and camera.last_sequence <= floor.sequence:
                del self.cameras[subject]
        cameras = {camera.name: camera.state() for camera in self.cameras.values()}
        return ShardState(floor=floor, cameras=cameras)

    def restore(self, state: ShardState, now: float) -> None:
        """Resume from `state`, starting at its floor.

        An invalid state raises `UnreadableError` and changes nothing.
        """
        try:
            cameras = self._restored(state, now)
        except (TypeError, ValueError, OverflowError, DataError) as error:
            raise UnreadableError(f"state: expected that of a shard, got: {error!r:.200}") from None
        self.position = state.floor
        self.cameras |= cameras

    def _restored(self, state: ShardState, now: float) -> dict[str, FleetCamera]:
        cameras = {}
        for name, own in state.cameras.items():
            profile = self.models.profile(name, own.rate)
            if profile is not None:
                camera = FleetCamera.restore(profile, own, self.scorer.number(), now)
                cameras[self.subjects.poses(camera.site, name.removeprefix(f"{camera.site}/"))] = (
                    camera
                )
        return cameras

    def of_stream(self, stream: str) -> None:
        """Set the stream that frames come from; a new stream resets all sequence numbers."""
        if self.position.stream not in ("", stream):
            for camera in self.cameras.values():
                camera.need_nothing()
                camera.last_sequence = 0
            self._doubtful.clear()
            self.position = Position(stream)
        self.position = replace(self.position, stream=stream)

    def _try(self, delivery: Delivery, tries: int, now: float, clock: float | None) -> None:
        try:
            self._read(delivery, decode(delivery.data), now, clock)
        except UnreadableError as error:
            if tries + 1 < TRIES:
                self._doubtful.append((delivery, tries + 1))
                return
            logger.warning("a message on %s is unreadable: %s", delivery.subject, error.problem)
            self.dead.append(PoisonMessage(delivery, "unreadable", error.problem))
            self.counts["", "unreadable"] += 1

    def _read(self, delivery: Delivery, batch: Batch, now: float, clock: float | None) -> None:
        camera = self.cameras.get(delivery.subject)
        if camera is None or camera.is_over or batch.connection is not camera.known:
            camera = camera or self._meet(delivery, batch)
            if camera is None or not self._is_going_on(camera, batch):
                return
        camera.heard, camera.last_sequence = now, delivery.sequence
        self._order(camera, batch, delivery, clock)
        if batch.lost is not None:
            self._lose(camera, "camera lost")
            camera.is_lost = True

    def _is_going_on(self, camera: FleetCamera, batch: Batch) -> bool:
        """Whether to use the frames; they may start a new connection or resume one."""
        connection = batch.connection
        camera.check(connection)
        if camera.is_late(connection.epoch):
            self.counts[camera.name, "late"] += len(batch)
            return False
        if connection.epoch != camera.epoch:
            self._lose(camera, "camera lost")
            if connection.rate != camera.profile.rate:
                camera.profile = self.models.profile(camera.name, connection.rate) or camera.profile
            camera.begin(connection, self.scorer.number())
        elif camera.is_over and batch.end > camera.scored:
            camera.begin(connection, self.scorer.number())
        camera.known = connection
        return True

    def _meet(self, delivery: Delivery, batch: Batch) -> FleetCamera | None:
        """Add a new camera; None if no model matches it or there are too many."""
        of = batch.connection
        self._check_subject(delivery, of)
        profile = self.models.profile(of.name, of.rate)
        if profile is None or len(self.cameras) >= MOST_CAMERAS:
            if of.name not in self._unknown and len(self._unknown) < MOST_CAMERAS:
                why = "no model matches it" if profile is None else "its shard has too many"
                logger.warning("camera %s: %s", of.name, why)
                self._unknown.add(of.name)
            self.counts[of.name if of.name in self._unknown else of.site, "refused"] += len(batch)
            return None
        camera = self.cameras[delivery.subject] = FleetCamera(
            site=of.site,
            profile=profile,
            epoch=of.epoch,
            wall0=of.wall0,
            number=self.scorer.number(),
            reorder=Reorder(),
        )
        return camera

    def _check_subject(self, delivery: Delivery, of: CameraConnection) -> None:
        """Reject a message on the subject of another camera."""
        if self.subjects.poses(of.site, of.camera) != delivery.subject:
            raise UnreadableError(f"poses: expected those of {delivery.subject}, got {of.name}")

    def _order(
        self, camera: FleetCamera, batch: Batch, delivery: Delivery, clock: float | None
    ) -> None:
        if not len(batch):
            return
        if self._is_old(delivery, clock):
            self._shed(camera, batch)
            return
        camera.note(batch, delivery.sequence)
        order = camera.reorder
        before = order.duplicates, order.missed
        self._due(camera, order.push(batch), delivery.time)
        if (order.duplicates, order.missed) != before:
            self.counts[camera.name, "duplicate"] += order.duplicates - before[0]
            self.counts[camera.name, "missed"] += order.missed - before[1]
        if len(order):
            self._held_back[delivery.subject] = camera

    def _shed(self, camera: FleetCamera, batch: Batch) -> None:
        """Drop the whole batch; no window spans it."""
        if not camera.is_blank:
            self.flush()
            self.scorer.forget(camera)
            camera.need_nothing()
            camera.is_blank = True
        self.counts[camera.name, "shed"] += camera.reorder.leave_out(batch)
        camera.scored = max(camera.scored, batch.end)

    def _is_old(self, delivery: Delivery, clock: float | None) -> bool:
        """Whether to shed a frame; shedding continues until its age is below `shed_s / 3`."""
        if clock is None:
            self.is_shedding = False
            return False
        age = clock - delivery.time
        if age > NONSENSE_S:  # the broker's clock was moved
            return False
        self.is_shedding = age > (self.pace.shed_s / 3 if self.is_shedding else self.pace.shed_s)
        return self.is_shedding

    def _due(self, camera: FleetCamera, batches: Iterable[Batch], time: float) -> None:
        for batch in batches:
            last = camera.last_slot
            if batch.slots[0] <= last:  # the slot is already past
                past = bisect_right(batch.slots, last)
                self.counts[camera.name, "late"] += past
                batch = batch.part(past, len(batch))
            if len(batch):
                camera.last_slot = batch.slots[-1]
                camera.is_blank = False
                self._works.append(Work(camera, batch, time))

    def _release(self, now: float) -> None:
        """Release frames that were held back too long."""
        for subject, camera in [*self._held_back.items()]:
            if not len(camera.reorder):
                camera.held_since = None
                del self._held_back[subject]
            elif camera.held_since is None:
                camera.held_since = now
            elif now - camera.held_since > HELD_S:
                missed = camera.reorder.missed
                self._due(camera, camera.reorder.skip(), 0.0)
                self.counts[camera.name, "missed"] += camera.reorder.missed - missed
                camera.held_since = None

    def _lose(self, camera: FleetCamera, by: EndedBy) -> None:
        """End the connection and its event."""
        self._due(camera, camera.reorder.flush(), 0.0)
        self.flush()
        for kind, record in camera.events.end_open(by):
            self.changes.append(changed(camera, kind, record, camera.last_slot + 1, 0.0))
        self.scorer.forget(camera)
        camera.need_nothing()
        camera.is_over = camera.is_blank = True
