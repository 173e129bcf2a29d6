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
ALIVE = "READY=1\nWATCHDOG=1"
RunService = Callable[["Service"], list[str]]
"""Runs until `stop` is set; returns the names of stages that did not stop."""


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
            self._systemd.notify(ALIVE)
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

    def notify(self, text: str) -> None:
        """Send a message."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()


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
