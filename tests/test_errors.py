"""Errors carry the problem and the remedy apart, for whoever shows them."""

from __future__ import annotations

import pickle

import pytest

from stepvad.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    ModelFileError,
    StepvadError,
    os_reason,
)


def test_an_error_says_the_problem_and_then_the_remedy() -> None:
    error = DataError("expected 17 joints, got 3", hint="give all")
    assert str(error) == "expected 17 joints, got 3; give all"
    assert (error.problem, error.hint) == ("expected 17 joints, got 3", "give all")
    assert str(DataError("broken")) == "broken"


@pytest.mark.parametrize("kind", [ConfigError, DataError, MissingExtraError, ModelFileError])
def test_one_except_catches_them_all(kind: type[StepvadError]) -> None:
    assert issubclass(kind, StepvadError)


def test_a_place_goes_in_front_and_the_remedy_stays() -> None:
    error = DataError("expected 17 joints, got 3", hint="give all").located("a.json, track 7")
    assert error.problem == "a.json, track 7: expected 17 joints, got 3"
    assert error.hint == "give all"


def test_a_missing_extra_names_what_to_install() -> None:
    error = MissingExtraError("fit", "train")
    assert str(error) == "fit needs the train extra; pip install 'stepvad[train]'"


@pytest.mark.parametrize(
    "error", [ConfigError("a"), DataError("b", hint="c"), MissingExtraError("fit", "train")]
)
def test_an_error_passes_from_process_to_process(error: StepvadError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other)) == (type(error), str(error))
    assert (other.problem, other.hint) == (error.problem, error.hint)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "No such file or directory"), "No such file or directory"),
        (OSError("no space in this place"), "no space in this place"),
        (OSError(), "OSError"),
    ],
)
def test_the_systems_reason_is_never_none(error: OSError, words: str) -> None:
    assert os_reason(error) == words
