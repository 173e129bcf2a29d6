from __future__ import annotations

import time

import pytest

from stepvad.cli import terminal
from stepvad.cli.terminal import _Stage
from stepvad.errors import Progress
from tests.conftest import Command


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the bars believe in: the last of these."""
    times = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: times[-1])
    return times


def test_time_left_is_by_what_was_done_here_and_not_by_what_was_there(clock: list[float]) -> None:
    stage = _Stage(0)
    assert stage.pace(90, 100) == ""  # 90 results were there already
    clock.append(100.0 + 600)
    assert stage.pace(92, 100) == "300.0 s each, 0:40:00 left"
    clock.append(100.0 + 1600)
    assert stage.pace(98, 100) == "200.0 s each, 0:06:40 left"
    clock.append(100.0 + 2000)
    assert stage.pace(100, 100) == "200.0 s each"


def test_quick_stages_tell_a_rate_and_an_unknown_total_no_time_left(clock: list[float]) -> None:
    stage = _Stage(0)
    stage.pace(0, 0)
    clock.append(102.0)
    assert stage.pace(5000, 0) == "2,500/s"
    assert stage.pace(5000, 9000) == "2,500/s, 0:00:02 left"


def test_a_stage_that_starts_over_counts_anew(clock: list[float]) -> None:
    stage = _Stage(0)
    stage.pace(0, 10)
    clock.append(110.0)
    stage.pace(10, 10)
    clock.append(200.0)
    assert stage.pace(0, 10) == ""
    clock.append(206.0)
    assert stage.pace(2, 10) == "3.0 s each, 0:00:24 left"


def test_a_bar_shows_how_many_are_done_the_time_taken_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    with terminal.progress_bars() as report:
        report(Progress("experiments", 3, 9))
        clock.append(100.0 + 3 * 3600)
        report(Progress("experiments", 6, 9))
    shown = capsys.readouterr().err
    for words in ("experiments", "6/9", "3600.0 s each, 3:00:00 left"):
        assert words in shown


def test_an_error_of_the_system_without_a_number_keeps_its_words(
    stepvad: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space in this place")

    monkeypatch.setattr("stepvad.cli.app", fail)
    run = stepvad("fit")
    assert run.code == 1
    assert "error: no space in this place" in run.err
