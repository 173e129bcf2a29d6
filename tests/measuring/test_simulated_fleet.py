"""A simulated fleet to which a partition is added says that nothing was lost."""

from __future__ import annotations

import pytest

from measuring.simulated_fleet import Load, Sample, _piled_up, simulate


def test_work_that_piles_up_is_seen_in_the_last_third() -> None:
    samples = [Sample(float(i), 0.0, 10.0 * (i > 5), 0.0, "") for i in range(9)]
    found = _piled_up(samples)
    assert found["messages that waited in the first third, most"] == 0
    assert found["messages that waited in the last third, mean"] == 10


@pytest.mark.slow
def test_a_fleet_that_grows_misses_no_window(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(Load(cameras=20, people=2, message=5, seconds=14.0), workers=2, grow=1)
    told = capsys.readouterr().out
    rows = dict(line.strip("| ").split(" | ") for line in told.rpartition("\n\n")[2].splitlines())
    assert int(rows["moves of cameras"]) > 3
    assert int(rows["windows expected"]) > 5000
    assert int(rows["changes of events expected"]) > 2
    for what in (
        "windows missing",
        "changes of events missing or different",
        "changes of events that nobody expected",
    ):
        assert rows[what] == "0"
