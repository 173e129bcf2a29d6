"""Talk to notification services in a child process that is killed when it takes too long."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

from stepvad.codec import decode, encode
from stepvad.incidents.sink import DeliveryError
from stepvad.site.notifications.sending_child import Answer, Task

DEADLINE_S = 30
"""Longest time for one message; far below the heartbeat of a delivery."""


class SendingProcess:
    """Runs one task at a time, each in a process of its own.

    Libraries and resolvers may block for ever, and a thread cannot be killed. A message is sent a
    few times an hour, so the start of a process does not matter. Secrets go through a pipe: they
    are in no command line and in no environment.
    """

    def __init__(self, deadline_s: int = DEADLINE_S) -> None:
        self.deadline_s = deadline_s
        """Longest time for one task."""
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def run(self, task: Task) -> list[Answer]:
        """Run a task; return its answers, those before the deadline if it was killed."""
        order = encode(replace(task, deadline_s=self.deadline_s))
        with self._lock:
            if self._cancelled:
                raise DeliveryError("expected to send, got: the site is stopping")
            child = self._child = subprocess.Popen(
                [sys.executable, "-m", "stepvad.site.notifications.sending_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # of a library that may write secrets into it
            )
        try:
            said, _ = child.communicate(order, self.deadline_s)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
        finally:
            with self._lock:
                self._child = None
        whole = said.split(b"\n")[:-1]  # a killed process may leave half a line
        return [decode(Answer, line, "answer") for line in whole]

    def cancel(self) -> None:
        """Kill the running task and refuse further ones; thread-safe."""
        with self._lock:
            self._cancelled = True
            if self._child is not None:
                self._child.kill()
