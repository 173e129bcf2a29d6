"""The sinks of a site: made from settings, and delivered to in order and at least once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from stepvad.errors import DataError
from stepvad.events.record import DeliveryError, RefusedError, Sink, SinkMessage
from stepvad.retries import Backoff
from stepvad.site.notify.people import sink_names, target_of, words_of
from stepvad.site.notify.plan import NotificationRules, Notify, Scheduler, plan_file
from stepvad.site.stages import Heartbeat
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import OutboxMessage

if TYPE_CHECKING:
    from stepvad.site.intake.status import CaptureState
    from stepvad.site.settings.sections import Sinks, SiteSettings


logger = logging.getLogger(__name__)
FIRST_S = 0.5
LONGEST_S = 60.0
IDLE_S = 5.0
"""Polling interval for messages added without a notification."""
TICK_S = 1.0
"""The same for a sink whose messages become due by the clock."""
BATCH = 50
HEARTBEAT_S = 180.0
"""More than one send (at most 60 s), the longest back-off and the wait for the store's lock."""


def names(sinks: Sinks) -> tuple[str, ...]:
    """The names of the configured sinks, as used in the store."""
    found = ["mqtt"] if sinks.mqtt else []
    found += [f"webhook:{webhook.name}" for webhook in sinks.webhooks]
    found += ["file"] if sinks.file else []
    return (*found, *(name for name, _, _ in sink_names(sinks)))


def connect(settings: SiteSettings) -> Iterator[Sink]:
    """Create the configured sinks for machines, in the order of `names`."""
    sinks = settings.sinks
    if sinks.mqtt:
        from stepvad.site.sinks.mqtt import Mqtt

        cameras = [camera.name for camera in settings.cameras]
        yield Mqtt(sinks.mqtt, site=settings.name, cameras=cameras)
    for webhook in sinks.webhooks:
        from stepvad.site.sinks.webhook import Webhook

        yield Webhook(webhook, site=settings.name)
    if sinks.file:
        from stepvad.site.sinks.webhook import JsonLines

        yield JsonLines(sinks.file.path)


def to_people(settings: SiteSettings, events: Store) -> Iterator[Notify]:
    """Create the sinks for people, which follow in `names`."""
    for name, people, to in sink_names(settings.sinks):
        scheduler = Scheduler(NotificationRules.of(people))
        target, file = target_of(to, settings), plan_file(settings.data, name)
        yield Notify(name, target, scheduler, words_of(settings), events, file)


@runtime_checkable
class Reconnecting(Protocol):
    """A sink with a persistent connection: it reports reconnects and publishes camera states."""

    on_connected: Callable[[], None]

    def status(self, camera: str, state: CaptureState) -> None:
        """Publish the state of a camera; must not block."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A sink that takes changes down and sends messages of its own when they are due."""

    def send_due(self) -> bool:
        """Send what is due; return whether anything was. Raise `DeliveryError` if it failed."""
        ...

    def cancel(self) -> None:
        """Give up a running send; thread-safe."""
        ...


