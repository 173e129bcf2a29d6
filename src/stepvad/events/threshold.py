"""Thresholds with a promise: an upper bound on false events per camera-hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import boxcox, gammaincinv, inv_boxcox

from stepvad.codec import Integer, Number, Positive
from stepvad.errors import ConfigError, DataError
from stepvad.events.rules import Rules, events_in, relevant, without_muted
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip

How = Literal["counted", "tail", "provisional"]
HOW: Mapping[How, str] = {
    "counted": "counted in the footage",
    "tail": "extrapolated, because the footage is too short to count it",
    "provisional": "the footage is too short for any promise",
}
BEYOND = 10.0
"""The tail supports rates down to one event in this many times the hours of footage."""
MARGIN = 1.25
"""Without a tail, a provisional threshold is this many times the highest score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A threshold, its promise, and the evidence for it.

    Examples:
        >>> calibrate(detector, clips * 4, alerts_per_hour=100.0).is_promised
        True
    """

    value: Positive
    alerts_per_hour: Positive
    """Promised: the expected number of false events per camera-hour is at most this.

    Of a provisional threshold: the promise that was asked for.
    """
    confidence: Number
    """Confidence level of the promise."""
    how: How
    """The evidence: the footage itself, its extrapolated tail, or not enough for a promise."""
    hours: Positive
    """Hours of footage behind it."""
    events: Integer
    """Events of that footage at the threshold."""
    rate: tuple[Number, Number]
    """95 % confidence interval of the true number of events per hour."""

    @property
    def is_promised(self) -> bool:
        """True if it carries a promise."""
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
    _check_promise(alerts_per_hour, confidence)
    base = base_level(counted)
    how: How = "counted"
    value = _by_counting(counted, alerts_per_hour, confidence, base)
    if value is None:
        # the upper bound of the thresholds at which the tails leave this rate
        _check_reach(counted, alerts_per_hour, base)
        far = Tails.sample(counted, base, seed=seed).thresholds(alerts_per_hour)
        value, how = float(np.quantile(far, confidence)), "tail"
    return _threshold(counted, value, alerts_per_hour, confidence, how, seed)


def threshold_or_guess(
    counted: Counted, alerts_per_hour: float, *, confidence: float = 0.95, seed: int = 0
) -> Threshold:
    """The promised threshold, or the best guess from however little footage there is.

    A guess is the median of the tails at the rate asked for, or at the strictest that so many hours
    say anything about. It is never below the highest event of the footage; with hardly any events
    it is `MARGIN` times the highest score.
    """
    with suppress(DataError):
        return threshold_for(counted, alerts_per_hour, confidence=confidence, seed=seed)
    base, levels, totals = base_level(counted), counted.levels, counted.totals
    value = MARGIN * float(levels[-1])
    if totals[base] >= 5:  # for a guess; a promise takes `FEWEST`
        rate = max(alerts_per_hour, strictest(counted.total_hours))
        guess = float(np.median(Tails.sample(counted, base, seed=seed).thresholds(rate)))
        value = max(guess, float(levels[np.flatnonzero(totals)[-1]]))
    return _threshold(counted, value, alerts_per_hour, confidence, "provisional", seed)


def _threshold(
    counted: Counted, value: float, alerts_per_hour: float, confidence: float, how: How, seed: int
) -> Threshold:
    """A threshold with its evidence: what is left of the footage above it."""
    base, hours, events = base_level(counted), counted.total_hours, counted.at(value)
    if value > counted.levels[base] and counted.totals[base]:  # by the tail
        rates = Tails.sample(counted, base, seed=seed).rates(np.array([value]))
        low, high = np.quantile(rates, (0.025, 0.975))
    else:  # by counting
        dispersion = counted.dispersion(base)
        low = dispersion * gammaincinv(events / dispersion, 0.025) / hours if events else 0.0
        high = upper_rate(events, hours, 0.975, dispersion)
    return Threshold(
        value=value,
        alerts_per_hour=alerts_per_hour,
        confidence=confidence,
        how=how,
        hours=hours,
        events=events,
        rate=(float(low), float(high)),
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
    return float(gammaincinv(1, confidence) / alerts_per_hour)


def strictest(hours: float) -> float:
    """The lowest rate that this many hours of footage can promise."""
    return 1 / (BEYOND * hours)


def rates_beyond(
    counted: Counted, highest: float, *, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Thresholds from the tail's base up to `highest`, and the 2.5, 50 and 97.5 % rates there."""
    base = base_level(counted)
    thresholds = np.linspace(counted.levels[base], highest, 100)
    rates = Tails.sample(counted, base, seed=seed).rates(thresholds)
    low, middle, high = np.quantile(rates, (0.025, 0.5, 0.975), axis=1)
    return thresholds, low, middle, high


def _check_promise(alerts_per_hour: float, confidence: float) -> None:
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


