"""When a site fits or calibrates again, and how long that still takes. No clock, no files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepvad.calibration.promise import duration
from stepvad.incidents.hours import WatchHours
from stepvad.site.learning.recordings import Amount
from stepvad.site.learning.versions import Learned

RoundKind = Literal["fit", "calibrate"]

FIRST_POSES = 1500
"""Poses for the first model: a few people who cross the picture."""
FIRST_FILES = 6
"""Recordings for the first model: four to fit, two to calibrate."""
YOUNG_HOURS, GROWTH = 2.0, 3.0
"""A model of less footage than this is replaced by day, too, when three times as much is new."""
NIGHT_SHARE = 0.1
"""At night a model is replaced if this share of the footage is new, or if alerts were marked."""
MEASURE_SHARE = 0.5
"""The threshold is set again when there is this much more footage than it was measured on."""
REST_S = 6 * 3600.0
"""Shortest time between two fits, so that a night has one."""
NOTHING = Amount()
RETRY_S = 900.0
"""Pause after a round that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that decides whether a round is due."""

    now: float
    amount: Amount
    """All recordings that can be learned from."""
    files: int
    """Their number."""
    new: Amount = NOTHING
    """Recordings that begin after those that the current model was fitted on."""
    unmeasured: Amount = NOTHING
    """Recordings that begin after those that its threshold was measured on."""
    marks: int
    """Alerts marked as normal, by any model."""
    current: Learned | None
    failed_at: float | None = None
    """When the latest round failed."""
    is_asked: bool = False
    """Whether a person asked for a fit."""


def due(at: Situation, hours: WatchHours) -> RoundKind | None:
    """The round that is due; None if none is."""
    if at.failed_at is not None and 0 <= at.now - at.failed_at < RETRY_S and not at.is_asked:
        return None
    if at.files < FIRST_FILES or at.amount.poses < FIRST_POSES:
        return None
    current = at.current
    if current is None or at.is_asked:
        return "fit"
    known = (current.fitted + current.measured).hours
    if known < YOUNG_HOURS and at.new.hours >= GROWTH * known:
        return "fit"
    rested = at.now - current.made >= REST_S
    is_worth = at.new.hours >= NIGHT_SHARE * at.amount.hours or at.marks != current.marks
    if hours.include(at.now) and rested and is_worth:
        return "fit"
    is_more = at.unmeasured.hours >= MEASURE_SHARE * current.measured.hours
    return "calibrate" if is_more else None


def words(at: Situation, alerts_per_day: float, *, since: float | None, needed: float) -> str:
    """How far a site has learned, for an operator.

    `since` is the time of the oldest recording, `needed` the hours of footage, new to the model,
    that the promise takes.
    """
    amount, current = at.amount, at.current
    seen = f"{duration(amount.hours)} of motion, {amount.people} tracks of people"
    passed_s = 0.0 if since is None else max(at.now - since, 1.0)
    if current is None:
        if not amount.poses:
            return "Learning: waiting for the first recording with people in it."
        left_s = passed_s * max(FIRST_POSES / amount.poses - 1, 0.0)
        soon = f"in about {duration(left_s / 3600)}" if left_s > 20 else "in a minute or two"
        return f"Learning: {seen} so far. First alerts possible {soon}."
    if not current.is_provisional:
        return f"Learned from {seen}. Threshold: {current.words}."
    missing = max(needed - current.measured.hours - at.unmeasured.hours, 0.0)
    wait_h = missing * passed_s / 3600 / amount.hours if amount.hours else 0.0
    often = f"{alerts_per_day:g} false alert{'' if alerts_per_day == 1 else 's'} a day"
    soon = f"takes about {duration(wait_h)} more" if wait_h > 0.02 else "comes with the next check"
    return f"{seen}. Alerts are provisional; the promise of at most {often} {soon}."
