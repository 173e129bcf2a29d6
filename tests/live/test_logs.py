from __future__ import annotations

import logging
import sys

import pytest

from stepvad.live.logs import MOST_KINDS, RepeatFilter, Repeats


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