BLOCK_S = 300.0
"""Footage is cut into blocks of this many seconds, which are assumed to be independent."""
MAX_HOURS = 10_000
"""Longest clip, more than a year."""
LEVELS = 100
"""Thresholds at which events are counted."""
LOWEST = 0.95
"""The lowest threshold is this quantile of the scores of all windows."""


@dataclass(frozen=True, slots=True, eq=False)
class NormalClip:
    """Normal footage of one clip with its scores."""

    windows: WindowScores
    n_frames: int
    fps: float
    first_frame: int = 0
    """The first frame watched; anything before it does not count as footage without events."""

    @classmethod
    def from_scores(cls, clip: Clip, scores: Scores, fps: float | None = None) -> NormalClip:
        """A clip with its scores; `fps` is for clips without a rate."""
        return cls(scores.windows, clip.n_frames, clip.rate(fps), clip.first_frame)

    @property
    def watched_s(self) -> tuple[float, float]:
        """Start and end of the time in which people could have been seen."""
        return self.first_frame / self.fps, self.n_frames / self.fps


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """False events at every threshold level, `(B, J)`, in blocks of `hours (B,)`."""

    levels: NDArray[np.float64]
    """Ascending, `(J,)`."""
    events: NDArray[np.int64]
    """Never fewer at a lower level."""
    hours: NDArray[np.float64]

    @classmethod
    def from_clips(
        cls, clips: Sequence[NormalClip], levels: NDArray[np.float64], rules: Rules
    ) -> Counted:
        """Count the events of clips; `rules` apply except for their threshold."""
        parts = [_count(clip, levels, rules) for clip in clips]
        events = np.concatenate([events for events, _ in parts])  # (B, J)
        # A long event may split at a higher threshold: count as many at the lower one.
        events = np.maximum.accumulate(events[:, ::-1], axis=1)[:, ::-1]
        return cls(levels, events, np.concatenate([hours for _, hours in parts]))

    @property
    def total_hours(self) -> float:
        """Hours of footage counted."""
        return float(self.hours.sum())

    @property
    def totals(self) -> NDArray[np.int64]:
        """Events of all blocks at every level, `(J,)`."""
        return self.events.sum(axis=0)

    def at(self, threshold: float) -> int:
        """Events left at a threshold; never underestimated."""
        level = int(np.searchsorted(self.levels, threshold, side="right")) - 1
        return int(self.totals[max(level, 0)]) if threshold < self.levels[-1] else 0

    def joined(self, others: Iterable[Counted]) -> Counted:
        """Append blocks that were counted at the same levels."""
        every = [self, *others]
        return replace(
            self,
            events=np.concatenate([one.events for one in every]),
            hours=np.concatenate([one.hours for one in every]),
        )

    def dispersion(self, level: int) -> float:
        """Variance of block counts relative to rare independent events, at least 1.

        Incidents cluster: a burst of events in one block is weaker evidence than as many events
        in separate blocks.
        """
        counts = self.events[:, level]  # of each block, (B,)
        expected = counts.sum() * self.hours / self.total_hours
        if len(counts) < 2 or not counts.any():
            return 1.0
        return max(1.0, float(((counts - expected) ** 2 / expected).sum() / (len(counts) - 1)))


def upper_rate(events: int, hours: float, confidence: float, dispersion: float = 1.0) -> float:
    """Upper confidence bound on the hourly rate, given `events` in `hours`.

    Exact for Poisson counts; a dispersion of d widens the bound as if there were d times less data.
    """
    mean = gammaincinv(events / dispersion + 1, confidence)
    return float(dispersion * mean / hours)


def levels_for(clips: Iterable[NormalClip], rules: Rules) -> NDArray[np.float64]:
    """Thresholds to count at, from one that many windows exceed up to the highest score."""
    scores = [without_muted(clip.windows, rules).A for clip in clips]
    every = np.concatenate([np.empty(0, np.float32), *scores])
    highest = float(every.max()) if len(every) else 0.0
    if highest <= 0:
        raise DataError(
            f"expected footage with people who are scored above 0, got {len(every):,} windows "
            "and none above",
            hint="calibrate with footage of the camera in which people move normally",
        )
    lowest = max(float(np.quantile(every, LOWEST)), 0.01 * highest)
    return np.geomspace(lowest, highest, LEVELS)


