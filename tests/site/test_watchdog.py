"""The watchdog of a process: what it ends, what it forgives, and what cannot keep it from that."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time

import pytest

from stepvad.site import stages
from stepvad.site.stages import STUCK, Heartbeat, watchdog
from tests.site.conftest import SOON_S


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "CHECK_S", 0.02)


def test_a_process_that_makes_no_progress_ends_as_stuck_and_says_what_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: queue.Queue[int] = queue.Queue()
    with watchdog("worker a", Heartbeat(0.1), ended.put):
        assert ended.get(timeout=SOON_S) == STUCK
    assert "worker a hangs: no progress for 0.1 s; exiting" in caplog.text


def test_a_process_whose_log_hangs_ends_too(blocked_log: None) -> None:
    ended: queue.Queue[int] = queue.Queue()
    with watchdog("worker a", Heartbeat(0.1), ended.put):
        assert ended.get(timeout=SOON_S) == STUCK


def test_a_process_that_makes_progress_is_left_alone() -> None:
    ended: queue.Queue[int] = queue.Queue()
    heartbeat = Heartbeat(SOON_S)
    heartbeat._at -= 2 * SOON_S  # as after a long start
    with watchdog("worker a", heartbeat, ended.put):
        time.sleep(0.2)
    assert ended.empty()
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_a_pause_of_the_whole_process_is_forgiven(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stages, "PAUSED_S", 0.0)  # every check comes later than that
    ended: queue.Queue[int] = queue.Queue()
    with watchdog("worker a", Heartbeat(0.1), ended.put):
        time.sleep(0.5)
    assert ended.empty()
    assert "the whole process was paused" in caplog.text


KEEPS_THE_GIL = """
import ctypes, sys, time
from stepvad.site import stages

stages.CHECK_S, stages.FROZEN_S = 0.1, 1.0
with stages.watchdog("worker a", stages.Heartbeat(60.0)):
    time.sleep(2.0)
    print("was left alone while threads ran", flush=True)
    ctypes.PyDLL(None).sleep(int(sys.argv[1]))
time.sleep(2.0)
print("ended by itself")
"""


def run_keeping_the_gil(seconds: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", KEEPS_THE_GIL, str(seconds)]
    return subprocess.run(words, capture_output=True, text=True, timeout=40, check=False)


def test_a_process_in_which_native_code_keeps_the_gil_is_ended() -> None:
    made = run_keeping_the_gil(60)
    assert made.returncode == 1
    assert made.stdout == "was left alone while threads ran\n"
    assert "Timeout" in made.stderr
    assert 'File "<string>"' in made.stderr


def test_once_it_is_left_the_timer_ends_nothing() -> None:
    made = run_keeping_the_gil(0)
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("ended by itself\n")
