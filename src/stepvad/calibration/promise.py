"""Thresholds with a promise: an upper bound on false events per camera-hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from stepvad.calibration.counting import Counted, upper_rate
from stepvad.calibration.tail import FEWEST, Tails, base_level
from stepvad.codec import Integer, Number, Positive
from stepvad.errors import ConfigError, DataError

How = Literal["counted", "tail", "provisional"]
HOW: Mapping[How, str] = {
    "counted": "counted in the footage",
    "tail": "extrapolated, because the footage is too short to count it",
    "provisional": "the footage is too short for any promise",
}
BEYOND = 10.0
"""The tail supports rates down to one event in this many times the hours of footage."""
GUESSED = 5
"""Minimum number of events for a guess at the tail; a promise takes `FEWEST`."""
MARGIN = 1.25
"""Without a tail, a provisional threshold is this many times the highest score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A threshold, its promise, and the evidence for it."""

    value: Positive
    alerts_per_hour: Positive
    """Promised: the expected number of false events per camera-hour is at most this.

    Of a provisional threshold: the promise that was asked for.
    """
    confidence: Number
    """Confidence level of the promise."""
    how: How
    """Whether the footage itself supports the promise, its tail was extrapolated, or neither."""
    hours: Positive
    """Hours of footage behind it."""
    events: Integer
    """Events of that footage at the threshold."""
    rate: tuple[Number, Number]
    """95 % confidence interval of the true number of events per hour."""

    @property
    def is_promised(self) -> bool:
        """Whether it carries a promise."""
        return self.how != "provisional"

    @property
    def words(self) -> str:
        """The promise and its evidence, as text."""
        if not self.is_promised:
            return f"provisional, no promise yet; {HOW[self.how]} ({duration(self.hours)})"
        return (
            f"at most {self.alerts_per_hour:g} false events per hour of a camera, with "
            f"{100 * self.confidence:g} % confidence; {HOW[self.how]}"
        )


def threshold_for(
    counted: Counted, alerts_per_hour: float, *, confidence: float = 0.95, seed: int = 0
) -> Threshold:
    """The lowest threshold for which the footage supports the rate; raises if there is none."""
    _check(alerts_per_hour, confidence)
    base = base_level(counted)
    counts = _by_counting(counted, alerts_per_hour, confidence, base)
    if counts is None:
        _check_reach(counted, alerts_per_hour, base)
        far = Tails.of(counted, base, seed=seed).thresholds(alerts_per_hour)
    value = float(np.quantile(far, confidence)) if counts is None else counts
    return Threshold(
        value=value,
        alerts_per_hour=alerts_per_hour,
        confidence=confidence,
        how="tail" if counts is None else "counted",
        hours=counted.total_hours,
        events=counted.at(value),
        rate=_interval(counted, value, base, seed),
    )


def threshold_or_guess(
    counted: Counted, alerts_per_hour: float, *, confidence: float = 0.95, seed: int = 0
) -> Threshold:
    """The promised threshold, or a provisional one from however little footage there is."""
    try:
        return threshold_for(counted, alerts_per_hour, confidence=confidence, seed=seed)
    except DataError:
        return provisional(counted, alerts_per_hour, confidence=confidence, seed=seed)


def provisional(
    counted: Counted, alerts_per_hour: float, *, confidence: float = 0.95, seed: int = 0
) -> Threshold:
    """The best guess at a threshold, without a promise.

    The median of the tails at the rate asked for, or at the strictest that so many hours say
    anything about. It is never below the highest event of the footage; with hardly any events it
    is `MARGIN` times the highest score.
    """
    base, levels, totals = base_level(counted), counted.levels, counted.totals
    value = MARGIN * float(levels[-1])
    if totals[base] >= GUESSED:
        rate = max(alerts_per_hour, strictest(counted.total_hours))
        guess = float(np.median(Tails.of(counted, base, seed=seed).thresholds(rate)))
        value = max(guess, float(levels[np.flatnonzero(totals)[-1]]))
    return Threshold(
        value=value,
        alerts_per_hour=alerts_per_hour,
        confidence=confidence,
        how="provisional",
        hours=counted.total_hours,
        events=counted.at(value),
        rate=_interval(counted, value, base, seed),
    )


def hours_for_promise(counted: Counted, alerts_per_hour: float, confidence: float) -> float:
    """Hours of footage like this, in all, that would support a promise."""
    hours, events = counted.total_hours, int(counted.totals[0])
    by_events = hours * FEWEST / max(events, 1)
    by_tail = max(1 / (BEYOND * alerts_per_hour), by_events if events < FEWEST else 0.0)
    return min(by_tail, hours_to_count(alerts_per_hour, confidence))


def duration(hours: float) -> str:
    """Hours of footage as people say them: 40 s, 12 min, 3.5 h, 4 days."""
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.2g} h" if hours < 72 else f"{hours / 24:.2g} days"


def hours_to_count(alerts_per_hour: float, confidence: float) -> float:
    """Hours without an event needed to promise a rate by counting alone."""
    return float(chi2.ppf(confidence, 2) / 2 / alerts_per_hour)


def strictest(hours: float) -> float:
    """The lowest rate that this many hours of footage can promise."""
    return 1 / (BEYOND * hours)


def rates_beyond(
    counted: Counted, highest: float, *, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Thresholds from the tail's base up to `highest`, and the 2.5, 50 and 97.5 % rates there."""
    base = base_level(counted)
    thresholds = np.linspace(counted.levels[base], highest, 100)
    rates = Tails.of(counted, base, seed=seed).rates(thresholds)
    low, middle, high = np.quantile(rates, (0.025, 0.5, 0.975), axis=1)
    return thresholds, low, middle, high


