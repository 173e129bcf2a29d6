"""The stages of a site and the supervisor that detects one that hangs."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, Protocol

from stepvad.supervision.stuck import dump_threads, exit_stuck

logger = logging.getLogger(__name__)

PR_SET_NAME = 15
CHECK_S = 0.25
PAGE_S = 3.0
"""How long a page may take to stop."""
PAUSED_S = 3.0
"""A longer time between checks means that the whole process was paused; heartbeats are reset."""


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
        """Whether the stage hangs."""
        return self.age_s > self.deadline_s


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


@dataclass(frozen=True, slots=True)
class StageHealth:
    """Health of one stage."""

    name: str
    age_s: float
    deadline_s: float

    @property
    def is_late(self) -> bool:
        """Whether it hangs."""
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
        """Whether every stage makes progress."""
        return not self.late


@dataclass(slots=True, eq=False)
class _Running:
    stage: Stage
    thread: threading.Thread
    error: BaseException | None = None


class Supervisor:
    """Runs stages in threads and exits the whole process when one of them hangs or dies.

    A thread cannot be killed from outside, so nothing is unwound: joining the thread would hang as
    well. What started the process starts it again.
    """

    def __init__(self, end: Callable[[int], NoReturn] = os._exit) -> None:
        self._end = end
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._checked: float | None = None

    def start(self, stage: Stage) -> None:
        """Start a stage in its own thread."""
        thread = threading.Thread(target=self._run, args=[stage.name], name=stage.name, daemon=True)
        with self._lock:
            if stage.name in self._running:
                raise ValueError(f"stage {stage.name}: expected a name that no other has")
            self._running[stage.name] = _Running(stage, thread)
        stage.heartbeat.beat()
        thread.start()

    def stop(self, stages: Iterable[Stage], within_s: float) -> list[str]:
        """Stop stages together; return the names of those that did not stop in time."""
        deadline = time.monotonic() + within_s
        with self._lock:
            ending = [self._running[s.name] for s in stages if s.name in self._running]
        for one in ending:
            one.stage.stop(deadline)
        for one in ending:
            one.thread.join(max(deadline - time.monotonic(), 0.0))
        left = [one.stage.name for one in ending if one.thread.is_alive()]
        if left:
            logger.error("stages did not stop within %g s: %s", within_s, ", ".join(left))
        with self._lock:
            for one in ending:
                self._running.pop(one.stage.name, None)
        return left

    def health(self) -> Health:
        """Health of the stages; thread-safe."""
        with self._lock:
            stages = [one.stage for one in self._running.values()]
        return Health(
            tuple(
                StageHealth(stage.name, stage.heartbeat.age_s, stage.heartbeat.deadline_s)
                for stage in stages
            )
        )

    def check(self) -> None:
        """Exit the process if a stage hangs or died; call this every second or so."""
        now = time.monotonic()
        before, self._checked = self._checked, now
        with self._lock:
            running = [*self._running.values()]
        if before is not None and now - before > PAUSED_S:
            logger.warning("the whole process was paused for %.1f s", now - before)
            for one in running:
                one.stage.heartbeat.beat()
            return
        dead = [one.stage.name for one in running if one.error is not None]
        late = [one.stage.name for one in running if one.stage.heartbeat.is_late]
        if dead or late:
            exit_stuck(partial(_report, dead, late), self._end)

    def _run(self, name: str) -> None:
        one = self._running[name]
        _show_name(name)
        try:
            one.stage.run()
        except BaseException as error:
            logger.critical("stage %s died", name, exc_info=True)
            one.error = error
            return
        with self._lock:
            if self._running.get(name) is one:
                del self._running[name]


def _report(dead: list[str], late: list[str]) -> None:
    if dead:
        logger.critical("stages died: %s; exiting", ", ".join(dead))
    if late:
        logger.critical("stages hang: %s; exiting", ", ".join(late))
        dump_threads()


def _show_name(name: str) -> None:
    """Set the thread name shown by `top -H` and debuggers, truncated to 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


class Page(Stage, Protocol):
    """The stage that serves a page."""

    @property
    def url(self) -> str:
        """Its address for browsers."""
        ...


def watch_over(
    supervisor: Supervisor, stop: threading.Event, beat: Callable[[], None] = lambda: None
) -> None:
    """Check all stages until `stop` is set; `beat` says each time that the check was made."""
    while not stop.wait(CHECK_S):
        supervisor.check()
        beat()
