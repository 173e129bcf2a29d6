"""Phrases for unusual motion across the picture and unusual places, beside normal footage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.words import FASTER, MOST, SLOWER

STILL = 0.05
"""Speed below which a person stands still, in terms of what is usual at the place."""
CLEARLY = 1.15
"""Ratio from which a size or a speed is said to be so many times another."""
HARDLY = 0.01
"""Share of normal windows that look as unusual, below which hardly anybody was there."""


@dataclass(frozen=True, slots=True, eq=False)
class ViewedNumbers:
    """The numbers of a window, of its nearest normal one, and of normal footage.

    `seen` and `normal` are in the order of the view; `usual (meanings, quantiles)` are the
    quantiles of amounts, if the model knows them.
    """

    seen: NDArray[np.float64]
    normal: NDArray[np.float64]
    usual: NDArray[np.float64] | None
    rarity: float
    """Share of normal windows that look as unusual to the view."""
    n_normal: int
    """Normal windows that the model has seen."""

    def motion(self, meaning: str, row: int, which: tuple[int, ...]) -> str:
        """What is unusual about one meaning of the motion; a verb comes first."""
        value, normal = (_amount(numbers, which) for numbers in (self.seen, self.normal))
        usual = None if self.usual is None else self.usual[row]
        more, than = _compared(value, normal, usual)
        match meaning:
            case "speed" if more:
                fastest = normal if usual is None else float(usual[-1])
                return _fast(value / fastest if fastest > 0 else np.inf, than)
            case "speed" if more is False:
                return f"moves more slowly than {than}"
            case "speed":
                return f"{_way(self.seen[list(which)])} as few people do"
            case "growth" if more is not None:
                return f"gets {'larger' if more else 'smaller'} in the picture faster than {than}"
            case "width" if more is not None:
                return f"is {'wider' if more else 'narrower'} for the height than {than}"
        return f"moves with an unusual {meaning}"

    def place(self, meaning: str, leads: bool) -> str:
        """What is unusual about one meaning of the place; a verb comes first."""
        match meaning:
            case "size":
                return _large(float(np.exp(self.seen[2] - self.normal[2])))
            case "width":
                wide = "wider" if self.seen[3] > self.normal[3] else "narrower"
                return f"is {wide} for the height than people are there"
        if not leads or self.rarity > HARDLY:
            return "is in an unusual place"
        nobody = self.rarity * self.n_normal < 1
        return f"is where {'nobody' if nobody else 'hardly anybody'} was before"


def _amount(numbers: NDArray[np.float64], which: tuple[int, ...]) -> float:
    """A number, or the length of a pair."""
    return float(np.linalg.norm(numbers[list(which)]) if len(which) > 1 else numbers[which[0]])


def _compared(
    value: float, normal: float, usual: NDArray[np.float64] | None
) -> tuple[bool | None, str]:
    """Whether there is clearly more or less of something, and than whom; None if neither."""
    if usual is None:
        if SLOWER * normal < value < FASTER * normal:
            return None, ""
        return value > normal, "usual"
    least, few, most, highest = usual
    if value > most:
        return True, "anybody before" if value > highest else "99 % of people"
    if value < few:
        return False, "anybody before" if value < least else "99 % of people"
    return None, ""


def _fast(times: float, than: str) -> str:
    if times > MOST:
        return f"crosses the picture more than {MOST:g}x as fast as {than}"
    if times >= CLEARLY:
        return f"crosses the picture {times:.2g}x as fast as {than}"
    return f"crosses the picture faster than {than}"


def _way(velocity: NDArray[np.float64]) -> str:
    """Where somebody goes in the picture."""
    across, down = velocity.tolist()
    if np.hypot(across, down) < STILL:
        return "stands still"
    if abs(across) >= abs(down):
        return "goes to the right" if across > 0 else "goes to the left"
    return "goes down in the picture" if down > 0 else "goes up in the picture"


def _large(times: float) -> str:
    if times >= CLEARLY:
        return f"is {times:.2g}x as large as people are there"
    if times <= 1 / CLEARLY:
        return f"is only {100 * times:.0f} % as large as people are there"
    return "has an unusual size for the place"
