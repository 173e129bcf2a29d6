"""Limits for an alert budget, from the peaks of the footage of a camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import gammainc, gammaincinv

from stepvad.codec import Count, Positive
from stepvad.errors import ConfigError, DataError
from stepvad.events.ledger import DAY_S, HOUR_S, LedgerEntry

How = Literal["ranked", "counted"]
FARTHEST = 3.0
"""Nothing is extrapolated beyond so many times the footage."""
STEEPEST = 60
"""Number of the highest quiet peaks that say how far a limit beyond them is."""
FEWEST = 3
"""Fewer quiet peaks have no order to go by: the limit is `MARGIN` times the highest, or 1."""
MARGIN = 1.25
CONFIDENCE = 0.95
"""Confidence level of a strict limit."""
FAR_OVER = 0.001
"""Chance of so many alerts at which a camera is said to be over its budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A limit, its budget, and the footage behind it.

    Examples:
        >>> calibrate(detector, clips, alerts_per_hour=100.0).how
        'ranked'
    """

    value: Positive
    alerts_per_hour: Positive
    """Events of an hour watched that are to exceed it: about as many or, if counted, at most."""
    how: How
    """Ranked: a budget. Counted: strict, at most the rate, with `CONFIDENCE`."""
    hours: Positive
    """Hours watched behind it."""
    events: Count
    """Events of that footage, raised or not."""

    @property
    def is_early(self) -> bool:
        """True if the footage is too short for the rate: more alerts are to be expected."""
        return self.how == "ranked" and self.hours * self.alerts_per_hour < 1 / FARTHEST

    @property
    def words(self) -> str:
        """The budget and its footage, as an operator reads them."""
        rate, watched = often(self.alerts_per_hour), duration(self.hours)
        events = f"{self.events:,} event{'' if self.events == 1 else 's'}"
        if self.how == "counted":
            sure = f"{100 * CONFIDENCE:g} % sure"
            return f"at most {rate}, {sure}, counted in {watched} with {events}"
        more = "; learning what is usual, expect two or three more" if self.is_early else ""
        return f"about {rate}: a budget, from {watched} watched with {events}{more}"


def limit_of(
    entries: Sequence[LedgerEntry], alerts_per_day: float, *, strict: bool = False
) -> Threshold:
    """The limit that about so many events of a day watched exceed; strict: at most.

    Raises:
        DataError: If there is no footage with people or, strict, not enough; says how much more.
    """
    if not (np.isfinite(alerts_per_day) and alerts_per_day > 0):
        raise ConfigError(
            f"alerts: expected a rate above 0, got {alerts_per_day:g} a day",
            hint="one in ten days is 0.1 a day, or 0.004 an hour; no footage can support none",
        )
    quiet = [peak for one in entries for peak in one.quiet]
    alerts = [peak for one in entries for peak in one.alerts]
    days = sum(one.watched_s for one in entries) / DAY_S
    if not days or not (quiet or alerts):
        raise DataError(
            "expected footage with people who are scored above 0, got "
            + (f"{duration(24 * days)} without" if days else "none"),
            hint="calibrate with footage of the camera in which people move normally",
        )
    find = counted_limit if strict else rank_limit
    return Threshold(
        value=find(quiet, alerts, days, alerts_per_day),
        alerts_per_hour=alerts_per_day / 24,
        how="counted" if strict else "ranked",
        hours=24 * days,
        events=len(quiet) + len(alerts),
    )


def rank_limit(
    quiet: Sequence[float], alerts: Sequence[float], days: float, per_day: float
) -> float:
    """The limit that `per_day` events a day of footage like this exceed.

    If days are alike, the k-th highest peak of D days is exceeded k / D times a day. Alerts are
    counted, but how far above the highest quiet peak they are is not used.
    """
    ordered = np.sort(np.asarray(quiet, np.float64))[::-1]
    if len(ordered) < FEWEST:
        return MARGIN * max([1.0, *ordered.tolist()])
    k, top = max(per_day * days, 1 / FARTHEST), ordered[0]
    above = int((np.asarray(alerts) > top).sum())
    if k >= above + 1:
        # the k-th highest of all peaks comes after the alerts above the quiet ones; between two
        # peaks by their logarithm
        both = np.sort(np.concatenate((ordered, alerts)))[::-1]
        return float(np.exp(np.interp(k, np.arange(1, len(both) + 1), np.log(both))))
    # beyond the highest quiet peak, as steeply as the quiet ones rise to it
    logs = np.log(ordered[:STEEPEST])
    slope = float(np.mean(logs[:-1] - logs[-1]))
    return float(top * ((above + 1) / k) ** slope)


def counted_limit(
    quiet: Sequence[float], alerts: Sequence[float], days: float, per_day: float
) -> float:
    """The lowest limit with at most `per_day` events a day at `CONFIDENCE`, by counting alone.

    Alerts exceed every limit: how strange they were is not used. Peaks are taken from the highest
    down until the rate can no longer be excluded, so that their number does not matter.

    Raises:
        DataError: If even none more would not be enough.
    """
    count, ordered = len(alerts), sorted(quiet, reverse=True)
    needed = upper_bound(count) / per_day
    if needed > days:
        without = f"with {count} alert{'s' * (count > 1)}" if count else "without an alert"
        raise DataError(
            f"strict: not before {duration(24 * needed)} {without}; {duration(24 * days)} watched, "
            f"{duration(24 * (needed - days))} to go",
            hint="a budget takes less: leave out strict, or allow more alerts",
        )
    fit = 0
    while fit < len(ordered) and upper_bound(count + fit + 1) <= per_day * days:
        fit += 1
    if fit == 0 and ordered:
        return float(np.nextafter(ordered[0], np.inf))
    return ordered[fit - 1] if fit else MARGIN


def upper_bound(events: int) -> float:
    """The largest expected number that a count of events leaves possible, at `CONFIDENCE`.

    Exact for Poisson counts: 3.0 of none.
    """
    return float(gammaincinv(events + 1, CONFIDENCE))


def over_budget(entries: Sequence[LedgerEntry], per_day: float, since: float) -> str:
    """Words about far more alerts since midnight than the budget explains; empty if it does.

    Right alerts are not in the ledger, and do not count.
    """
    alerts = sum(len(one.alerts) for one in entries if one.begin >= since)
    # the chance of as many or more, in a whole day of the budget
    if not alerts or gammainc(alerts, per_day) >= FAR_OVER:
        return ""
    return f"{alerts} alerts today for a budget of {per_day:g}. Has the camera moved?"


def often(alerts_per_hour: float) -> str:
    """A rate as people say it: 1 alert a day, 6 alerts an hour."""
    each, rate = ("an hour", alerts_per_hour) if alerts_per_hour >= 1 else ("a day", 0.0)
    number = f"{rate or 24 * alerts_per_hour:.3g}"
    return f"{number} alert{'' if number == '1' else 's'} {each}"


def duration(hours: float) -> str:
    """Hours of footage as people say them: 40 s, 12 min, 3.5 h, 4 days."""
    if hours < 1 / 60:
        return f"{HOUR_S * hours:.0f} s"
    if hours < 1:
        return f"{60 * hours:.0f} min"
    return f"{hours:.2g} h" if hours < 48 else f"{hours / 24:.2g} days"
