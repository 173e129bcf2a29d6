"""Talk to notification services in a child process that is killed when it takes too long."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

from stepvad.codec import Fields, Json, JsonObject
from stepvad.incidents.sink import DeliveryError

DEADLINE_S = 30
"""Longest time for one message; far below the heartbeat of a delivery."""


class SendingProcess:
    """Runs one task at a time, each in a process of its own.

    Libraries and resolvers may block for ever, and a thread cannot be killed. A message is sent a
    few times an hour, so the start of a process does not matter. Secrets go through a pipe: they
    are in no command line and in no environment.
    """

    def __init__(self, deadline_s: int = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def run(self, task: str, **facts: Json) -> list[Fields]:
        """Run a task; return its answers, those before the deadline if it was killed."""
        order: JsonObject = {"task": task, "deadline_s": self._deadline_s, **facts}
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
            said, _ = child.communicate(json.dumps(order).encode(), self._deadline_s)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
        finally:
            with self._lock:
                self._child = None
        return [*_lines(said)]

    @property
    def deadline_s(self) -> int:
        """Longest time for one task."""
        return self._deadline_s

    def cancel(self) -> None:
        """Kill the running task and refuse further ones; thread-safe."""
        with self._lock:
            self._cancelled = True
            if self._child is not None:
                self._child.kill()


def _lines(said: bytes) -> Iterator[Fields]:
    """The whole lines of an answer; a killed process may leave half a line."""
    for line in said.split(b"\n")[:-1]:
        yield Fields.of("answer", json.loads(line))
