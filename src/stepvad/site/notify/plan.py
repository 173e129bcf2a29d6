"""The plan of messages to people, on disk, and the sink that follows it."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from stepvad.codec import Count, NewerVersionError
from stepvad.errors import ConfigError, StepvadError, os_reason
from stepvad.events.record import DeliveryError, Record, SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.files import read_state, write_state
from stepvad.retries import Backoff
from stepvad.site.notify.people import Target
from stepvad.site.notify.words import Notice, NoticeWords, NotificationKind
from stepvad.site.settings.page import NotifySettings
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import Store
from stepvad.site.troubles import TroubleChange

logger = logging.getLogger(__name__)
WORDS_S = 4.0
"""Longest wait of the first message for the words that explain the event."""
HOUR_S = 3600.0
MOST_EVENTS = 2000
"""Events remembered; beyond that the oldest are forgotten."""
DIRECTORY = "notifications"
"""Directory in the data directory of a site."""
MAX_BYTES = 1 << 20
GATHER_S = 5.0
"""Wait of a trouble for others: a broken switch takes all cameras along."""
MOST_TROUBLES = 50
"""Troubles that wait for a service that is down; beyond it the oldest are forgotten."""

FIRST_S, LONGEST_S = 2.0, 30.0
"""Shortest and longest delay before a failed message is sent again."""


class Notify:
    """Sends messages about events to one target.

    A change of an event only changes the plan, which is on disk before the change counts as
    delivered. `send_due` sends what the plan says, in the words of the stored events: what was
    deleted or seen meanwhile is not sent. While the plan of the last run cannot be read, changes
    wait in the store. While the disk fails, plan and events are those in memory. Troubles of the
    site go first, whatever the hour, and count towards no limit.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        scheduler: Scheduler,
        words: NoticeWords,
        events: Store,
        file: Path,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._target, self._scheduler, self._words = target, scheduler, words
        self._events, self._file, self._monotonic = events, file, monotonic
        self._read_plan: NotificationPlan | None = None
        self._backoff = Backoff(FIRST_S, LONGEST_S)
        self._not_before = 0.0
        self.on_progress: Callable[[], None] = lambda: None
        """Called between steps that may each take long."""
        self._is_checked = self._is_unsaved = False
        self._messages: dict[str, SinkMessage] = {}
        """The latest message of each event in the plan that this run got."""
        self._troubles: deque[TroubleChange] = deque(maxlen=MOST_TROUBLES)
        self._gathered_at = 0.0

    def trouble(self, change: TroubleChange) -> None:
        """Take down a trouble of the site; the message follows."""
        if change.fault.sink != self.name and self._scheduler.rules.hears_of(change.fault.camera):
            if not self._troubles:
                self._gathered_at = self._monotonic() + GATHER_S
            self._troubles.append(change)

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Take down a change; the message to people follows when it is due."""
        now, plan = self._events.now(), self._plan
        self._messages[message.after.id] = message
        self._keep(self._scheduler.changed(plan, kind, message.after, now))

    def send_due(self) -> bool:
        """Send the message that is due; return whether there was one."""
        if self._monotonic() < self._not_before:
            return False
        self._check()
        now = self._events.now()
        if (changes := [*self._troubles]) and self._monotonic() >= self._gathered_at:
            is_sent = self._deliver(self._words.troubles(changes, now))
            for _ in changes:
                self._troubles.popleft()
            return is_sent
        ids = [one.id for one in self._plan.events]
        # what people have seen meanwhile is not sent
        seen = set[str]()
        with suppress(StoreError):
            seen = {*self._events.reviews(ids)} if ids else seen
        plan, message = self._scheduler.next(self._plan, now, seen)
        self._keep(plan)
        if message is None:
            return False
        found = map(self._event, message.ids)
        records = [record for record in found if record is not None]
        if not records:  # deleted from the store meanwhile
            kept = tuple(one for one in plan.events if one.id not in message.ids)
            self._keep(NotificationPlan(kept, plan.sent))
            return False
        # without anybody to get it, it counts as told and not towards the limit
        unstored = any(id in self._messages and not self._messages[id].stored for id in message.ids)
        notice = self._words.notice(
            message.kind, records, now, next_at=message.next_at, unstored=unstored
        )
        is_sent = self._deliver(notice)
        self._keep(self._scheduler.told(self._plan, message, now, counts=is_sent))
        return is_sent

    def _deliver(self, notice: Notice) -> bool:
        """Send a message; False if there is nobody to get it."""
        if not self._target.has_people:
            return False
        try:
            self._target.deliver(notice)
        except DeliveryError:
            self._put_off()
            raise
        self._backoff.reset()
        return True

    def _event(self, id: str) -> Record | None:
        """An event as it is stored, or as it came if the store did not take it or cannot be read.

        None if it was deleted.
        """
        latest = self._messages.get(id)
        try:
            stored = self._events.event(id)
        except StoreError:
            return None if latest is None else latest.after
        return latest.after if stored is None and latest and not latest.stored else stored

    def cancel(self) -> None:
        """Give up a running send; its message is sent after the next start."""
        self._target.cancel()

    def close(self) -> None:
        """Do nothing: the plan is on disk."""

    def _check(self) -> None:
        """Find a wrong address when the site starts, not with the first event."""
        if self._is_checked:
            return
        try:
            self._target.describe()
        except ConfigError as error:
            self._put_off()
            raise DeliveryError(error.problem, hint=error.hint) from None
        self._is_checked = True
        self.on_progress()

    @property
    def _plan(self) -> NotificationPlan:
        """The plan, read at first use; raise `DeliveryError` while it cannot be read."""
        if self._read_plan is None:
            try:
                self._read_plan = load_plan(self._file)
            except NewerVersionError as error:
                self._put_off()
                raise DeliveryError(error.problem, hint=error.hint) from error
            except OSError as error:
                if self._events.trouble:  # a disk that fails keeps no alert: all is new
                    logger.warning("%s: starts afresh: %s", self._file, os_reason(error))
                    self._read_plan = NotificationPlan()
                    return self._read_plan
                self._put_off()
                raise DeliveryError(
                    f"{self._file}: expected a readable plan, got: {os_reason(error)}",
                    hint="its messages are sent once it can be read",
                ) from error
        return self._read_plan

    def _put_off(self) -> None:
        self._not_before = self._monotonic() + self._backoff.next_s()

    def _keep(self, plan: NotificationPlan) -> None:
        """Save the plan if it has changed; while the disk fails, it is in memory alone."""
        if plan == self._plan and not self._is_unsaved:
            return
        self._read_plan = plan
        known = {one.id for one in plan.events}
        self._messages = {id: one for id, one in self._messages.items() if id in known}
        try:
            write_state(self._file, plan)
        except (OSError, StepvadError) as error:
            if not self._is_unsaved:
                logger.warning("%s: the plan of messages cannot be saved: %s", self.name, error)
            self._is_unsaved = True
        else:
            self._is_unsaved = False


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Decides when messages are sent. All that is due at one time goes into one message."""

    rules: NotifySettings

    def changed(
        self, plan: NotificationPlan, kind: ChangeKind, record: Record, now: float
    ) -> NotificationPlan:
        """The plan after a change of an event; the same change twice makes no difference."""
        known = plan.event(record.id)
        if kind == "end":
            if known is None or known.ended:
                return plan
            return plan.with_event(replace(known, ended=True))
        if known is None:
            if not record.is_open or not self.rules.concerns(record.camera, record.zones):
                return plan
            # the first message waits a moment for the words that explain the event
            due = now + WORDS_S if record.why is None else now
            return plan.with_event(TrackedEvent(record.id, due))
        # words that came in time go out at once
        if record.why is not None and known.told == 0 and known.due is not None and known.due > now:
            return plan.with_event(replace(known, due=now))
        return plan

    def next(
        self, plan: NotificationPlan, now: float, seen: Collection[str]
    ) -> tuple[NotificationPlan, Notification | None]:
        """The plan without what people have seen, and the message that is due, if one is."""
        plan = self._current(plan, now, seen)
        left = self.rules.most_per_hour - len(plan.sent)
        if left <= 0 or self.rules.quiet.include(now):
            # quiet hours, or the hour's messages are spent: what is due waits
            return plan, None
        next_at = None
        if left == 1:
            next_at = (plan.sent[0] if plan.sent else now) + HOUR_S
        # new events first, then repeats: one kind in a message
        due = [one for one in plan.events if one.due is not None and one.due <= now]
        if new := [one.id for one in due if one.told == 0]:
            return plan, Notification("new", tuple(new), next_at)
        # the last message of an hour is kept for an event that nobody has heard of
        if due and (left > 1 or self.rules.most_per_hour == 1):
            return plan, Notification("again", tuple(one.id for one in due), next_at)
        return plan, None

    def told(
        self,
        plan: NotificationPlan,
        message: Notification,
        now: float,
        *,
        counts: bool = True,
    ) -> NotificationPlan:
        """The plan after a message was sent; it counts unless there was nobody to get it."""
        for id in message.ids:
            event = plan.event(id)
            if event is None:
                continue
            told = event.told + 1
            repeats = self.rules.repeat_minutes is not None and told <= self.rules.repeat_times
            due = now + self.rules.repeat_s if repeats else None
            plan = plan.with_event(replace(event, told=told, due=due))
        return replace(plan, sent=(*plan.sent, now)) if counts else plan

    def _current(
        self, plan: NotificationPlan, now: float, seen: Collection[str]
    ) -> NotificationPlan:
        """Forget what was seen and what is older than an hour; bear a clock that was set back."""
        # a clock that was set back must not keep messages waiting for days
        latest = now + max(WORDS_S, self.rules.repeat_s)
        events = [
            replace(one, due=None if one.due is None or one.id in seen else min(one.due, latest))
            for one in plan.events
        ]
        sent = tuple(time for time in plan.sent if now - HOUR_S < time <= now)
        return NotificationPlan(tuple(one for one in events if not one.is_done), sent)


