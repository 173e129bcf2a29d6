"""Fit, calibrate and test every fold of a footage set, and count what its alerts find."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepvad.config import Compute, Config, ViewKind
from stepvad.detector import Detector
from stepvad.errors import Progress, Report, silent
from stepvad.evaluation.metrics import FrameScores, Interval, resample
from stepvad.events.calibration import RULES, watched_s
from stepvad.events.ledger import LedgerEntry
from stepvad.events.threshold import Threshold, limit_of
from stepvad.model.scoring import Scores
from stepvad.poses import Clip, tracks_of
from stepvad.tracker import FramePoses, Tracker
from studies.chain.alerts import WITHIN_S, ClipResult, judge
from studies.chain.footageset import Fold, FootageSet, Use

FALSE_CLIPS = 0.1
"""Share of the normal clips that may be above the threshold of `Summary.found_at`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """How a detector is fitted and calibrated, and when an event counts as found."""

    config: Config
    views: tuple[ViewKind, ...] = ()
    """Views to join; none fits the poses alone."""
    alerts_per_hour: float = 1.0
    """Alerts per hour of normal footage: the budget."""
    within_s: float = WITHIN_S
    drop: float = 0.0
    """Share of the frames of test clips to drop, as an overloaded site does."""
    compute: Compute = Compute()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult:
    """One fitted and calibrated detector, and its alerts."""

    name: str
    windows: int
    """Windows fitted on."""
    seconds: Mapping[Use, float]
    """Footage of each use."""
    n_clips: Mapping[Use, int]
    threshold: Threshold
    clips: tuple[ClipResult, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """So many of so many."""

    n: int
    of: int

    def __str__(self) -> str:
        """As `3 of 14`."""
        return f"{self.n} of {self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The alerts of some test clips, counted."""

    found: Counts
    """Events that raised an alert in time."""
    delays_s: tuple[float, ...]
    """Delays of the found events whose begin is labelled, ascending."""
    false_alerts: int
    normal_hours: float
    false_clips: Counts
    """Normal clips with an alert."""
    auroc: Interval
    """By clip, from the highest score; the interval is over groups."""
    found_at: Counts
    """Abnormal clips above the threshold that a tenth of the normal clips exceeds."""

    @classmethod
    def of(cls, clips: Sequence[ClipResult]) -> Summary:
        """Count the alerts of clips, of one fold or of several."""
        events = [event for clip in clips for event in clip.events]
        delays = [event.delay_s for event in events if event.delay_s is not None]
        normal = [clip for clip in clips if not clip.is_abnormal]
        return cls(
            found=Counts(sum(event.outcome == "found" for event in events), len(events)),
            delays_s=tuple(sorted(delays)),
            false_alerts=sum(clip.false_alerts for clip in clips),
            normal_hours=sum(clip.normal_s for clip in clips) / 3600,
            false_clips=Counts(sum(bool(clip.alerts) for clip in normal), len(normal)),
            auroc=_auroc(clips),
            found_at=_found_at(clips),
        )

    @property
    def false_per_hour(self) -> float:
        """False alerts per hour of normal footage."""
        return self.false_alerts / self.normal_hours if self.normal_hours else math.nan


def measure(
    footage: FootageSet,
    poses: Mapping[str, Clip],
    settings: ChainSettings,
    *,
    report: Report = silent,
) -> list[FoldResult]:
    """Fit, calibrate and test every fold; `poses` has the clips of the set by name."""
    results = []
    for done, fold in enumerate(footage.folds):
        report(Progress("folds", done, len(footage.folds), fold.name))
        results.append(_measure(footage, fold, poses, settings, report))
    return results


def _measure(
    footage: FootageSet,
    fold: Fold,
    poses: Mapping[str, Clip],
    settings: ChainSettings,
    report: Report,
) -> FoldResult:
    clips = {use: [poses[name] for name in names] for use, names in fold.by_use().items()}
    detector = _fit(clips["fit"], settings, report)
    calibrated = ((clip, detector.score(clip)) for clip in clips["calibrate"])
    threshold = choose_threshold(calibrated, settings.alerts_per_hour)
    # judged by the frames that are left, as at a site
    least_seen = (1 - RULES.max_interpolated) * (1 - settings.drop)
    rules = replace(RULES, threshold=threshold.value, max_interpolated=1 - least_seen)
    return FoldResult(
        name=fold.name,
        windows=detector.origin.windows,
        seconds={use: sum(c.n_frames / c.rate() for c in some) for use, some in clips.items()},
        n_clips={use: len(some) for use, some in clips.items()},
        threshold=threshold,
        clips=tuple(
            judge(
                footage.clips[clip.name],
                clip,
                detector.score(clip),
                rules,
                fold=fold.name,
                within_s=settings.within_s,
            )
            for clip in (thinned(one, settings.drop) for one in clips["test"])
        ),
    )


def thinned(clip: Clip, drop: float) -> Clip:
    """The clip with a share of its frames dropped evenly, its people tracked anew."""
    tracker, rows = Tracker(), []
    for slot, poses in clip.by_frame() if drop else ():
        if math.floor(slot * (1 - drop)) != math.floor((slot - 1) * (1 - drop)) and poses:
            people = ([one.keypoints for one in poses], [one.confidence for one in poses])
            found = FramePoses.from_arrays(*people).poses(tracker, time_s=slot / clip.rate())
            rows += [(one.track_id, slot, one.keypoints, one.confidence) for one in found]
    tracks = tracks_of(*map(np.array, zip(*rows, strict=True))) if rows else ()
    return replace(clip, tracks=tracks) if drop else clip


def _fit(clips: Sequence[Clip], settings: ChainSettings, report: Report) -> Detector:
    config: Config | tuple[Config, ...] = settings.config
    if settings.views:
        config = settings.config.per_view(settings.views, clips[0].rate())
    return Detector.fit(clips, config, report=report, compute=settings.compute)


def choose_threshold(scored: Iterable[tuple[Clip, Scores]], alerts_per_hour: float) -> Threshold:
    """The threshold of the alert budget, from normal clips with their scores."""
    entries = [
        LedgerEntry.from_windows(scores.windows, clip.rate(), RULES, watched_s=watched_s(clip))
        for clip, scores in scored
    ]
    return limit_of(entries, 24 * alerts_per_hour)


def _auroc(clips: Sequence[ClipResult]) -> Interval:
    """AUROC by clip with its interval over groups: the metric of frames, a clip being a frame."""
    groups = sorted({clip.group for clip in clips})
    frames = FrameScores(
        clips=tuple(groups),
        clip=np.array([groups.index(clip.group) for clip in clips], np.int64),
        abnormal=np.array([clip.is_abnormal for clip in clips], np.bool_),
        score=np.array([[clip.peak for clip in clips]], np.float32),
    )
    return resample(frames).interval()


def _found_at(clips: Sequence[ClipResult], share: float = FALSE_CLIPS) -> Counts:
    normal = sorted((clip.peak for clip in clips if not clip.is_abnormal), reverse=True)
    allowed = math.floor(share * len(normal) + 1e-9)
    limit = normal[allowed] if normal else -math.inf
    peaks = [clip.peak for clip in clips if clip.is_abnormal]
    return Counts(sum(peak > limit for peak in peaks), len(peaks))
