"""The end of a process that hangs."""

from __future__ import annotations

import threading

import pytest

from stepvad.supervision.stuck import STUCK, exit_stuck


def test_a_process_that_can_start_no_thread_exits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ended: list[int] = []
    exit_stuck(lambda: None, ended.append)
    assert ended == [STUCK]
