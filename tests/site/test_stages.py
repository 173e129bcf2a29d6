"""Stages and what watches them: what ends a process, what is forgiven, and what the log says."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from typing import NoReturn

import pytest

from stepvad.errors import DataError
from stepvad.site import stages
from stepvad.site.stages import (
    MOST_KINDS,
    STUCK,
    FailureLog,
    Form,
    Heartbeat,
    Repeats,
    Supervisor,
    exit_stuck,
    set_up,
)
from tests.video.servers import wait_until


class Steady:
    """A stage that does as its test says."""

    def __init__(self, name: str = "steady", deadline_s: float = 10.0) -> None:
        self.name = name
        self.heartbeat = Heartbeat(deadline_s)
        self.hangs, self.dies, self.stopping = threading.Event(), threading.Event(), False
        self.released = threading.Event()

    def run(self) -> None:
        while not self.stopping:
            if self.hangs.is_set():
                self.released.wait(30)
            if self.dies.is_set():
                raise ValueError("a bug")
            self.heartbeat.beat()
            time.sleep(0.01)

    def stop(self, deadline: float) -> None:
        self.stopping = True


class EndedError(Exception):
    """The process would have ended."""


def end(code: int) -> NoReturn:
    raise EndedError(code)


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor(end)


def test_stages_that_make_progress_are_left_alone(supervisor: Supervisor) -> None:
    one, two = Steady("one", 0.5), Steady("two", 0.5)
    supervisor.start(one)
    supervisor.start(two)
    for _ in range(10):
        time.sleep(0.1)
        supervisor.check_stages()
    assert [stage.name for stage in supervisor.health().stages] == ["one", "two"]
    assert supervisor.health().is_ok
    assert supervisor.stop([one, two], 5.0) == []
    assert supervisor.health().stages == ()


def test_a_stage_that_hangs_ends_the_process_and_is_named(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = Steady("good"), Steady("bad", 0.2)
    supervisor.start(good)
    supervisor.start(bad)
    bad.hangs.set()
    wait_until(lambda: not supervisor.health().is_ok, 5)
    assert supervisor.health().late == ["bad"]
    with pytest.raises(EndedError) as ended:
        supervisor.check_stages()
    assert ended.value.args == (STUCK,)
    assert "bad hangs: no progress for 0.2 s" in caplog.text
    bad.released.set()
    supervisor.stop([good, bad], 5.0)


def test_a_process_whose_log_hangs_with_a_stage_ends_too(
    supervisor: Supervisor, blocked_log: None
) -> None:
    stage = Steady("bad", 0.2)
    supervisor.start(stage)
    stage.hangs.set()
    wait_until(lambda: not supervisor.health().is_ok, 5)
    began = time.monotonic()
    with pytest.raises(EndedError):
        supervisor.check_stages()
    assert time.monotonic() - began < 10
    stage.released.set()
    supervisor.stop([stage], 5.0)


def test_a_stage_that_dies_ends_the_process_with_its_traceback(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Steady("mortal")
    supervisor.start(stage)
    stage.dies.set()
    wait_until(lambda: "stage mortal died" in caplog.text, 5)
    assert "ValueError: a bug" in caplog.text
    with pytest.raises(EndedError):
        supervisor.check_stages()


def test_a_stage_that_ends_by_itself_is_no_longer_asked(supervisor: Supervisor) -> None:
    stage = Steady("finite", 0.1)
    supervisor.start(stage)
    stage.stopping = True
    wait_until(lambda: not supervisor.health().stages, 5)
    time.sleep(0.2)
    supervisor.check_stages()


def test_stopping_has_a_limit_and_names_what_is_left(supervisor: Supervisor) -> None:
    good, bad = Steady("good"), Steady("bad")
    supervisor.start(good)
    supervisor.start(bad)
    bad.hangs.set()
    time.sleep(0.05)
    began = time.monotonic()
    assert supervisor.stop([good, bad], 0.3) == ["bad"]
    assert time.monotonic() - began < 5
    bad.released.set()


def test_a_pause_of_the_whole_process_is_forgiven(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stages, "PAUSED_S", 0.3)
    stage = Steady("paused", 0.2)
    supervisor.start(stage)
    supervisor.check_stages()
    stage.hangs.set()
    time.sleep(0.5)
    supervisor.check_stages()
    assert "was paused" in caplog.text
    assert supervisor.health().is_ok
    time.sleep(0.25)
    with pytest.raises(EndedError):
        supervisor.check_stages()
    stage.released.set()


def test_two_stages_have_two_names(supervisor: Supervisor) -> None:
    one = Steady("same")
    supervisor.start(one)
    with pytest.raises(ValueError, match="a name that no other has"):
        supervisor.start(Steady("same"))
    supervisor.stop([one], 5.0)


PROGRAM = """
import threading, time
from stepvad.site.stages import Heartbeat, Supervisor

class Hanging:
    name, heartbeat = "hanging", Heartbeat(0.2)
    def run(self): threading.Event().wait()
    def stop(self, deadline): pass

supervisor = Supervisor()
try:
    supervisor.start(Hanging())
    while True:
        time.sleep(0.1)
        supervisor.check_stages()
finally:
    print("unwound", flush=True)
"""


def test_a_process_that_hangs_ends_before_anything_is_unwound() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == STUCK
    assert done.stdout == ""
    assert "Thread 0x" in done.stderr, "where it hangs is in the log"


def test_a_process_that_can_start_no_thread_exits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ended: list[int] = []
    exit_stuck(lambda: None, ended.append)
    assert ended == [STUCK]


def test_one_of_a_kind_passes_per_minute_and_the_rest_is_counted() -> None:
    now = 100.0
    repeats = Repeats(clock=lambda: now)
    assert [repeats.admit("a") for _ in range(3)] == [0, None, None]
    assert repeats.admit("b") == 0
    now = 159.0
    assert repeats.admit("a") is None
    now = 161.0
    assert repeats.admit("a") == 3
    assert repeats.admit("a") is None


def test_kinds_are_forgotten_when_there_are_too_many() -> None:
    repeats = Repeats()
    for kind in range(MOST_KINDS + 1):
        assert repeats.admit(kind) == 0
    assert repeats.admit(MOST_KINDS) is None
    assert repeats.admit(0) == 0


def test_failures_are_one_line_a_minute_and_a_traceback_only_if_unexpected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    failures = FailureLog(logging.getLogger("tests.failing"), Repeats(clock=lambda: now))
    for path in ("a", "b", "c"):
        failures.log("a task failed", OSError(24, "Too many open files", path))
    failures.log("a task failed", DataError("odd"))
    failures.log("a task failed", KeyError("a bug"))
    now = 60.0
    failures.log("a task failed", OSError(24, "Too many open files", "d"))
    assert [one.getMessage() for one in caplog.records] == [
        "a task failed: [Errno 24] Too many open files: 'a'",
        "a task failed: odd",
        "a task failed: 'a bug'",
        "a task failed: [Errno 24] Too many open files: 'd' (2 more like this since the last line)",
    ]
    assert [one.exc_info is not None for one in caplog.records] == [False, False, True, False]


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs_hide_credentials_in_both_forms(
    form: Form, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger().handlers, logging.getLogger().level
    try:
        set_up(form)
        logging.getLogger("x").warning("no answer from %s", "rtsp://viewer:canary@host/1")
    finally:
        logging.getLogger().handlers, level = before
        logging.getLogger().setLevel(level)
    line = capsys.readouterr().err
    assert "canary" not in line
    assert "rtsp://***@host/1" in line
    if form == "json":
        assert json.loads(line)["level"] == "warning"