class SinkDelivery:
    """The stage that delivers to one sink and retries with back-off."""

    def __init__(
        self,
        store: Store,
        sink: Sink,
        *,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = sink.name
        self.heartbeat = Heartbeat(HEARTBEAT_S)
        self.sent = 0
        self.failures = 0
        """Failed delivery attempts."""
        self.refused = 0
        """Messages that became dead letters."""
        self.last_error: str | None = None
        """None after a successful delivery."""
        self._store, self._sink = store, sink
        self._first_s, self._longest_s = first_s, longest_s
        self._monotonic = monotonic
        self._misconfigured_at: float | None = None
        """Since when the sink has returned only errors that need a change of configuration."""
        self._troubles = Backoff(first_s, longest_s)
        """Back-off for errors of the store, not of the sink."""
        self._stopping = threading.Event()
        self._called = threading.Event()
        self._timed = sink if isinstance(sink, Timed) else None
        if isinstance(sink, Reconnecting):
            sink.on_connected = self.wake

    def run(self) -> None:
        """Deliver until stopped, then close the sink."""
        try:
            while not self._stopping.is_set():
                self._deliver()
        finally:
            self._sink.close()

    def stop(self, deadline: float) -> None:
        """Finish the current message; the rest stays in the store until the next start."""
        self._stopping.set()
        if self._timed is not None:
            self._timed.cancel()
        self.wake()

    def wake(self) -> None:
        """Retry now, for example after a reconnect."""
        self._called.set()
        self._store.outbox.ring()

    @property
    def is_idle(self) -> bool:
        """Whether no messages are pending."""
        return self._store.outbox.lag(self.name) == 0

    def _deliver(self) -> None:
        """Send the pending messages, or wait for one."""
        self.heartbeat.beat()
        seen = self._store.outbox.posted()
        try:
            pending = self._store.outbox.pending(self.name, BATCH)
            done = all(self._is_done(message) for message in pending)
            self._send_due()
        except Exception as error:  # the store's disk may be full: keep running
            self._fail(f"{type(error).__name__}: {error}")
            self._rest(self._troubles.next_s())
            return
        self._troubles.reset()
        if done and not pending:
            self._store.outbox.wait(seen, IDLE_S if self._timed is None else TICK_S)

    def _send_due(self) -> None:
        """Let a sink send what became due; it waits after failures by itself."""
        if self._timed is None or self._stopping.is_set():
            return
        self.heartbeat.beat()
        try:
            if self._timed.send_due():
                self._succeed()
        except DeliveryError as error:
            self._fail(str(error))

    def _is_done(self, message: OutboxMessage) -> bool:
        """Whether a message was delivered or refused; otherwise returns after the back-off."""
        if self._stopping.is_set():
            return False
        self.heartbeat.beat()
        self._called.clear()
        try:
            self._sink.send(message.kind, _readable(message))
        except DeliveryError as error:
            if isinstance(error, RefusedError) or self._is_given_up(message, error):
                self.refused += 1
                self._fail(str(error))
                self._store.outbox.refused(self.name, message.seq, str(error))
                return True
            self._put_off(message, str(error), error.after_s)
            return False
        except Exception as error:
            self._misconfigured_at = None
            self._put_off(message, type(error).__name__, 0.0)
            return False
        self._misconfigured_at = None
        self._store.outbox.delivered(self.name, message.seq)
        if self._timed is None:
            self._succeed()
        return True

    def _is_given_up(self, message: OutboxMessage, error: DeliveryError) -> bool:
        """Whether a misconfiguration has lasted so long that the message becomes a dead letter."""
        if error.give_up_s is None:
            self._misconfigured_at = None
            return False
        now = self._monotonic()
        if self._misconfigured_at is None:
            self._misconfigured_at = now
        waited_s = min(now - self._misconfigured_at, self._store.now() - message.created)
        return waited_s >= error.give_up_s

    def _put_off(self, message: OutboxMessage, words: str, after_s: float) -> None:
        backoff = Backoff(self._first_s, self._longest_s, failures=message.tries)
        delay_s = backoff.next_s(at_least_s=after_s)
        self._fail(words)
        self._store.outbox.failed(self.name, message.seq, words, self._store.now() + delay_s)
        self._rest(delay_s)

    def _rest(self, seconds: float) -> None:
        """Wait until the time has passed or `wake` is called."""
        self._called.wait(seconds)

    def _succeed(self) -> None:
        self.sent += 1
        self.last_error = None

    def _fail(self, words: str) -> None:
        self.failures += 1
        if words != self.last_error:
            logger.warning("sink %s: %s", self.name, words)
        self.last_error = words


def _readable(message: OutboxMessage) -> SinkMessage:
    """The message; raise `RefusedError` if it is unreadable, to make it a dead letter."""
    try:
        return message.message
    except DataError as error:
        raise RefusedError(error.problem, hint=error.hint) from error
