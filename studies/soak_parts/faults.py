"""What goes wrong at a simulated site: each fault is limited, is undone, and its end is timed."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from studies.soak_parts.site import CHILDREN, POSE_CAMERAS, VIDEO_CAMERAS, SoakSite
from tests.site.sites import frozen

OUT_S = 15.0
"""How long handles and disk space are away."""
CLOCK_S, AHEAD_S = 20.0, 31 * 86400
RECEIVER_S = 30.0
IDLE, IDLE_S = 1000, 20.0
RESTARTED_S = 60.0
"""How long a site that hangs is given to be killed."""
RECOVERY_S = 120.0
"""A fault that is not over by then counts as never."""
ALL = (*POSE_CAMERAS, *VIDEO_CAMERAS)

Step = Callable[[], bool]
"""Whether one part of a recovery is done; each is asked once the one before it is."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """When it began, and what must happen in turn until the fault is over."""

    since: float
    steps: list[Step]


@dataclass(frozen=True, slots=True)
class Done:
    """One fault that was played."""

    kind: str
    at: float
    recovery_s: float | None
    """None: never."""
    log: tuple[int, int]
    """Where the log began and ended while it lasted, in bytes."""


class Faults:
    """Plays the faults of a deck in turn; at most a fifth of them end the site."""

    killers = ("kill site", "stop site", "freeze scoring")

    def __init__(self, site: SoakSite, seed: int, stopping: threading.Event) -> None:
        self._site, self._stopping = site, stopping
        self._rng = random.Random(seed)
        self.current = ""
        self.done: list[Done] = []
        self.kinds: Mapping[str, Callable[[], Recovery]] = {
            "kill site": self._kill_site,
            "stop site": self._stop_site,
            "freeze scoring": self._freeze_scoring,
            "kill capture": lambda: self._signal_capture(signal.SIGKILL),
            "stop capture": lambda: self._signal_capture(signal.SIGSTOP),
            "kill poses": lambda: self._signal_child("poses-0", VIDEO_CAMERAS, signal.SIGKILL),
            "stop poses": lambda: self._signal_child("poses-0", VIDEO_CAMERAS, signal.SIGSTOP),
            "no handles": self._no_handles,
            "disk full": self._disk_full,
            "wrong clock": self._wrong_clock,
            "receiver down": self._receiver_down,
            "idle connections": self._idle_connections,
            "backup": self._backup,
        }

    def deck(self) -> Iterator[str]:
        """Kinds for ever: every one once, the harmless for the site two at times, shuffled."""
        harmless = [kind for kind in self.kinds if kind not in self.killers]
        while True:
            deck = [*self.kinds, *self._rng.sample(harmless, 2)]
            self._rng.shuffle(deck)
            yield from deck

    def play(self, kind: str) -> Done:
        """Play one and wait until it is over."""
        self._wait(lambda: {*CHILDREN, "site"} <= self._site.processes().keys(), RECOVERY_S)
        self._wait(self._new_frames(ALL), RECOVERY_S)
        self.current, at, log = kind, time.monotonic(), self._log_size()
        recovery = self.kinds[kind]()
        is_back = all(self._wait(step, RECOVERY_S) for step in recovery.steps)
        took = time.monotonic() - recovery.since if is_back else None
        done = Done(kind, at, took, (log, self._log_size()))
        self.done.append(done)
        self.current = ""
        return done

    def _log_size(self) -> int:
        return self._site.log.stat().st_size

    def _wait(self, step: Step, limit_s: float) -> bool:
        """Whether something happens in time."""
        deadline = time.monotonic() + limit_s
        while not step():
            if time.monotonic() > deadline or self._stopping.wait(0.25):
                return False
        return True

    def _new_frames(self, cameras: tuple[str, ...]) -> Step:
        """Whether all of some cameras were scored since this was first asked."""
        base: dict[str, int] = {}

        def step() -> bool:
            counts = self._site.counts()
            if counts is None:
                return False
            if not base:
                base.update(counts["scored"])
                return False
            return all(counts["scored"].get(name, 0) != base.get(name, 0) for name in cameras)

        return step

    def _new_event(self) -> Step:
        known = {row.id for row in self._site.events() or []}
        return lambda: any(row.id not in known for row in self._site.events() or [])

    def _is_replaced(self, name: str, pid: int) -> Step:
        return lambda: self._site.processes().get(name, pid) != pid

    def _restarted(self, pid: int, since: float) -> Recovery:
        return Recovery(since, [self._is_replaced("site", pid), self._new_frames(ALL)])

    def _kill_site(self) -> Recovery:
        pid = self._site.processes()["site"]
        os.kill(pid, signal.SIGKILL)
        return self._restarted(pid, time.monotonic())

    def _stop_site(self) -> Recovery:
        pid, since = self._site.processes()["site"], time.monotonic()
        with _stopped(pid):
            self._wait(self._is_replaced("site", pid), RESTARTED_S)
        return self._restarted(pid, since)

    def _freeze_scoring(self) -> Recovery:
        pid, since = self._site.processes()["site"], time.monotonic()
        with frozen(pid, "scoring"):
            self._wait(self._is_replaced("site", pid), RESTARTED_S)
        return self._restarted(pid, since)

    def _signal_capture(self, number: signal.Signals) -> Recovery:
        camera = self._rng.choice(VIDEO_CAMERAS)
        return self._signal_child(f"capture-{camera}", (camera,), number)

    def _signal_child(
        self, name: str, cameras: tuple[str, ...], number: signal.Signals
    ) -> Recovery:
        pid, since = self._site.processes()[name], time.monotonic()
        if number == signal.SIGSTOP:
            with _stopped(pid):
                self._wait(self._is_replaced(name, pid), RESTARTED_S)
        else:
            os.kill(pid, number)
        return Recovery(since, [self._is_replaced(name, pid), self._new_frames(cameras)])

    def _no_handles(self) -> Recovery:
        pid = self._site.processes()["site"]
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        n_open = len([*Path(f"/proc/{pid}/fd").iterdir()])
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(n_open - 4, 3), before[1]))
        try:
            self._stopping.wait(OUT_S)
        finally:
            with suppress(ProcessLookupError):  # it did not survive, which the verdict shows
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        return Recovery(time.monotonic(), [self._new_frames(ALL), self._new_event()])

    def _disk_full(self) -> Recovery:
        """Full, and what the site gives up for its events is taken as well."""
        until = time.monotonic() + OUT_S
        try:
            while time.monotonic() < until and not self._stopping.is_set():
                self._site.disk.fill()
                self._stopping.wait(0.2)
        finally:
            self._site.disk.free()
        return Recovery(time.monotonic(), [self._new_event()])

    def _wrong_clock(self) -> Recovery:
        self._site.clock.set_ahead(AHEAD_S)
        try:
            self._stopping.wait(CLOCK_S)
        finally:
            self._site.clock.set_ahead(0)
        return Recovery(time.monotonic(), [self._new_event()])

    def _receiver_down(self) -> Recovery:
        receiver = self._site.receiver
        receiver.stop()
        try:
            self._stopping.wait(RECEIVER_S)
        finally:
            receiver.start()
        before = receiver.n_messages
        return Recovery(time.monotonic(), [lambda: receiver.n_messages > before])

    def _idle_connections(self) -> Recovery:
        with ExitStack() as stack:
            for _ in range(IDLE):
                with suppress(OSError):
                    address = ("127.0.0.1", self._site.port)
                    stack.enter_context(socket.create_connection(address, timeout=2))
            self._stopping.wait(IDLE_S)
        return Recovery(time.monotonic(), [self._new_frames(ALL)])

    def _backup(self) -> Recovery:
        since, file = time.monotonic(), self._site.directory / "backup.db"
        words = ["events", "backup", str(file), "--data", str(self._site.data)]
        subprocess.run(
            [sys.executable, "-m", "stepvad", *words], check=True, timeout=60, capture_output=True
        )
        with closing(sqlite3.connect(file)) as copy:
            (answer,) = copy.execute("PRAGMA integrity_check").fetchone()
        file.unlink()
        return Recovery(since, [lambda: answer == "ok", self._new_frames(ALL)])


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Pause a process; it goes on at the end if it is still there."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
