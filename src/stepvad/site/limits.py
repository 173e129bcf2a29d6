"""The threshold of each camera: what it promises, and its way into a running site."""

from __future__ import annotations

from dataclasses import dataclass

from stepvad.calibration.promise import Threshold, duration
from stepvad.incidents.events import Rules
from stepvad.intake.models import Loaded
from stepvad.site.mailbox import Mailbox

HOURS_A_DAY = 24.0


@dataclass(frozen=True, slots=True)
class Limit:
    """The score from which on a camera alerts, and what it rests on."""

    camera: str
    rules: Rules
    words: str
    """What the threshold promises, for an operator."""
    is_provisional: bool


def limit_of(model: Loaded, camera: str, threshold: float | None) -> Limit:
    """The limit of a camera, from its settings or from the calibration of its model."""
    rules = model.rules(camera, threshold)
    if threshold is not None or model.calibration is None:
        return Limit(camera, rules, "set by hand in the settings", False)
    own = model.calibration.cameras.get(camera, model.calibration.threshold)
    return Limit(camera, rules, promise_words(own), not own.is_promised)


def promise_words(threshold: Threshold) -> str:
    """A promise as an operator reads it."""
    if not threshold.is_promised:
        return f"provisional: learned from {duration(threshold.hours)}, no promise yet"
    rate = threshold.alerts_per_hour
    each, often = ("an hour", rate) if rate >= 1 else ("a day", HOURS_A_DAY * rate)
    alerts = "1 false alert" if f"{often:.3g}" == "1" else f"{often:.3g} false alerts"
    return (
        f"at most {alerts} {each} promised, {100 * threshold.confidence:g} % sure, from "
        f"{duration(threshold.hours)} of normal footage"
    )


LimitQueue = Mailbox[Limit]
"""Changed limits on their way to scoring, which owns the rules."""