@dataclass(frozen=True, slots=True)
class TrackedEvent:
    """An event that goes on, or of which a message is still to be sent."""

    id: str
    due: float | None
    """Time of the next message; None if there is none to come."""
    told: Count = 0
    """Messages sent about it."""
    ended: bool = False

    @property
    def is_done(self) -> bool:
        """True if it can be forgotten."""
        return self.ended and self.due is None


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to be sent now."""

    kind: NotificationKind
    ids: tuple[str, ...]
    """The events it is about, in the order in which they came."""
    next_at: float | None = None
    """If it is the last that the hourly limit allows: when the next may be sent."""


@dataclass(frozen=True, slots=True)
class NotificationPlan:
    """Messages sent and to be sent: all that must survive a restart.

    It holds ids and times only, so deleting an event from the store leaves no trace of it here.
    """

    events: tuple[TrackedEvent, ...] = ()
    sent: tuple[float, ...] = ()
    """Times of the messages of the last hour, the oldest first."""
    version: Literal[1] = 1

    def event(self, id: str) -> TrackedEvent | None:
        """The event with this id."""
        return next((one for one in self.events if one.id == id), None)

    def with_event(self, event: TrackedEvent) -> NotificationPlan:
        """The plan with an event added or replaced; done ones are forgotten."""
        others = [one for one in self.events if one.id != event.id]
        if len(others) == len(self.events):
            kept = [*others, event]
        else:
            kept = [event if one.id == event.id else one for one in self.events]
        return replace(self, events=tuple(one for one in kept if not one.is_done)[-MOST_EVENTS:])


def plan_file(data: Path, sink: str) -> Path:
    """The file of a sink; its name must be unique among sinks."""
    return data / DIRECTORY / (re.sub(r"[^A-Za-z0-9_-]", "-", sink) + ".json")


def load_plan(path: Path) -> NotificationPlan:
    """The plan as it was saved; an empty one if there is none or it is damaged.

    Raise `OSError` if it cannot be read now, `NewerVersionError` if it is of a newer version.
    """
    lost = "due messages are forgotten, and repeats and limits start afresh"
    found = read_state(path, NotificationPlan, "notifications", most=MAX_BYTES, lost=lost)
    return NotificationPlan() if found is None else found
