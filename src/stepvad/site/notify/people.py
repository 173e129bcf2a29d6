"""Messages to people through Apprise, in a process of its own, which is killed if it hangs."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import unquote

from stepvad.codec import decode, encode
from stepvad.errors import ConfigError, MissingExtraError
from stepvad.events.record import DeliveryError
from stepvad.files import HIDDEN, redact, secret
from stepvad.site.notify.sending_child import Answer, Task
from stepvad.site.notify.words import Notice

SHORTEST_HIDDEN = 3
"""Parts of an address from this many characters on are hidden in errors."""

DEADLINE_S = 30
"""Longest time for one message; far below the heartbeat of a delivery."""


class Target(Protocol):
    """Takes messages to one address or one group of people."""

    @property
    def has_people(self) -> bool:
        """True if anybody would get a message now."""
        ...

    def describe(self) -> str:
        """Describe it; raise `ConfigError` if it cannot work. Connects to nobody."""
        ...

    def deliver(self, notice: Notice) -> str:
        """Send; return in words what came back, or raise `DeliveryError`."""
        ...

    def cancel(self) -> None:
        """Give up a running `deliver`; thread-safe."""
        ...


class AppriseTarget:
    """One address of a service that Apprise knows; the address is a secret."""

    def __init__(self, reference: str, process: SendingProcess | None = None) -> None:
        if find_spec("apprise") is None:
            raise MissingExtraError("notify", "notify")
        self.label = reference
        self.has_people = True
        self._url = secret(reference)
        self._service = service_of(self._url)
        self._process = process or SendingProcess()

    def describe(self) -> str:
        """Name its service; raise `ConfigError` if Apprise does not understand the address."""
        ok, words = self._run(Task("check", self._url))
        if not ok:
            raise ConfigError(
                f"{self.label}: expected an address that Apprise knows, got: "
                f"{words or 'something else'}",
                hint="for example ntfys://ntfy.sh/TOPIC or mailtos://USER:PASSWORD@HOST?to=ADDRESS",
            )
        return f"a {self._service} address"

    def deliver(self, notice: Notice) -> str:
        """Send one message."""
        ok, words = self._run(Task("notify", self._url, notice.title, notice.text))
        if not ok:
            raise DeliveryError(
                f"{self._service} of {self.label}: expected the service to take a message, got: "
                f"{words.rstrip('.') or 'a refusal without a reason'}",
                hint="check the address, and that the service can be reached from here",
            )
        return f"the {self._service} service took it"

    def cancel(self) -> None:
        """Kill a running send."""
        self._process.cancel()

    def _run(self, task: Task) -> tuple[bool, str]:
        answers = self._process.run(task)
        if not answers:
            return False, f"no answer in {self._process.deadline_s} s"
        return answers[0].ok, without(self._url, answers[0].words)


def service_of(url: str) -> str:
    """The service of an address, such as ntfy; it tells nothing secret."""
    found = re.match(r"([A-Za-z0-9+.-]{2,20})://", url)
    return found[1] if found else "unknown"


def without(url: str, text: str) -> str:
    """A text with every part of an address hidden but for its scheme.

    Any part may be the secret: the host of a Telegram address is its token.
    """
    # the whole address first, then its parts, the longest first
    text = redact(text.replace(url, HIDDEN))
    for part in _parts(url):
        text = re.sub(re.escape(part), HIDDEN, text, flags=re.IGNORECASE)
    return text


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
                [sys.executable, "-m", "stepvad.site.notify.sending_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # of a library that may write secrets into it
            )
        # a child that hangs is killed; what it had answered by then counts
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


def _parts(url: str) -> Sequence[str]:
    """The parts of an address, the longest first; of its query the values only."""
    # user, password, host, path and values, as they are and decoded
    rest = url.partition("://")[2] or url
    path, _, query = rest.partition("?")
    values = [pair.partition("=")[2] for pair in re.split("[&;]", query)]
    whole = [*re.split(r"[/:@,]", path), *path.split("/"), *values]
    found = {*whole, *map(unquote, whole)}
    return sorted((one for one in found if len(one) >= SHORTEST_HIDDEN), key=len, reverse=True)
