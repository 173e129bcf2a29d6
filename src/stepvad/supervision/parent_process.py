"""The parent process of a site, which restarts it when it dies or hangs.

A site writes a byte to a pipe whenever its own supervisor has checked every stage. These bytes
feed systemd's watchdog, which restarts the whole service if even this process hangs.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from stepvad.errors import os_reason
from stepvad.supervision.backoff import Backoff
from stepvad.supervision.stages import PAUSED_S

logger = logging.getLogger(__name__)

REFUSED = 3
"""Exit code of a site with unusable settings: it is restarted only if it has run before."""
RELOAD = 4
"""Exit code of a site whose settings were changed: it is started again at once."""
START_S = 180.0
"""Longest time from the start of a site to its first heartbeat: models are loaded."""
HANG_S = 15.0
"""A site without a heartbeat for this long counts as hung."""
STOP_S = 25.0
NOTIFY_S = 1.0
FIRST_RESTART_S, LONGEST_RESTART_S, STEADY_S = 0.2, 5.0, 60.0
HEARTBEAT_OPTION = "--heartbeat-fd"


class HeartbeatPipe:
    """A site's end of the pipe to its parent process."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)
        self._fd = fd

    def beat(self) -> None:
        """Report that every stage was checked."""
        with suppress(OSError):  # no reader: the parent is stopped or gone
            os.write(self._fd, b".")


class SystemdNotifier:
    """Notifies systemd of the state of the service (sd_notify); does nothing without systemd."""

    def __init__(self, address: str | None) -> None:
        """`address`: NOTIFY_SOCKET of the environment."""
        self._address = address and ("\0" + address[1:] if address[0] == "@" else address)
        self._alive_at: float | None = None

    def alive(self) -> None:
        """Report that the service is alive and, the first time, ready; at most once a second."""
        now = time.monotonic()
        if self._alive_at is None:
            self.notify("READY=1\nWATCHDOG=1")
        elif now - self._alive_at >= NOTIFY_S:
            self.notify("WATCHDOG=1")
        else:
            return
        self._alive_at = now

    def notify(self, text: str) -> None:
        """Send a message."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(text.encode(), self._address)


class _Run:
    """One run of a site."""

    def __init__(self, command: Sequence[str]) -> None:
        self._reads, writes = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*command[:3], HEARTBEAT_OPTION, str(writes), *command[3:]],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[writes],
            )
        except BaseException:
            os.close(self._reads)
            raise
        finally:
            os.close(writes)
        self._limit_s = START_S
        self._beat_at = self._looked_at = time.monotonic()

    def heard(self, timeout_s: float) -> bool:
        """Whether a heartbeat arrived in this time."""
        ready, _, _ = select.select([self._reads], [], [], timeout_s)
        if not ready or not os.read(self._reads, 4096):
            if ready:  # closed: the site is about to exit
                select.select([], [], [], timeout_s)
            return False
        self._beat_at, self._limit_s = time.monotonic(), HANG_S
        return True

    def is_hanging(self) -> bool:
        """Whether the heartbeat is overdue, not counting time in which this process was paused."""
        now = time.monotonic()
        if now - self._looked_at > PAUSED_S:
            self._beat_at = now
        self._looked_at = now
        return now - self._beat_at > self._limit_s

    def close(self) -> None:
        os.close(self._reads)


class _SiteSupervisor:
    """Runs a site and restarts it when it fails."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._stopping = False  # no Event: a signal handler must not wait for its own thread's lock
        self._run: _Run | None = None
        self._has_worked = False
        self._systemd = SystemdNotifier(os.environ.get("NOTIFY_SOCKET"))

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a stop signal: terminate the site."""
        self._stopping = True
        if self._run is not None:
            self._run.process.terminate()

    def run(self) -> int:
        """Run until the site exits by itself or a signal stops it; return an exit code."""
        backoff = Backoff(FIRST_RESTART_S, LONGEST_RESTART_S)
        while True:
            began = time.monotonic()
            code = self._run_once()
            if self._stopping:
                return 0 if code in (0, -signal.SIGTERM) else 1
            if code == 0:
                return 0
            if code == REFUSED and not self._has_worked:
                return 1
            if code == RELOAD:
                logger.info("the site restarts with new settings")
                self._systemd.notify("WATCHDOG=1")
                backoff.reset()
                continue
            if time.monotonic() - began > STEADY_S:
                backoff.reset()
            wait_s = backoff.next_s()
            logger.error("the site exited with code %s; restarting in %.1f s", code, wait_s)
            self._rest(wait_s)

    def _run_once(self) -> int | None:
        """Run the site once; return its exit code, or None if it could not be started."""
        try:
            self._run = run = _Run(self._command)
        except OSError as error:  # out of memory, process ids or file handles, perhaps temporarily
            logger.error("the site could not be started: %s", os_reason(error))
            return None
        try:
            if self._stopping:
                run.process.terminate()
            return self._wait(run)
        finally:
            run.close()

    def _wait(self, run: _Run) -> int:
        """Wait until the site exits; kill it if it hangs or does not exit when asked to."""
        told: float | None = None
        killed = False
        while (code := run.process.poll()) is None:
            if run.heard(0.2):
                self._has_worked = True
                self._systemd.alive()
            if self._stopping:
                if told is None:
                    told = time.monotonic()
                    self._systemd.notify("STOPPING=1")
                if time.monotonic() - told > STOP_S:
                    if not killed:
                        logger.error("the site does not stop; killing it")
                    killed = True
                    run.process.kill()
            elif run.is_hanging():
                if not killed:  # a process blocked on disk may take long to die
                    logger.critical("the site hangs: no heartbeat for %g s; killing it", HANG_S)
                killed = True
                run.process.kill()
        return code

    def _rest(self, seconds: float) -> None:
        """Wait before the next start, after one keep-alive to systemd."""
        self._systemd.notify("WATCHDOG=1")
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            select.select([], [], [], 0.1)


def supervise(command: Sequence[str]) -> int:
    """Run a site until it exits by itself or a signal stops it; return an exit code.

    `command` starts with an interpreter, `-m` and a module; the option `--heartbeat-fd` is passed
    to the module. Ctrl-C and SIGTERM are forwarded, and the site shuts down cleanly. A site that
    dies or hangs is restarted, with a delay that grows with each consecutive failure.
    """
    supervisor = _SiteSupervisor(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.stop)
    return supervisor.run()
