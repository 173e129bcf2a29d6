"""A process of its own for work that may crash, with a pipe of its own.

The thread that starts a child must live as long as it: the system ends the child with its thread.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from stepvad.live.logs import Form, set_up

MOST_RESTARTS, RESTARTS_S = 5, 60.0
"""What may die so often within so many seconds is started again."""
RESTART_S = 0.2
"""From a death to the next start."""
PR_SET_PDEATHSIG = 1
STOP_S = 3.0

GONE = (EOFError, OSError, pickle.UnpicklingError)
"""What the pipe of a process that was killed raises."""


class Restarts:
    """Whether something that died may be started again."""

    def __init__(self, most: int = MOST_RESTARTS, within_s: float = RESTARTS_S) -> None:
        self._most = most
        self._within_s = within_s
        self._times: deque[float] = deque()

    def allow(self, now: float) -> bool:
        """Count one more death."""
        self._times.append(now)
        while self._times[0] < now - self._within_s:
            self._times.popleft()
        return len(self._times) <= self._most


class Child:
    """A process that runs a function of a module, with the other end of `pipe`."""

    def __init__(self, name: str, form: Form, function: Callable[..., None], *args: Any) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "stepvad.live.child", str(theirs.fileno()), name]
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self.name = name
        self.pipe: Connection[Any, Any] = Connection(ours.detach())
        self.pipe.send((form, function, args))

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def stop(self, within_s: float = STOP_S) -> int:
        """End it: its pipe closes; if that does not help, by force. Its exit code."""
        self.pipe.close()
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Kept:
    """A child that is started again when it dies, in a thread of its own.

    `serve` talks with each child until it is over, and says whether nothing will follow. `died`
    hears of one that died: its exit code, and whether another one is started.
    """

    def __init__(
        self,
        name: str,
        form: Form,
        function: Callable[..., None],
        *args: Any,
        serve: Callable[[Child], bool],
        died: Callable[[int, bool], None],
    ) -> None:
        self.pid: int | None = None
        self.stopping = threading.Event()
        self._new = partial(Child, name, form, function, *args)
        self._serve, self._died = serve, died
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the child soon; `join` waits for it."""
        self.stopping.set()

    def join(self) -> None:
        """Until it is over."""
        self._thread.join()

    def _run(self) -> None:
        restarts, again = Restarts(), True
        while again and not self.stopping.is_set():
            child = self._new()
            self.pid = child.pid
            try:
                over = self._serve(child)
            except GONE:
                over = False
            finally:
                self.pid = None
                code = child.stop()
            if over or self.stopping.is_set():
                return
            again = restarts.allow(time.monotonic())
            self._died(code, again)
            self.stopping.wait(RESTART_S if again else 0)


def end_with_pipe(pipe: Connection[Any, Any]) -> None:
    """End this process when the pipe closes, for those who only send."""

    def wait() -> None:
        with suppress(*GONE):
            pipe.recv()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Let the system end this process when the one that started it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)


def main() -> None:
    """What a child runs."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends its children
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        form, function, args = pipe.recv()
    except GONE:
        return
    set_up(form)
    try:
        function(pipe, *args)
    except GONE:
        logging.getLogger(__name__).debug("%s: the site is gone", sys.argv[2])


if __name__ == "__main__":
    main()
