"""Child processes for work that may crash or hang, each supervised by a stage.

The thread that starts a child must outlive it: the system kills the child when that thread exits.
A child replies in bytes that the site decodes and validates; only the site, which is trusted, sends
pickles.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from stepvad.errors import os_reason
from stepvad.retries import Backoff
from stepvad.site.stages import PAUSED_S, Form, Heartbeat, set_up

logger = logging.getLogger(__name__)
ALIVE_S = 1.0
"""Interval of a child's keep-alive messages."""
START_S = 60.0
"""Longest time from the start of a child to its first message: a busy machine imports slowly."""
SILENT_S = 5.0
"""A child that is silent for longer, after its first message, counts as hung."""
TRANSFER_S = 5.0
"""Longest pause within a message, in either direction."""
MOST_BYTES = 1 << 26
"""Largest message that a child may send."""
FIRST_RESTART_S, LONGEST_RESTART_S = 0.2, 5.0
STEADY_S = 60.0
"""A child that ran for longer resets the back-off."""
STOP_S = 3.0
PR_SET_PDEATHSIG = 1
GONE = (EOFError, OSError, pickle.UnpicklingError)
"""Exceptions raised by the pipe of a process that was killed."""


class HungError(Exception):
    """A child is alive but makes no progress."""


class ChildProcess:
    """A process that runs a function of a module, connected by a pipe.

    Nothing blocks on it without a limit: reads and writes of the pipe time out, and a child that
    sends no keep-alive raises `HungError`.
    """

    def __init__(
        self,
        name: str,
        form: Form,
        function: Callable[..., None],
        *args: Any,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        # one socket is the pipe in both directions; the child inherits its end
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                fd = theirs.fileno()
                words = ["-m", "stepvad.site.processes", str(fd), name]
                self.process = subprocess.Popen(
                    [sys.executable, *words], pass_fds=[fd], stdin=subprocess.DEVNULL
                )
        except BaseException:
            ours.close()
            raise
        # reads and writes of the pipe time out in the kernel, within a message, too
        limit = struct.pack("ll", int(TRANSFER_S), 0)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, limit)
        self.name = name
        self.pipe: Connection[Any, Any] = Connection(ours.detach())
        self._heartbeat = heartbeat or Heartbeat(SILENT_S)
        self._alive_at = self._asked_at = time.monotonic()
        self._limit_s = START_S
        try:
            self.pipe.send((form, function, args))
        except OSError:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def receive(self, timeout_s: float) -> bytes | None:
        """The next message, or None on timeout; raises `HungError` if the child hangs."""
        now = time.monotonic()
        if now - self._asked_at > PAUSED_S:
            self._alive_at = now  # this process was paused, and the child may have been too
        deadline = now + timeout_s
        while True:
            # every wait beats: a child that hangs is not taken for a stage that hangs
            self._heartbeat.beat()
            ready = self.pipe.poll(max(deadline - time.monotonic(), 0.0))
            self._asked_at = now = time.monotonic()
            if not ready:
                if now - self._alive_at > self._limit_s:
                    raise HungError(f"silent for {self._limit_s:g} s")
                return None
            message = self.pipe.recv_bytes(MOST_BYTES)
            self._alive_at, self._limit_s = time.monotonic(), SILENT_S
            if message:  # an empty one is a keep-alive
                return message

    @property
    def silent_s(self) -> float:
        """Seconds since its last message or keep-alive."""
        return time.monotonic() - self._alive_at

    def kill(self) -> None:
        """Kill it without notice, and wait until it has ended."""
        self.process.kill()
        self.stop()

    def stop(self, within_s: float = STOP_S) -> int | None:
        """Close its pipe, kill it if that is not enough; its exit code, None if it still runs."""
        self.pipe.close()
        for end in (self.process.kill, None):
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(within_s)
            if end is not None:
                end()
        logger.error("%s (process %d) does not exit even when killed", self.name, self.pid)
        return None


Serve = Callable[[ChildProcess, threading.Event], bool]
"""Serves a child until stopped or until no more work follows (True); an error stops the child."""


class SupervisedProcess:
    """A stage that keeps a child process running: one that dies or hangs is replaced.

    Restarts continue indefinitely with back-off: the cause of the failures may go away.
    """

    deadline_s = 4 * STOP_S + TRANSFER_S + LONGEST_RESTART_S

    def __init__(
        self,
        name: str,
        form: Form,
        serve: Serve,
        died: Callable[[str], None],
        function: Callable[..., None],
        *args: Any,
    ) -> None:
        """`died` is called when a child has exited and before another one is started."""
        self.name = name
        self.heartbeat = Heartbeat(self.deadline_s)
        self.pid: int | None = None
        self._stopping = threading.Event()
        self._serve, self._died = serve, died
        self._new = partial(ChildProcess, name, form, function, heartbeat=self.heartbeat)
        self._args = args
        self._backoff = Backoff(FIRST_RESTART_S, LONGEST_RESTART_S)

    def stop(self, deadline: float) -> None:
        """Stop the child soon."""
        self._stopping.set()

    def run(self) -> None:
        """Keep a child running until stopped or until no more work follows."""
        while not self._stopping.is_set():
            # restarts get rarer while they fail, and quick again after a steady run
            began = time.monotonic()
            reason = self._run_once()
            if reason is None or self._stopping.is_set():
                return
            if time.monotonic() - began > STEADY_S:
                self._backoff.reset()
            self._died(reason)
            self.heartbeat.beat()
            self._backoff.wait(self._stopping)

    def _run_once(self) -> str | None:
        """Run one child; return why it exited, or None if no more work follows."""
        try:
            child = self._new(*self._args)
        except OSError as error:  # out of memory, process ids or file handles, perhaps temporarily
            return f"could not be started: {os_reason(error)}"
        self.pid, why = child.pid, ""
        try:
            # the client talks to it until one of them has had enough
            if self._serve(child, self._stopping):
                return None
        except HungError as error:
            why = str(error)
            child.process.kill()  # it would not end by itself
        except GONE as error:
            logger.debug("%s: %r", self.name, error)
        except Exception as error:
            logger.exception("%s: its message could not be used", self.name)
            why = type(error).__name__
        finally:
            self.pid = None
            code = child.stop()
        return why or f"ended with code {code}"


class ChildPipe:
    """A child's end of the pipe; sends a keep-alive every second."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.beat: Callable[[], bytes] = bytes
        """What a keep-alive says; at first nothing."""

    def say_alive(self) -> None:
        """Start sending keep-alives."""

        def run() -> None:
            while True:
                self.send(self.beat())
                time.sleep(ALIVE_S)

        threading.Thread(target=run, name="alive", daemon=True).start()

    def send(self, *messages: bytes | memoryview) -> None:
        """Send messages with nothing in between; this process ends if the site is gone."""
        with self._lock:
            try:
                for message in messages:
                    self._pipe.send_bytes(message)
            except OSError:
                os._exit(0)

    def receive(self) -> Any:
        """The next message from the site, which is trusted."""
        return self._pipe.recv()


def die_with_parent() -> None:
    """Have the system kill this process when its parent exits; let Ctrl-C reach that one only."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Entry point of a child."""
    die_with_parent()
    fd, name = sys.argv[1:3]
    pipe: Connection[Any, Any] = Connection(int(fd))
    site = ChildPipe(pipe)
    site.say_alive()  # before anything large is imported
    try:
        form, function, args = pipe.recv()
    except GONE:
        return
    set_up(form)
    try:
        function(site, *args)
    except GONE:
        logger.debug("%s: the site is gone", name)


if __name__ == "__main__":
    main()
