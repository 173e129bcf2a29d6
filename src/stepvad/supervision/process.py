"""Child processes for work that may crash or hang, each supervised by a stage.

The thread that starts a child must live as long as it: the system ends the child with its thread.
A child answers in bytes that the site decodes and checks; only the site, which is trusted, sends
pickles, and only one, when a child starts.
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
from typing import Any, Protocol

from stepvad.supervision.backoff import Backoff
from stepvad.supervision.logs import Form, set_up
from stepvad.supervision.stages import PAUSED_S, Heartbeat

logger = logging.getLogger(__name__)

PROTOCOL = 1
"""Version of what a site and its children say to each other."""
OTHER_VERSION = 75
"""Exit code of a child that speaks another version: the package was upgraded under the site."""
ALIVE_S = 1.0
"""How often a child says that it is alive."""
START_S = 60.0
"""Longest time from the start of a child to its first word: a busy machine imports slowly."""
SILENT_S = 6.0
"""A child that is silent for longer, once it has spoken, hangs."""
TRANSFER_S = 6.0
"""Longest pause within a message, in either direction."""
MOST_BYTES = 1 << 28
"""Largest message that a child may send: a picture of 8192 x 8192 pixels fits."""
FIRST_RESTART_S, LONGEST_RESTART_S = 0.2, 5.0
STEADY_S = 60.0
"""A child that ran for longer is started again at once."""
STOP_S = 3.0
PR_SET_PDEATHSIG = 1

GONE = (EOFError, OSError, pickle.UnpicklingError)
"""What the pipe of a process that was killed raises."""


class HungError(Exception):
    """A child that is there but shows no progress."""


class ChildProcess:
    """A process that runs a function of a module, with the other end of a pipe.

    No wait for it is without a limit: reads and writes of the pipe time out, and a child that
    does not say that it is alive raises `HungError`.
    """

    def __init__(
        self,
        name: str,
        form: Form,
        function: Callable[..., None],
        *args: Any,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                fd = theirs.fileno()
                words = ["-m", "stepvad.supervision.process", str(PROTOCOL), str(fd), name]
                self.process = subprocess.Popen(
                    [sys.executable, *words], pass_fds=[fd], stdin=subprocess.DEVNULL
                )
        except BaseException:
            ours.close()
            raise
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
        """Its number."""
        return self.process.pid

    def receive(self, timeout_s: float) -> bytes | None:
        """The next message, or None if there is none in time; `HungError` if the child hangs."""
        now = time.monotonic()
        if now - self._asked_at > PAUSED_S:
            self._alive_at = now  # this process was paused, and the child may have been too
        deadline = now + timeout_s
        while True:
            self._heartbeat.beat()
            ready = self.pipe.poll(max(deadline - time.monotonic(), 0.0))
            self._asked_at = now = time.monotonic()
            if not ready:
                if now - self._alive_at > self._limit_s:
                    raise HungError(f"silent for {self._limit_s:g} s")
                return None
            message = self.body()
            self._alive_at, self._limit_s = time.monotonic(), SILENT_S
            if message:  # an empty one says no more than that the child is alive
                return message

    def body(self) -> bytes:
        """The message that follows at once, such as the pixels after their header."""
        return self.pipe.recv_bytes(MOST_BYTES)

    def stop(self, within_s: float = STOP_S) -> int | None:
        """End it: its pipe closes; if that does not help, by force. Its exit code, if it ended."""
        self.pipe.close()
        for end in (self.process.kill, None):
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(within_s)
            if end is not None:
                end()
        logger.error("%s (process %d) does not end even by force", self.name, self.pid)
        return None


class Client(Protocol):
    """What talks to a child."""

    def serve(self, child: ChildProcess, stopping: threading.Event) -> bool:
        """Talk until stopped or nothing will follow (then True); what raises ends the child."""
        ...

    def died(self, reason: str) -> None:
        """A child ended and another one follows."""
        ...


class SupervisedProcess:
    """A stage that keeps a child process running: one that dies or hangs is replaced.

    Restarts are never given up, only spaced out: whatever made them fail may be over.
    """

    deadline_s = 4 * STOP_S + TRANSFER_S + LONGEST_RESTART_S

    def __init__(
        self, name: str, form: Form, client: Client, function: Callable[..., None], *args: Any
    ) -> None:
        self.name = name
        self.heartbeat = Heartbeat(self.deadline_s)
        self.pid: int | None = None
        self._stopping = threading.Event()
        self._client = client
        self._new = partial(ChildProcess, name, form, function, *args, heartbeat=self.heartbeat)
        self._backoff = Backoff(FIRST_RESTART_S, LONGEST_RESTART_S)

    def stop(self, deadline: float) -> None:
        """End the child soon."""
        self._stopping.set()

    def run(self) -> None:
        """Keep a child running until stopped or until nothing will follow."""
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = self._run_once()
            if reason is None or self._stopping.is_set():
                return
            if time.monotonic() - began > STEADY_S:
                self._backoff.reset()
            self._client.died(reason)
            self.heartbeat.beat()
            self._backoff.wait(self._stopping)

    def _run_once(self) -> str | None:
        """One child from start to end: why it ended, None if nothing will follow."""
        try:
            child = self._new()
        except OSError as error:  # no memory, process number or file handle: there may be later
            return f"could not be started: {error.strerror or error}"
        self.pid, why = child.pid, ""
        try:
            if self._client.serve(child, self._stopping):
                return None
        except HungError as error:
            why = str(error)
        except GONE as error:
            logger.debug("%s: %r", self.name, error)
        except Exception as error:
            logger.exception("%s: what it said could not be used", self.name)
            why = type(error).__name__
        finally:
            self.pid = None
            code = child.stop()
        return why or _ended(code)


def _ended(code: int | None) -> str:
    if code == OTHER_VERSION:
        return "another version of stepvad is installed now: restart the site"
    return f"ended with code {code}"


class ChildPipe:
    """A child's end of the pipe: says every second that the process is alive."""

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def say_alive(self) -> None:
        """Begin to say so, until the pipe closes."""

        def run() -> None:
            while True:
                try:
                    self.send(b"")
                except OSError:
                    os._exit(0)
                time.sleep(ALIVE_S)

        threading.Thread(target=run, name="alive", daemon=True).start()

    def send(self, *messages: bytes | memoryview) -> None:
        """Send messages with nothing in between."""
        with self._lock:
            for message in messages:
                self._pipe.send_bytes(message)

    def receive(self) -> bytes:
        """The next message of the site."""
        return self._pipe.recv_bytes()

    def end_with_site(self) -> None:
        """End this process when the pipe closes, for those who only send."""

        def wait() -> None:
            with suppress(*GONE):
                self.receive()
            os._exit(0)

        threading.Thread(target=wait, name="end-with-site", daemon=True).start()


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Let the system end this process when the one that started it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)


def main() -> None:
    """What a child runs."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends its children
    version, fd, name = sys.argv[1:4]
    if int(version) != PROTOCOL:
        sys.exit(OTHER_VERSION)
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
