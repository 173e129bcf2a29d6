"""Carries messages from the store to a sink: in order, each at least once."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from stepvad.live.outbox import Letter
from stepvad.live.sinks import DeliveryError, RefusedError, Sink
from stepvad.live.stages import Heartbeat
from stepvad.live.store import Store

if TYPE_CHECKING:
    from stepvad.live.sinks.mqtt import State

FIRST_S = 0.5
LONGEST_S = 60.0
IDLE_S = 5.0
"""How often the store is asked for messages that nobody rang for."""
BATCH = 50

OnError = Callable[[str, str], None]
"""Hears the name of a sink and why a message did not arrive."""

logger = logging.getLogger(__name__)


@runtime_checkable
class Reconnecting(Protocol):
    """A sink that keeps a connection: it says when it is back, and tells of cameras."""

    on_connected: Callable[[], None]

    def status(self, camera: str, state: State) -> None:
        """Say whether a camera is there, without waiting."""
        ...


class SinkDelivery:
    """One thread that serves one sink, however long that takes."""

    def __init__(
        self,
        store: Store,
        sink: Sink,
        on_error: OnError = lambda name, error: None,
        *,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        self.name = sink.name
        self.sent = 0
        self.failures = 0
        """Attempts that did not arrive."""
        self.refused = 0
        """Messages that the sink will never take."""
        self.last_error: str | None = None
        """None after an arrival."""
        self._store, self._sink, self._on_error = store, sink, on_error
        self._first_s, self._longest_s = first_s, longest_s
        self._stopping = threading.Event()
        self._called = threading.Event()
        self.heartbeat = Heartbeat(120.0)
        if isinstance(sink, Reconnecting):
            sink.on_connected = self.wake

    def stop(self, deadline: float) -> None:
        """Finish the message at hand; what is left waits in the store for the next start."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Try again now: the sink is said to be back."""
        self._called.set()
        self._store.outbox.ring()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return self._store.lag(self.name) == 0

    def run(self) -> None:
        """Deliver until stopped."""
        while not self._stopping.is_set():
            self.heartbeat.beat()
            seen = self._store.outbox.posted()
            try:
                letters = self._store.pending(self.name, BATCH)
                done = all(self._carried(letter) for letter in letters)
            except Exception as error:  # the store's disk may be full: the site goes on
                self._fail(f"{type(error).__name__}: {error}")
                self._rest(self._longest_s / 10)
                continue
            if done and not letters:
                self._store.outbox.wait(seen, IDLE_S)

    def _carried(self, letter: Letter) -> bool:
        """Whether a message is done with; else some time has passed since it was tried."""
        if self._stopping.is_set():
            return False
        self._called.clear()
        try:
            self._sink.send(letter.kind, letter.message)
        except RefusedError as error:
            self.refused += 1
            self._fail(str(error))
            self._store.outbox.refused(self.name, letter.seq, str(error))
            return True
        except Exception as error:
            after_s = error.after_s if isinstance(error, DeliveryError) else 0.0
            words = str(error) if isinstance(error, DeliveryError) else f"{type(error).__name__}"
            delay_s = self._delay_s(letter.tries, after_s)
            self._fail(words)
            self._store.failed(self.name, letter.seq, words, self._store.now() + delay_s)
            self._rest(delay_s)
            return False
        self._store.delivered(self.name, letter.seq)
        self.sent += 1
        self.last_error = None
        return True

    def _delay_s(self, tries: int, asked_s: float) -> float:
        """Twice as long after each failure, with jitter, so that sites do not knock as one."""
        longest = min(self._first_s * 2.0 ** min(tries, 30), self._longest_s)
        return min(max(longest * random.uniform(0.5, 1.0), asked_s), self._longest_s)

    def _rest(self, seconds: float) -> None:
        """Wait, unless somebody calls."""
        self._called.wait(seconds)

    def _fail(self, words: str) -> None:
        self.failures += 1
        if words != self.last_error:
            logger.warning("sink %s: %s", self.name, words)
        self.last_error = words
        self._on_error(self.name, words)
