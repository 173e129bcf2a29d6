"""Words for numbers of motion and place made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.explain.numberwords import ViewedNumbers
from stepvad.windows.views import MEANINGS

USUAL = np.array(
    [
        [0.0, 0.01, 0.10, 0.20],  # speed
        [-0.02, -0.01, 0.01, 0.02],  # growth
        [0.2, 0.25, 0.40, 0.50],  # width
    ]
)
STEADY = (0.05, 0.0, 0.0, 0.3)


def motion(*seen: float, meaning: str, known: bool = True) -> str:
    viewed = ViewedNumbers(np.array(seen), np.array(STEADY), USUAL if known else None, 0.001, 500)
    meanings = MEANINGS["motion"]
    return viewed.motion(meaning, [*meanings].index(meaning), meanings[meaning])


def place(size: float = 0.0, wide: float = 0.3, *, meaning: str, rarity: float = 1e-9) -> str:
    viewed = ViewedNumbers(
        np.array([9, 9, size, wide]), np.array([0, 0, 0, 0.3]), None, rarity, 500
    )
    return viewed.place(meaning, rarity < 0.5)


@pytest.mark.parametrize(
    ("velocity", "says"),
    [
        ((0.62, 0.0), "crosses the picture 3.1x as fast as anybody before"),
        ((0.0, -0.21), "crosses the picture faster than anybody before"),
        ((9.0, 0.0), "crosses the picture more than 10x as fast as anybody before"),
        ((0.09, 0.12), "crosses the picture faster than 99 % of people"),
        ((0.003, 0.004), "moves more slowly than 99 % of people"),
        ((-0.06, 0.0), "goes to the left as few people do"),
        ((0.01, 0.05), "goes down in the picture as few people do"),
    ],
)
def test_speed_is_compared_with_everybody(velocity: tuple[float, float], says: str) -> None:
    assert motion(*velocity, 0, 0.3, meaning="speed") == says


def test_growth_and_width_are_compared_too() -> None:
    grown = motion(0.05, 0, 0.03, 0.3, meaning="growth")
    assert grown == "gets larger in the picture faster than anybody before"
    shrunk = motion(0.05, 0, -0.015, 0.3, meaning="growth")
    assert shrunk == "gets smaller in the picture faster than 99 % of people"
    assert motion(0.05, 0, 0, 0.45, meaning="width").startswith("is wider for the height")
    assert motion(0.05, 0, 0, 0.21, meaning="width").startswith("is narrower for the height")
    assert motion(*STEADY, meaning="growth") == "moves with an unusual growth"


def test_a_model_without_quantiles_compares_with_the_nearest_normal_motion() -> None:
    fast = motion(0.15, 0, 0, 0.3, meaning="speed", known=False)
    assert fast == "crosses the picture 3x as fast as usual"
    slow = motion(0.02, 0, 0, 0.3, meaning="speed", known=False)
    assert slow == "moves more slowly than usual"
    other = motion(0, -0.05, 0, 0.3, meaning="speed", known=False)
    assert other == "goes up in the picture as few people do"
    grown = motion(0.05, 0, 0.03, 0.3, meaning="growth", known=False)
    assert grown == "gets larger in the picture faster than usual"


def test_a_place_is_as_rare_as_it_is_said_to_be() -> None:
    assert place(meaning="place") == "is where nobody was before"
    assert place(meaning="place", rarity=0.005) == "is where hardly anybody was before"
    assert place(meaning="place", rarity=0.02) == "is in an unusual place"
    assert place(meaning="place", rarity=0.9) == "is in an unusual place"


def test_a_size_is_compared_with_that_of_people_there() -> None:
    assert place(np.log(1.8), meaning="size") == "is 1.8x as large as people are there"
    assert place(np.log(0.6), meaning="size") == "is only 60 % as large as people are there"
    assert place(0.01, meaning="size") == "has an unusual size for the place"
    assert place(wide=0.5, meaning="width") == "is wider for the height than people are there"
    assert place(wide=0.1, meaning="width") == "is narrower for the height than people are there"
