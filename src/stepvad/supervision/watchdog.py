"""Exits a process that makes no progress, so that whatever started it starts it again."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

from stepvad.supervision.stages import CHECK_S, PAUSED_S, Heartbeat
from stepvad.supervision.stuck import (
    dump_threads,
    exit_no_more,
    exit_stuck,
    exit_unless_called_again,
)

logger = logging.getLogger(__name__)

FROZEN_S = 120.0
"""Longest time in which no thread runs, the watchdog's own included, before the process is ended.

Longer than most pauses of a machine: the timer cannot tell those from code that keeps the GIL.
"""


class Watchdog:
    """Exits the process, with the code `STUCK`, when a heartbeat is late.

    It has a thread of its own, so it notices an event loop that hangs, too. It does not unwind or
    join anything: that would hang as well. A pause of the whole process is forgiven, up to
    `FROZEN_S`.
    """

    def __init__(
        self, name: str, heartbeat: Heartbeat, end: Callable[[int], object] = os._exit
    ) -> None:
        """`name`: what hangs, for the log."""
        self._name, self._heartbeat, self._end = name, heartbeat, end
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        """Start watching; the first heartbeat is now."""
        self._heartbeat.beat()
        exit_unless_called_again(FROZEN_S)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._stopping.set()
        self._thread.join()
        exit_no_more()

    def _run(self) -> None:
        checked = time.monotonic()
        while not self._stopping.wait(CHECK_S):
            exit_unless_called_again(FROZEN_S)
            before, checked = checked, time.monotonic()
            if checked - before > PAUSED_S:
                logger.warning("the whole process was paused for %.1f s", checked - before)
                self._heartbeat.beat()
            elif self._heartbeat.is_late:
                exit_stuck(self._report, self._end)
                return

    def _report(self) -> None:
        logger.critical(
            "%s hangs: no progress for %g s; exiting", self._name, self._heartbeat.deadline_s
        )
        dump_threads()
