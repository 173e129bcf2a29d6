from __future__ import annotations

import logging
import sys

import pytest

from stepvad.errors import DataError
from stepvad.supervision.logs import MOST_KINDS, FailureLog, RepeatFilter, Repeats


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


def test_a_filter_holds_repeated_lines_back(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    logger = logging.getLogger("tests.repeating")
    held = RepeatFilter(Repeats(clock=lambda: now))
    logger.addFilter(held)
    try:
        for _ in range(3):
            logger.warning("bad request from %s\n", "somewhere")
        try:
            raise ValueError("odd")
        except ValueError:
            logger.warning("bad request from %s\n", "here", exc_info=sys.exc_info())
        now = 60.0
        logger.warning("bad request from %s\n", "elsewhere")
    finally:
        logger.removeFilter(held)
    assert [one.getMessage() for one in caplog.records] == [
        "bad request from somewhere",
        "bad request from here",
        "bad request from elsewhere (2 more like this since the last line)",
    ]


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
