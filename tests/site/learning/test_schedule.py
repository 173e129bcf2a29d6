from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepvad.incidents.hours import WatchHours
from stepvad.site.learning.recordings import Amount
from stepvad.site.learning.schedule import Situation, due, words
from stepvad.site.learning.versions import Learned

ALWAYS, NEVER = WatchHours.parse(["00:00-24:00"]), WatchHours(())
NOW = 1_790_000_000.0
DAY_S = 86400.0
FITTED = Learned(
    name="a",
    made=NOW - 2 * DAY_S,
    fitted=Amount(2.0, 200, 50_000),
    measured=Amount(1.0, 100, 25_000),
    marks=0,
    threshold=4.0,
    words="provisional: learned from 1 h, no promise yet",
    is_provisional=True,
    changed="",
)


def at(amount: Amount, current: Learned | None = FITTED, **more: Any) -> Situation:
    plain = Situation(now=NOW, amount=amount, files=20, marks=0, current=current)
    return replace(plain, **more)


def test_the_first_model_needs_people_and_files() -> None:
    assert due(at(Amount(0.02, 9, 1499), None), NEVER) is None
    assert due(at(Amount(0.02, 9, 1500), None, files=5), NEVER) is None
    assert due(at(Amount(0.02, 9, 1500), None), NEVER) == "fit"


def test_a_young_model_is_replaced_by_day_when_three_times_as_much_is_new() -> None:
    young = replace(FITTED, fitted=Amount(0.2, 9, 5000), measured=Amount(0.1, 5, 2500))
    all_ = Amount(1.3, 900, 20_000)
    new = at(all_, young, new=Amount(1.0), unmeasured=Amount(1.0))
    assert due(new, NEVER) == "fit"
    assert due(replace(new, new=Amount(0.8)), NEVER) == "calibrate"
    old = at(Amount(12.0, 900, 200_000), new=Amount(9.0), unmeasured=Amount(9.0))
    assert due(old, NEVER) == "calibrate"  # it can wait for the night


@pytest.mark.parametrize(
    ("change", "hours", "wanted"),
    [
        ({"new": Amount(0.4)}, ALWAYS, "fit"),
        ({"new": Amount(0.4)}, NEVER, None),
        ({"new": Amount(0.3)}, ALWAYS, None),  # hardly anything new
        ({"new": Amount(0.3), "marks": 1}, ALWAYS, "fit"),
        ({"is_asked": True}, NEVER, "fit"),
        ({"unmeasured": Amount(0.5)}, NEVER, "calibrate"),  # half of the hour before
        ({"unmeasured": Amount(0.4)}, NEVER, None),
    ],
)
def test_at_night_a_model_is_replaced_if_there_is_something_to_learn(
    change: dict[str, Any], hours: WatchHours, wanted: str | None
) -> None:
    assert due(at(Amount(3.4, 300, 80_000), **change), hours) == wanted


def test_footage_that_replaces_older_footage_is_new_although_there_is_no_more_of_it() -> None:
    week = replace(FITTED, fitted=Amount(40.0, 9, 5000), measured=Amount(20.0, 5, 2500))
    assert due(at(Amount(60.0, 900, 200_000), week, new=Amount(9.0)), ALWAYS) == "fit"


def test_a_model_of_the_same_night_is_left_alone() -> None:
    fresh = replace(FITTED, made=NOW - 3600)
    assert due(at(Amount(3.4, 300, 80_000), fresh, new=Amount(1.0)), ALWAYS) is None


def test_a_round_that_failed_is_tried_again_after_a_pause() -> None:
    now = at(Amount(12.0, 900, 200_000), unmeasured=Amount(2.0))
    assert due(replace(now, failed_at=NOW - 60), NEVER) is None
    assert due(replace(now, failed_at=NOW - 1000), NEVER) == "calibrate"
    assert due(replace(now, failed_at=NOW - 60, is_asked=True), NEVER) == "fit"
    assert due(replace(now, failed_at=NOW + 9999), NEVER) == "calibrate"  # the clock was set back


def test_what_an_operator_reads() -> None:
    def said(amount: Amount, current: Learned | None = FITTED, since_s: float = 3600.0) -> str:
        now = at(amount, current, unmeasured=Amount(0.2))
        return words(now, 1.0, since=NOW - since_s, needed=2.4)

    assert said(Amount(), None) == "Learning: waiting for the first recording with people in it."
    assert said(Amount(0.1, 12, 500), None) == (
        "Learning: 6 min of motion, 12 tracks of people so far. First alerts possible in about 2 h."
    )
    assert "possible in a minute or two" in said(Amount(0.1, 12, 1600), None)
    assert said(Amount(3.2, 412, 80_000), since_s=DAY_S) == (
        "3.2 h of motion, 412 tracks of people. Alerts are provisional; "
        "the promise of at most 1 false alert a day takes about 9 h more."
    )
    promised = replace(FITTED, is_provisional=False, words="at most 1 a day")
    assert said(Amount(3.2, 412, 80_000), promised).endswith("Threshold: at most 1 a day.")