def _count(
    clip: NormalClip, levels: NDArray[np.float64], rules: Rules
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Events of one clip by block and level, and the hours of its blocks."""
    begin, end = clip.watched_s
    if end - begin > MAX_HOURS * 3600:
        raise DataError(
            f"expected clips of up to {MAX_HOURS:,} hours, got {(end - begin) / 3600:.3g}",
            hint="check the frames per second, or split the recording",
        )
    edges = np.linspace(begin, end, max(round((end - begin) / BLOCK_S), 1) + 1)
    # what yields events at the lowest level, also does at every other
    some = relevant(clip.windows, replace(rules, threshold=float(levels[0])))
    events = np.zeros((len(edges) - 1, len(levels)), dtype=np.int64)
    for number, level in enumerate(levels.tolist()):
        if not len(some) or level > some.A.max():
            break
        found = events_in(some, clip.fps, replace(rules, threshold=level))
        events[:, number] = np.histogram([event.first_s for event in found], edges)[0]
    return events, np.diff(edges) / 3600


PEAKS = 60
"""Number of events that the tail is fitted to, the highest ones."""
FEWEST = 20
"""Minimum number of events for a tail."""
SHAPES = np.linspace(1e-6, 0.7, 61)
"""From an exponential tail to a very heavy one. Negative shapes are excluded: they would assume an
upper bound on scores."""
SCALES = np.geomspace(0.2, 4.0, 81)
"""Scales of the tail, relative to the mean excess over the base; the prior is log-uniform."""
DRAWS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Generalised Pareto tails given the footage: draws `(S,)` from their posterior.

    Above a threshold u of at least `level`, `rate (1 + shape (u - level) / scale)^(-1 / shape)`
    events occur per hour.
    """

    level: float
    rate: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def sample(cls, counted: Counted, base: int, *, seed: int = 0) -> Tails:
        """Tails above the level with index `base`; clustered events have less weight."""
        rng = np.random.default_rng(seed)
        # the excess of each event over the base, ascending, (n,): an event is placed midway
        # between the last level that it reaches and the next
        totals, levels = counted.totals[base:], counted.levels[base:]
        ends = np.append(totals[:-1] - totals[1:], totals[-1])
        middles = np.append((levels[:-1] + levels[1:]) / 2, levels[-1])
        excess, dispersion = np.repeat(middles - levels[0], ends), counted.dispersion(base)
        # log-likelihood of every shape and scale, (61, 81)
        scales = SCALES * excess.mean()
        z = excess / scales[:, None]
        sums = [(1 + shape) / shape * np.log1p(shape * z).sum(axis=1) for shape in SHAPES]
        likelihood = (-np.stack(sums) - len(excess) * np.log(scales)) / dispersion
        # exponential prior on the shape, with mean 0.15: heavier tails are less likely
        posterior = likelihood - SHAPES[:, None] / 0.15
        chance = np.exp(posterior - posterior.max()).ravel()
        drawn = rng.choice(len(chance), size=DRAWS, p=chance / chance.sum())
        shape, scale = np.unravel_index(drawn, likelihood.shape)
        # the number of events has a gamma posterior, with the prior of Jeffreys
        events = dispersion * rng.gamma(len(excess) / dispersion + 0.5, size=DRAWS)
        return cls(
            float(counted.levels[base]),
            events / counted.total_hours,
            SHAPES[shape],
            scales[scale],
        )

    def rates(self, thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Events per hour above each of n thresholds of at least `level`, `(n, S)`."""
        z = (thresholds[:, None] - self.level) / self.scale
        return np.asarray(self.rate / inv_boxcox(z, self.shape))

    def thresholds(self, rate: float) -> NDArray[np.float64]:
        """Thresholds at which this rate is left, `(S,)`."""
        excess = self.scale * boxcox(np.maximum(self.rate / rate, 1.0), self.shape)
        return np.asarray(self.level + excess)


def base_level(counted: Counted) -> int:
    """The highest level reached by `PEAKS` events, or else the lowest."""
    enough = np.flatnonzero(counted.totals >= PEAKS)
    return int(enough[-1]) if len(enough) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A false alert: where it was and how high its score was."""

    camera: str
    peak: Positive


def with_marked(counted: Mapping[str, Counted], marked: Mapping[str, Marked]) -> dict[str, Counted]:
    """Add each false alert to the counts as one more event, up to its peak.

    It is unknown how long a camera was watched before the alert, so no hours are added: thresholds
    become stricter than necessary, never looser. Alerts are assigned to the blocks of their camera
    in turn; those of a camera without footage are spread over all cameras.
    """
    highest = max((alert.peak for alert in marked.values()), default=0.0)
    joined = {camera: _up_to(highest, events) for camera, events in counted.items()}
    cameras = [*joined]
    for number, (_, alert) in enumerate(sorted(marked.items())):
        camera = alert.camera if alert.camera in joined else cameras[number % len(cameras)]
        events: NDArray[np.int64] = joined[camera].events.copy()
        events[number % len(events)] += joined[camera].levels <= alert.peak
        joined[camera] = replace(joined[camera], events=events)
    return joined


def _up_to(highest: float, counted: Counted) -> Counted:
    """Extend the levels up to a score; there are no events above the previous highest level."""
    levels = counted.levels
    if highest <= levels[-1]:
        return counted
    step = levels[-1] / levels[-2]
    n_more = int(np.ceil(np.log(highest / levels[-1]) / np.log(step)))
    more = np.geomspace(levels[-1], highest, n_more + 1)[1:]
    events = np.pad(counted.events, ((0, 0), (0, len(more))))
    return replace(counted, levels=np.concatenate([levels, more]), events=events)
