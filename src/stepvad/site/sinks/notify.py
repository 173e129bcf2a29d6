"""Messages to people: the sink that keeps the plan and sends what is due."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.codec import NewerVersionError
from stepvad.errors import ConfigError, os_reason
from stepvad.files import statefile
from stepvad.incidents.sink import DeliveryError
from stepvad.site.notifications.plan import Notification, NotificationPlan, Scheduler, load_plan
from stepvad.site.notifications.targets import Target
from stepvad.site.notifications.words import NoticeWords
from stepvad.supervision.backoff import Backoff

if TYPE_CHECKING:
    from stepvad.incidents.events import ChangeKind
    from stepvad.incidents.record import Record, SinkMessage
    from stepvad.site.store.eventstore import Store

FIRST_S, LONGEST_S = 2.0, 300.0
"""Shortest and longest delay before a failed message is sent again."""


class Notify:
    """Sends messages about events to one target.

    A change of an event only changes the plan, which is on disk before the change counts as
    delivered. `send_due` sends what the plan says, in the words of the stored events: what was
    deleted or seen meanwhile is not sent. While the plan of the last run cannot be read, changes
    wait in the store.
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
        self._is_checked = False

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Take down a change; the message to people follows when it is due."""
        now = self._events.now()
        self._keep(self._scheduler.changed(self._plan, kind, message.after, now))

    def send_due(self) -> bool:
        """Send the message that is due; return whether there was one."""
        if self._monotonic() < self._not_before:
            return False
        self._check()
        now = self._events.now()
        ids = [one.id for one in self._plan.events]
        seen = {*self._events.reviews(ids)} if ids else set()
        plan, message = self._scheduler.next(self._plan, now, seen)
        self._keep(plan)
        if message is None:
            return False
        records = self._stored(message)
        if not records:
            self._keep(_without(self._plan, message))
            return False
        notice = self._words.notice(message.kind, records, now, next_at=message.next_at)
        if not self._target.has_people:
            self._keep(self._scheduler.told(self._plan, message, now, counts=False))
            return False
        try:
            self._target.send(notice)
        except DeliveryError:
            self._put_off()
            raise
        self._backoff.reset()
        self._keep(self._scheduler.told(self._plan, message, now))
        return True

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
            self._target.check()
        except ConfigError as error:
            self._put_off()
            raise DeliveryError(error.problem, hint=error.hint) from None
        self._is_checked = True

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
                self._put_off()
                raise DeliveryError(
                    f"{self._file}: expected a readable plan, got: {os_reason(error)}",
                    hint="its messages are sent once it can be read",
                ) from error
        return self._read_plan

    def _put_off(self) -> None:
        self._not_before = self._monotonic() + self._backoff.next_s()

    def _stored(self, message: Notification) -> list[Record]:
        found = (self._events.event(id) for id in message.ids)
        return [record for record in found if record is not None]

    def _keep(self, plan: NotificationPlan) -> None:
        """Save the plan if it has changed."""
        if plan != self._plan:
            statefile.write(self._file, plan)
            self._read_plan = plan


def _without(plan: NotificationPlan, message: Notification) -> NotificationPlan:
    """The plan without events that were deleted from the store."""
    kept = tuple(one for one in plan.events if one.id not in message.ids)
    return NotificationPlan(kept, plan.sent)
