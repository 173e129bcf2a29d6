"""A process that systemd or Docker starts again: signals, limits and exit codes."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from stepvad.errors import StepvadError
from stepvad.site.stages import FROZEN_S, exit_no_more, exit_stuck, exit_unless_called_again

logger = logging.getLogger(__name__)
START_S = 180.0
"""Longest time from the start to the first heartbeat: models are loaded."""
STOP_S = 25.0
"""Longest time from a stop signal to the exit."""
NOTIFY_S = 1.0
RunService = Callable[["Service"], list[str]]
"""Runs until `stop` is set; returns the names of stages that did not stop."""

MANY_FILES = 65536
"""No process of a site opens more; programs that iterate over all possible files stay fast."""
FEW_FILES = 4096
"""With fewer, a site with many cameras and a busy page may run out."""


class Service:
    """A process that whatever started it (systemd, Docker, a person) starts again if it fails.

    It ends itself if its main thread hangs: a timer outside Python waits for the next `beat`.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._signalled = self._restarting = False  # a signal handler must not wait for a lock
        self._systemd = SystemdNotifier(os.environ.get("NOTIFY_SOCKET"))

    def run(self, run: RunService) -> int:
        """Run until SIGTERM or Ctrl-C; return the exit code, or start again with new settings."""
        # a signal only sets a flag, which the next heartbeat sees
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        raise_file_limit()
        exit_unless_called_again(START_S)
        try:
            left = run(self)
        except StepvadError:
            raise
        except Exception:
            logger.exception("the site cannot continue")
            left = ["main"]
        finally:
            exit_no_more()
        # new settings: the same program once more, in this process
        if self._restarting:
            self._start_again()
        if left:  # hanging threads must not keep the process alive
            exit_stuck(lambda: None, os._exit)
        return 0

    def beat(self) -> None:
        """Report that every stage was checked; call this every second or so."""
        if self._signalled or self._restarting:
            if not self.stop.is_set():
                self._systemd.notify("WATCHDOG=1" if self._restarting else "STOPPING=1")
            self.stop.set()
            exit_unless_called_again(STOP_S)
        else:
            self._systemd.alive()
            exit_unless_called_again(FROZEN_S)

    def restart(self) -> None:
        """Stop, then start again with the settings in the file; thread-safe."""
        self._restarting = True

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def _start_again(self) -> None:
        """Replace the program by a new one; open files, sockets and threads end with this one."""
        logger.info("the site restarts with new settings")
        logging.shutdown()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # from here on a signal ends the process
        if not self._signalled:
            command = [sys.executable, *sys.orig_argv[1:]]
            os.execv(sys.executable, command)  # noqa: S606  # the same command as now


class SystemdNotifier:
    """Notifies systemd of the state of the service (sd_notify); does nothing without systemd.

    Its socket is opened once: a process that runs out of file handles still says that it is alive.
    """

    def __init__(self, address: str | None) -> None:
        """`address`: NOTIFY_SOCKET of the environment."""
        self._address = re.sub("^@", "\0", address or "")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
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
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()


def raise_file_limit() -> int:
    """Raise the soft limit on open files towards the hard one; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    # no more than the hard limit, and never less than there is
    if wanted <= soft or soft == resource.RLIM_INFINITY:
        wanted = soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d: %s", soft, error)
        return soft
    if 0 <= wanted < FEW_FILES:
        logger.warning(
            "only %d files and connections may be open at once; raise LimitNOFILE= of the service "
            "or ulimit -n",
            wanted,
        )
    return wanted


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Have allocations fail once this process takes `more` bytes than now; on Linux only.

    The limit counts what a process may write to (`RLIMIT_DATA`), not the address space that
    libraries reserve.
    """
    if sys.platform != "linux":
        yield
        return
    before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # what it writes to now, and so much more
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    least = min(limit for limit in (used + more, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
