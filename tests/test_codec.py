from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepvad.codec import Fields, NewerVersionError, check_version
from stepvad.errors import DataError

GOOD = Fields(
    "thing",
    {
        "text": "a",
        "flag": True,
        "whole": 3,
        "number": 2.5,
        "items": [1, "a"],
        "wholes": [1, 2],
        "numbers": [1, 2.5],
        "texts": ["a"],
        "fields": {"x": 1},
        "objects": {"one": {"x": 1}},
    },
)


def test_each_field_comes_as_what_it_is() -> None:
    assert (GOOD.text("text"), GOOD.flag("flag"), GOOD.whole("whole")) == ("a", True, 3)
    assert (GOOD.number("number"), GOOD.number("whole")) == (2.5, 3.0)
    assert (GOOD.items("items"), GOOD.wholes("wholes")) == ([1, "a"], (1, 2))
    assert (GOOD.numbers("numbers"), GOOD.texts("texts")) == ((1.0, 2.5), ("a",))
    assert GOOD.fields("fields").whole("x") == GOOD.objects("objects")["one"].whole("x") == 1
    assert "text" in GOOD
    assert "nothing" not in GOOD


Take = Callable[[Fields, str], object]
WRONG: list[tuple[Take, list[Any]]] = [
    (Fields.text, [1, None, ["a"]]),
    (Fields.flag, [0, 1, "true", None]),
    (Fields.whole, [-1, 1.0, True, "1", None, 2**63]),
    (Fields.number, [float("nan"), float("inf"), 10**400, True, "1", None]),
    (Fields.items, ["ab", {"a": 1}, 3, None]),
    (Fields.wholes, [[1, 1.5], [True], [-1], "12"]),
    (Fields.numbers, [[float("nan")], ["1"], [False], [10**400]]),
    (Fields.texts, [[1], "ab", ["a", None]]),
    (Fields.fields, [[], "a", None]),
    (Fields.objects, [{"a": 1}, {1: {}}, []]),
]


@pytest.mark.parametrize(("take", "value"), [(t, value) for t, some in WRONG for value in some])
def test_a_field_of_another_type_is_refused(take: Take, value: Any) -> None:
    with pytest.raises(DataError, match=r"^thing.*: expected .*, got "):
        take(Fields("thing", {"x": value}), "x")
    with pytest.raises(DataError, match="thing: expected y, got none"):
        take(Fields("thing", {"x": value}), "y")


def test_numbers_are_held_to_their_bounds() -> None:
    assert Fields("thing", {"x": -5}).whole("x", least=-5) == -5
    own = Fields("thing", {"x": 7})
    assert (own.whole("x", below=8), own.number("x", most=7.0)) == (7, 7.0)
    with pytest.raises(DataError, match="as x, got 7"):
        own.whole("x", below=7)
    with pytest.raises(DataError, match="as x, got 7"):
        own.number("x", most=6.9)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(DataError, match="thing: expected an object, got list"):
        Fields.of("thing", [])


def test_a_version_is_ours_or_older_and_1_where_there_is_none() -> None:
    assert Fields("thing", {}).version(2) == 1
    assert Fields("thing", {"version": 2}).version(2) == 2
    for version in (3, 0, True, "1", None, 1.0):
        with pytest.raises(DataError, match="thing: expected version 2 or older, got") as error:
            check_version("thing", version, 2)
        assert "newer" in error.value.hint


def test_only_a_number_above_ours_is_a_newer_version() -> None:
    with pytest.raises(NewerVersionError):
        check_version("thing", 3, 2)
    for version in (0, True, "3", None, 3.0):
        with pytest.raises(DataError) as error:
            check_version("thing", version, 2)
        assert type(error.value) is DataError
