"""Stages in threads, each with a heartbeat; what ends a process that hangs; and its logs."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from stepvad.errors import StepvadError
from stepvad.files import redact

logger = logging.getLogger(__name__)
PR_SET_NAME = 15
CHECK_S = 0.25
PAGE_S = 3.0
"""Longest time for a page to stop."""
PAUSED_S = 3.0
"""A longer time between checks means that the whole process was paused; heartbeats are reset."""

STUCK = 70
"""Exit code of a process that exits because a part of it hangs or died."""
FROZEN_S = 120.0
"""Longest time in which no thread runs, the watchdog's own included, before the process is ended.

Longer than most pauses of a machine: the timer cannot tell those from code that keeps the GIL.
"""
REPORT_S = 5.0
"""Longest time to log why the process exits: its log may be what hangs."""

Form = Literal["text", "json"]
REPEAT_S = 60.0
"""A repeated line is logged at most once in this time."""
MOST_KINDS = 256
"""Kinds of lines that are tracked."""


class Stage(Protocol):
    """One named part of a site, in a thread of its own."""

    @property
    def name(self) -> str:
        """Its name in logs, metrics and stack traces."""
        ...

    @property
    def heartbeat(self) -> Heartbeat:
        """Beats at least once per `deadline_s` while `run` is active."""
        ...

    def run(self) -> None:
        """Work until stopped or until no more work follows."""
        ...

    def stop(self, deadline: float) -> None:
        """Make `run` return by this time of the monotonic clock; do not block."""
        ...


class Heartbeat:
    """The time of a stage's last progress and the deadline for the next."""

    def __init__(self, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.deadline_s = deadline_s
        self._clock = clock
        self._at = clock()

    def beat(self) -> None:
        """Record progress."""
        self._at = self._clock()

    @property
    def age_s(self) -> float:
        """Seconds since the last beat."""
        return self._clock() - self._at

    @property
    def is_late(self) -> bool:
        """True if the stage hangs."""
        return self.age_s > self.deadline_s


class Loop:
    """A stage that repeats a step: one message, one frame of every camera, one look at the clock.

    Once it is stopped it ends with the first step that finds nothing to do, so a queue is drained.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[Loop], bool],
        deadline_s: float,
        *,
        on_stop: Callable[[], None] | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        """`step` waits for work, does it, and returns whether there was any.

        `on_stop` is called from another thread, to cut a wait short; `at_end` after the last step.
        """
        self.name, self.heartbeat = name, Heartbeat(deadline_s)
        self.stopping = threading.Event()
        self.ends_at = math.inf
        """Monotonic time by which it should have stopped."""
        self._step, self._on_stop, self._at_end = step, on_stop, at_end

    def run(self) -> None:
        """Repeat the step until stopped and drained."""
        is_busy = True
        while is_busy or not self.stopping.is_set():
            self.heartbeat.beat()
            is_busy = self._step(self)
        if self._at_end is not None:
            self._at_end()

    def stop(self, deadline: float) -> None:
        """Finish the queued work, by this time of the monotonic clock."""
        self.ends_at = deadline
        self.stopping.set()
        if self._on_stop is not None:
            self._on_stop()


class Supervisor:
    """Runs stages in threads and exits the whole process when one of them hangs or dies.

    A thread cannot be killed from outside, so nothing is unwound: joining the thread would hang as
    well. What started the process starts it again.
    """

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        self._end = end
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._checked: float | None = None

    def start(self, stage: Stage) -> None:
        """Start a stage in its own thread."""
        # a daemon: a stage that hangs must not keep the process from exiting
        thread = threading.Thread(target=self._run, args=[stage], name=stage.name, daemon=True)
        with self._lock:
            if stage.name in self._running:
                raise ValueError(f"stage {stage.name}: expected a name that no other has")
            self._running[stage.name] = _Running(stage.name, stage.heartbeat, thread)
        stage.heartbeat.beat()
        thread.start()

    def stop(self, stages: Iterable[Stage], within_s: float) -> list[str]:
        """Stop stages together; return the names of those that did not stop in time."""
        # tell all of them before waiting for any
        deadline = time.monotonic() + within_s
        with self._lock:
            ending = {
                stage: self._running[stage.name] for stage in stages if stage.name in self._running
            }
        for stage in ending:
            stage.stop(deadline)
        for one in ending.values():
            one.thread.join(max(deadline - time.monotonic(), 0.0))
        left = [one.name for one in ending.values() if one.thread.is_alive()]
        if left:
            logger.error("stages did not stop within %g s: %s", within_s, ", ".join(left))
        with self._lock:
            for one in ending.values():
                self._running.pop(one.name, None)
        return left

    def health(self) -> Health:
        """Health of the stages; thread-safe."""
        with self._lock:
            running = [*self._running.values()]
        return Health(
            tuple(
                StageHealth(one.name, one.heartbeat.age_s, one.heartbeat.deadline_s)
                for one in running
            )
        )

    def check_stages(self) -> None:
        """Exit the process if a stage hangs or died; call this every second or so."""
        now = time.monotonic()
        before, self._checked = self._checked, now
        with self._lock:
            running = [*self._running.values()]
        # a machine that slept, or a debugger: no stage could beat meanwhile
        if before is not None and now - before > PAUSED_S:
            logger.warning("the whole process was paused for %.1f s", now - before)
            for one in running:
                one.heartbeat.beat()
            return
        dead = [one for one in running if one.is_dead]
        late = [one for one in running if one.heartbeat.is_late]
        if dead or late:
            exit_stuck(partial(_report, dead, late), self._end)

    def _run(self, stage: Stage) -> None:
        one = self._running[stage.name]
        if sys.platform == "linux":  # the name that `top -H` and debuggers show, up to 15 bytes
            ctypes.CDLL(None).prctl(PR_SET_NAME, stage.name.encode()[:15], 0, 0, 0)
        try:
            stage.run()
        except BaseException:
            logger.critical("stage %s died", stage.name, exc_info=True)
            one.is_dead = True
            return
        with self._lock:
            if self._running.get(stage.name) is one:
                del self._running[stage.name]


def watch_over(
    supervisor: Supervisor, stop: threading.Event, beat: Callable[[], None] | None = None
) -> None:
    """Check all stages until `stop` is set; `beat` says each time that the check was made."""
    while not stop.wait(CHECK_S):
        supervisor.check_stages()
        if beat is not None:
            beat()


class Page(Stage, Protocol):
    """The stage that serves a page."""

    @property
    def url(self) -> str:
        """Its address for browsers."""
        ...


@dataclass(frozen=True, slots=True)
class StageHealth:
    """Health of one stage."""

    name: str
    age_s: float
    deadline_s: float

    @property
    def is_late(self) -> bool:
        """True if it hangs."""
        return self.age_s > self.deadline_s


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a process: all stages that should be running."""

    stages: tuple[StageHealth, ...] = ()

    @property
    def late(self) -> list[str]:
        """Names of the stages that hang."""
        return [stage.name for stage in self.stages if stage.is_late]

    @property
    def is_ok(self) -> bool:
        """True if every stage makes progress."""
        return not self.late


def exit_stuck(report: Callable[[], object], end: Callable[[int], object]) -> None:
    """Run `report`, flush the logs, and call `end` with `STUCK`, however long the logs take."""

    def last_words() -> None:
        report()
        logging.shutdown()

    reporting = threading.Thread(target=last_words, name="report", daemon=True)
    with suppress(RuntimeError):  # no thread can be started: exit without a word
        reporting.start()
        reporting.join(REPORT_S)
    end(STUCK)


def exit_unless_called_again(within_s: float) -> None:
    """End the process in that time, wherever its threads are, unless this is called again.

    The timer is not Python's: it also ends a process in which native code never gives the GIL back,
    so that no thread runs. It writes where they are to standard error; the exit code is 1.
    """
    with suppress(RuntimeError):  # no thread can be started: no timer until the next call
        faulthandler.dump_traceback_later(within_s, exit=True, file=sys.__stderr__ or 2)


def exit_no_more() -> None:
    """Stop the timer of `exit_unless_called_again`."""
    faulthandler.cancel_dump_traceback_later()


def set_up(form: Form) -> None:
    """Log to stderr in this form, with the credentials of addresses hidden.

    Libraries log warnings only: their routine messages show secret addresses, for example those
    of webhooks.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("stepvad").setLevel(logging.INFO)


class Repeats:
    """Admits one line of a kind per minute and counts the others; thread-safe."""

    def __init__(
        self, every_s: float = REPEAT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s, self._clock = every_s, clock
        self._seen: dict[Hashable, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def admit(self, kind: Hashable) -> int | None:
        """The number of this kind suppressed since the last; None to suppress this one."""
        now = self._clock()
        with self._lock:
            at, held = self._seen.get(kind, (-math.inf, 0))
            if now - at < self._every_s:
                self._seen[kind] = at, held + 1
                return None
            # least recently logged first: the table of kinds is bounded
            self._seen.pop(kind, None)
            self._seen[kind] = now, 0
            if len(self._seen) > MOST_KINDS:
                del self._seen[next(iter(self._seen))]
            return held

    def log(self, write: Callable[..., None], kind: Hashable, words: str, *facts: object) -> None:
        """Write a line with `logger.warning` or another, unless it is suppressed."""
        held = self.admit(kind)
        if held is not None:
            write(f"{words}%s", *facts, repeated(held))


class FailureLog:
    """Logs failures of work that continues: one line per minute for each kind of error.

    Expected failures, such as a full disk, take one line; only unexpected errors are logged with
    their traceback.
    """

    def __init__(self, logger: logging.Logger, repeats: Repeats | None = None) -> None:
        self._logger, self._repeats = logger, repeats or Repeats()

    def log(self, what: str, error: Exception) -> None:
        """Log what failed and why."""
        held = self._repeats.admit((what, type(error)))
        if held is None:
            return
        import sqlite3  # which a camera's process hardly needs

        is_expected = isinstance(error, StepvadError | OSError | sqlite3.Error)
        words = str(error) or type(error).__name__
        trace = None if is_expected else error
        self._logger.error("%s: %s%s", what, words, repeated(held), exc_info=trace)


def repeated(held: int) -> str:
    """The number of suppressed lines, as a suffix of the line that is logged."""
    return f" ({held} more like this since the last line)" if held else ""


@dataclass(slots=True, eq=False)
class _Running:
    name: str
    heartbeat: Heartbeat
    thread: threading.Thread
    is_dead: bool = False


def _report(dead: list[_Running], late: list[_Running]) -> None:
    for one in dead:
        logger.critical("%s died; exiting", one.name)
    for one in late:
        limit_s = one.heartbeat.deadline_s
        logger.critical("%s hangs: no progress for %g s; exiting", one.name, limit_s)
    if late:  # where all threads are; this needs none of their locks
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return redact(f"{when} {record.levelname.lower()}: {_words(self, record)}")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": redact(_words(self, record)),
        }
        return json.dumps(facts, ensure_ascii=False)


def _words(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    words = record.getMessage()
    if record.exc_info:
        words += "\n" + formatter.formatException(record.exc_info)
    return words
