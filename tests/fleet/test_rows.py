"""That rows of a database are told from those of a quiet run."""

from __future__ import annotations

from tests.fleet.messages import event, over, worse
from tests.fleet.quiet import Quiet
from tests.fleet.rows import Row, compared, differences, wanted

QUIET = Quiet([("end", over(worse(event(n), 7.0))) for n in range(4)])


def rows() -> list[Row]:
    return wanted(QUIET)


def wrong(found: list[Row]) -> dict[str, int]:
    return {name: n for name, n in compared(found, rows()).items() if n}


def test_equal_rows_are_equal() -> None:
    assert wrong(rows()) == {}


def test_each_thing_that_can_be_wrong_is_counted() -> None:
    one, *others = rows()
    twice = {**one, "id": f"{one['id']}0"}
    assert wrong(others) == {"rows missing": 1}
    assert wrong([*rows(), twice]) == {"rows that nobody expected": 1, "duplicate rows": 1}
    goes_on = {**one, "end_time": None, "rank": 1}
    assert wrong([goes_on, *others]) == {"rows not ended": 1, "rows that differ": 1}


def test_a_difference_is_named_and_scores_are_compared_to_1e_5() -> None:
    one = rows()[0]
    other = {
        **one,
        "start_time": one["start_time"] + 0.04,
        "top_score": one["top_score"] * (1 + 1e-7),
        "record": {**one["record"], "track_id": 99, "top_score": 8.0},
    }
    assert sorted(differences(other, one)) == ["record.top_score", "record.track_id", "start_time"]
