"""Child processes that die, hang, cannot be started or say the wrong thing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from typing import Any

import pytest

from stepvad.site import processes
from stepvad.site.processes import ChildPipe, ChildProcess, HungError, SupervisedProcess
from stepvad.site.stages import Supervisor
from tests.video.servers import SLOWER, wait_until


def echo(site: ChildPipe) -> None:
    """Says what it hears."""
    while True:
        site.send(site.receive())


def half_a_message(site: ChildPipe) -> None:
    """Begins a message and never ends it."""
    with site._lock:
        os.write(site._pipe.fileno(), b"\x00\x00\x10\x00half")
        time.sleep(60)


def exit_at_once(site: ChildPipe) -> None:
    os._exit(9)


def too_much(site: ChildPipe) -> None:
    """Announces a message of two gigabytes."""
    os.write(site._pipe.fileno(), b"\x7f\xff\xff\xff")
    time.sleep(60)


class Talk:
    """A client that asks its child to repeat words, and notes what happens."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.deaths: list[str] = []
        self.poison = False

    def serve(self, child: ChildProcess, stopping: threading.Event) -> bool:
        while not stopping.is_set():
            child.pipe.send(b"hello")
            if (answer := child.receive(0.5)) is not None:
                if self.poison:
                    self.poison = False
                    raise KeyError("a bug of ours")
                self.answers.append(answer)
            time.sleep(0.05)
        return True

    def died(self, reason: str) -> None:
        self.deaths.append(reason)


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SILENT_S", 2.5)
    monkeypatch.setattr(processes, "TRANSFER_S", 1.0)


def more_answers(talk: Talk) -> bool:
    n = len(talk.answers)
    wait_until(lambda: len(talk.answers) > n, 20)
    return True


class Kept:
    """A child that is kept running for a test."""

    def __init__(self, talk: Talk, function: Any = echo) -> None:
        self.stage = SupervisedProcess("echo", "text", talk.serve, talk.died, function)
        self._supervisor = Supervisor()

    def __enter__(self) -> SupervisedProcess:
        self._supervisor.start(self.stage)
        return self.stage

    def __exit__(self, *error: object) -> None:
        assert self._supervisor.stop([self.stage], 20) == []


def test_a_child_that_is_killed_is_replaced(talk: Talk) -> None:
    with Kept(talk) as stage:
        assert more_answers(talk)
        pid = stage.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: stage.pid not in (None, pid), 20)
        assert more_answers(talk)
    assert talk.deaths == ["ended with code -9"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_is_stopped_is_replaced(talk: Talk, limits: None) -> None:
    with Kept(talk) as stage:
        assert more_answers(talk)
        pid = stage.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: bool(talk.deaths), 20)
        assert more_answers(talk)
    assert talk.deaths == ["silent for 2.5 s"]


def test_a_child_that_never_starts_is_replaced(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_S", 1.0)
    with Kept(talk) as stage:
        while stage.pid is None:
            time.sleep(0.001)
        os.kill(stage.pid, signal.SIGSTOP)  # before the interpreter has started
        wait_until(lambda: bool(talk.deaths), 20)
    assert talk.deaths[0] == "silent for 1 s"


def test_a_child_that_stops_within_a_message_is_replaced(talk: Talk, limits: None) -> None:
    with Kept(talk, half_a_message):
        wait_until(lambda: len(talk.deaths) >= 1, 20)


def test_a_message_that_is_too_large_is_not_waited_for(talk: Talk, limits: None) -> None:
    with Kept(talk, too_much):
        wait_until(lambda: len(talk.deaths) >= 1, 20)


def test_a_child_that_cannot_be_started_is_tried_again(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = subprocess.Popen, [3]

    class Scarce(real):  # type: ignore[valid-type,misc]  # the system's own, at times
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Scarce)
    with Kept(talk):
        assert more_answers(talk)
    assert talk.deaths == ["could not be started: Resource temporarily unavailable"] * 3


def test_an_error_of_ours_while_talking_costs_one_child_and_not_the_stage(talk: Talk) -> None:
    talk.poison = True
    with Kept(talk):
        assert more_answers(talk)
    assert talk.deaths == ["KeyError"]


def test_a_child_that_dies_at_once_is_started_less_and_less_often(talk: Talk) -> None:
    with Kept(talk, exit_at_once):
        wait_until(lambda: len(talk.deaths) >= 4, 30)
        time.sleep(1.0)
        assert len(talk.deaths) < 10


def test_a_child_that_ignores_its_end_is_ended_by_force(limits: None) -> None:
    child = ChildProcess("half", "text", half_a_message)
    wait_until(lambda: child.pipe.poll(0.1), 20)
    os.kill(child.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert child.stop(within_s=0.5) == -signal.SIGKILL
    assert time.monotonic() - began < 2 * SLOWER


def test_sending_to_a_child_that_does_not_read_has_a_limit(limits: None) -> None:
    child = ChildProcess("echo", "text", echo)
    child.receive(10.0)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises((OSError, HungError)):
        child.pipe.send_bytes(bytes(50_000_000))
    child.stop(within_s=0.5)
