from __future__ import annotations

import sys
from itertools import combinations

import pytest

from stepvad.errors import MissingExtraError
from stepvad.evaluation.comparison import VARIANTS
from stepvad.evaluation.trivial import TITLES
from stepvad.plots import style


def test_every_method_that_is_compared_has_a_look_of_its_own() -> None:
    assert {*VARIANTS, *TITLES} == {*style.LOOKS}
    assert all(a != b for a, b in combinations(style.LOOKS.values(), 2))


@pytest.mark.parametrize(
    ("family", "colour"),
    [("step", style.BLUE), ("raw", style.VERMILION), ("knn", style.GREEN)],
)
def test_a_family_shares_its_colour(family: str, colour: str) -> None:
    members = [name for name in VARIANTS if name.split("-")[0] == family]
    assert {style.look(name).colour for name in members} == {colour}
    assert style.look(f"{family} of tomorrow").colour == colour
    assert style.look(f"{family}-tomorrow").colour == colour


def test_trivial_scores_are_grey() -> None:
    for name in TITLES:
        red, green, blue = (style.look(name).colour[at : at + 2] for at in (1, 3, 5))
        assert red == green == blue


def test_what_nobody_knows_takes_the_next_colour() -> None:
    looks = [style.look("σ = 1", number) for number in range(2 * len(style.OTHERS))]
    assert [look.colour for look in looks] == [*style.OTHERS, *style.OTHERS]


def test_a_figure_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"plot needs the plots extra; pip install"):
        style.figure(1, 1)
