"""Alerts against labels in seconds: events found, their delay, and false alerts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepvad.events.rules import Rules, changes_of, without_muted
from stepvad.model.scoring import Scores
from stepvad.poses import Clip
from studies.chain.footageset import FootageClip, Times

WITHIN_S = 3.0
"""Seconds after its labelled begin in which an event must raise an alert to be found."""
EARLY_S = 0.5
"""Seconds before the labelled begin that count as the event: labels are not exact."""
Outcome = Literal["found", "late", "open before", "missed"]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: when a site would raise it, and when its event ended."""

    raised_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class EventOutcome:
    """A labelled event and what became of it.

    `late`: the first alert came after the time allowed. `open before`: an alert was raised too
    early and was still open when the event began.
    """

    begin_s: float
    outcome: Outcome
    delay_s: float | None = None
    """From the labelled begin to the alert; None if it is not found or the label has no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipResult:
    """The alerts of one test clip."""

    name: str
    fold: str
    group: str
    is_abnormal: bool
    duration_s: float
    normal_s: float
    """Seconds in which an alert would be false."""
    peak: float
    """Highest score of any window that may raise an alert; -inf without one."""
    peak_s: float | None
    threshold: float
    alerts: tuple[Alert, ...]
    events: tuple[EventOutcome, ...]
    false_alerts: int


def judge(
    clip: FootageClip,
    poses: Clip,
    scores: Scores,
    rules: Rules,
    *,
    fold: str = "",
    within_s: float = WITHIN_S,
) -> ClipResult:
    """Raise alerts as a site would, and compare them with the labels of the clip."""
    fps = poses.rate()
    windows = without_muted(scores.windows, rules)
    top = int(np.argmax(windows.A)) if len(windows) else None
    alerts = raised(poses, scores, rules)
    frames = np.arange(poses.n_frames) / fps
    normal = sum(not _excused(clip, at, within_s) for at in frames.tolist())
    return ClipResult(
        name=clip.name,
        fold=fold,
        group=clip.kept_with,
        is_abnormal=clip.is_abnormal,
        duration_s=poses.n_frames / fps,
        normal_s=normal / fps,
        peak=-math.inf if top is None else float(windows.A[top]),
        peak_s=None if top is None else float(windows.frame[top]) / fps,
        threshold=rules.threshold,
        alerts=alerts,
        events=_outcomes(clip, alerts, within_s),
        false_alerts=sum(not _excused(clip, alert.raised_s, within_s) for alert in alerts),
    )


def raised(poses: Clip, scores: Scores, rules: Rules) -> tuple[Alert, ...]:
    """The alerts of a clip, each at the time at which a site would raise it."""
    alerts: list[Alert] = []
    raised_s = 0.0
    for now_s, change in changes_of(scores.windows, poses.rate(), rules, poses):
        if change.kind == "new":
            raised_s = now_s
        elif change.kind == "end":
            alerts.append(Alert(raised_s, change.event.last_s))
    return tuple(alerts)


def _outcomes(
    clip: FootageClip, alerts: Sequence[Alert], within_s: float
) -> tuple[EventOutcome, ...]:
    if clip.events == "whole":
        return (EventOutcome(0.0, "found" if alerts else "missed"),)
    return tuple(_outcome(begin, end, alerts, within_s) for begin, end in clip.events)


def _outcome(begin: float, end: float, alerts: Sequence[Alert], within_s: float) -> EventOutcome:
    """What became of an event; alerts are in the order of time."""
    for alert in alerts:
        delay = alert.raised_s - begin
        if -EARLY_S <= delay <= within_s:
            return EventOutcome(begin, "found", delay)
    if any(alert.raised_s < begin <= alert.last_s for alert in alerts):
        return EventOutcome(begin, "open before")
    late = any(begin < alert.raised_s <= end for alert in alerts)
    return EventOutcome(begin, "late" if late else "missed")


def _excused(clip: FootageClip, at_s: float, within_s: float) -> bool:
    """Whether an alert at this time is not false: an event lasts, or has just ended."""
    times: Times = ((0.0, math.inf),) if clip.events == "whole" else clip.events
    return any(begin - EARLY_S <= at_s <= end + within_s for begin, end in times)