def _check(alerts_per_hour: float, confidence: float) -> None:
    if not (np.isfinite(alerts_per_hour) and alerts_per_hour > 0):
        raise ConfigError(
            f"alerts_per_hour: expected a number above 0, got {alerts_per_hour}",
            hint="one in a day is 0.04; no footage can promise none",
        )
    if not 0.5 <= confidence < 1:
        raise ConfigError(f"confidence: expected from 0.5 to below 1, got {confidence}")


def _by_counting(
    counted: Counted, alerts_per_hour: float, confidence: float, base: int
) -> float | None:
    """The lowest level such that it and all higher levels keep the promise; None if none does.

    Testing downwards from the highest level and stopping at the first failure keeps the error rate
    independent of the number of levels.
    """
    dispersion = counted.dispersion(base)
    kept = None
    for level in range(len(counted.levels) - 1, -1, -1):
        events = int(counted.totals[level])
        if upper_rate(events, counted.total_hours, confidence, dispersion) > alerts_per_hour:
            break
        kept = float(counted.levels[level])
    return kept


def _check_reach(counted: Counted, alerts_per_hour: float, base: int) -> None:
    """Raise if the footage cannot support the promise."""
    hours = counted.total_hours
    if counted.totals[base] < FEWEST:
        raise DataError(
            f"expected footage with at least {FEWEST} events at some threshold to continue its "
            f"tail, got {counted.totals[base]} in {hours:.2g} hours",
            hint="record more normal footage of people in motion",
        )
    if alerts_per_hour < strictest(hours):
        raise DataError(
            f"alerts_per_hour: expected at least {strictest(hours):.2g} from {hours:.2g} hours "
            f"of footage, got {alerts_per_hour:g}",
            hint=f"record {strictest(alerts_per_hour):.3g} hours of normal footage, or allow more "
            "alerts",
        )


def _interval(counted: Counted, value: float, base: int, seed: int) -> tuple[float, float]:
    """Confidence interval of the rate: by counting or, above the base, by the tail."""
    if value > counted.levels[base] and counted.totals[base]:
        tails = Tails.of(counted, base, seed=seed)
        low, high = np.quantile(tails.rates(np.array([value])), (0.025, 0.975))
        return float(low), float(high)
    events, hours, dispersion = counted.at(value), counted.total_hours, counted.dispersion(base)
    low = dispersion * chi2.ppf(0.025, 2 * events / dispersion) / 2 / hours if events else 0.0
    return float(low), upper_rate(events, hours, 0.975, dispersion)
