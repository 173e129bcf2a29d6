"""One round of learning: fit a model on recorded poses, or calibrate it on newer ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Report, StepvadError, silent
from stepvad.events.calibration import (
    Calibration,
    ScoredFootage,
    calibration_path,
    write_calibration,
)
from stepvad.events.marks import repeated
from stepvad.events.record import Mark, Record, Review
from stepvad.events.rules import events_in as find_events
from stepvad.events.threshold import duration
from stepvad.formats import read_clip
from stepvad.poses import Clip
from stepvad.site.learning.recordings import (
    Amount,
    Recording,
    amount_of,
    find,
    held_out,
    is_well_seen,
    newest,
    spans_of,
)
from stepvad.site.learning.versions import Learned, Versions
from stepvad.site.marks import DIRECTORY as MARKS
from stepvad.site.marks import people_of, promise_words, skip_unreadable
from stepvad.site.recorder import RECORDINGS, unpacked
from stepvad.site.settings.sections import MODEL_NAME, SiteSettings
from stepvad.site.store.events import open_store
from stepvad.windows.sampling import at_rate

SMALL_POSES = 20_000
"""Below so many poses the network is small: it is replaced soon."""
SMALL_WIDTH = 256


@dataclass(frozen=True, slots=True)
class JudgedEvents:
    """The events of a site, what was said of them, and the poses of those that were judged."""

    events: list[Record]
    reviews: dict[str, Review]
    clips: dict[str, Clip]

    @classmethod
    def of(cls, data: Path) -> JudgedEvents:
        """Read them from the store, and the poses of older normal ones from where they are kept."""
        with open_store(data) as store:
            events, reviews = store.events(limit=None), store.reviews()
            judged = [id for id, review in reviews.items() if review.mark is not None]
            bodies = {id: body for id in judged if (body := store.poses(id)) is not None}
        kept = {path.stem: path for path in (data / MARKS).glob("*/*.parquet")}
        clips = {}
        for id in judged:
            with skip_unreadable(f"event {id}"):
                if id in bodies:
                    clips[id] = unpacked(bodies[id])
                elif id in kept:
                    clips[id] = read_clip(kept[id])
        return cls(events, reviews, clips)

    def marked(self, mark: Mark) -> list[Clip]:
        """The poses of the people in events with this mark."""
        events = {event.id: event for event in self.events}
        return [
            people_of(events[id], clip)
            for id, clip in self.clips.items()
            if self.reviews[id].mark == mark and id in events
        ]


def fit(settings: SiteSettings, *, now: float | None = None, report: Report = silent) -> Learned:
    """Fit and calibrate a new model on the recordings, and make it the current one."""
    at = time.time() if now is None else now
    judged, versions = JudgedEvents.of(settings.data), Versions(settings.data)
    before = versions.current
    recordings = newest(find(settings.data / RECORDINGS), settings.learning.footage_hours)
    held = held_out(recordings)
    names = {one.path.stem for one in held}
    clips = _clips([one for one in recordings if one.path.stem not in names], judged, fitting=True)
    fitted = sum(map(amount_of, clips), Amount())
    if not fitted.poses:
        raise DataError(
            f"{settings.data}: expected recorded poses to learn from, got none",
            hint="people must be in view, and not only during alerts",
        )
    config = config_for(settings, fitted.poses)
    normal = [at_rate(clip, config) for clip in judged.marked("normal")]
    detector = Detector.fit(
        [*clips, *repeated(normal, fitted.poses, config.T)], config, report=report
    )
    made = versions.begin(at)
    detector.save(made / MODEL_NAME)
    detector = Detector.load(made / MODEL_NAME)
    calibration, measured = _calibrate(detector, held, judged, settings, report)
    write_calibration(calibration, calibration_path(made / MODEL_NAME))
    learned = _learned(calibration, measured, made.stem, at, fitted)
    learned = replace(
        learned,
        marks=len(normal),
        held_out=tuple(sorted(names)),
        until=max(one.begin for one in recordings),
        measured_until=max(one.begin for one in recordings),
    )
    words = changes(before, learned, detector, calibration, judged)
    replace(learned, changed=words).write(made)
    return Learned.read(versions.finish(made, keep=settings.learning.keep))


def calibrate(settings: SiteSettings, *, report: Report = silent) -> Learned:
    """Calibrate the current model on all recordings that it was not fitted on."""
    judged, versions = JudgedEvents.of(settings.data), Versions(settings.data)
    before = versions.current
    if before is None:
        raise DataError(f"{settings.data}: expected a learned model, got none", hint="fit one")
    held = {*before.held_out}
    unseen = [
        one
        for one in find(settings.data / RECORDINGS)
        if one.path.stem in held or one.begin > before.until
    ]
    detector = Detector.load(versions.model)
    calibration, measured = _calibrate(detector, unseen, judged, settings, report)
    write_calibration(calibration, calibration_path(versions.model))
    now = _learned(calibration, measured, before.name, before.made, before.fitted)
    kept = {name: getattr(before, name) for name in ("marks", "changed", "held_out", "until")}
    after = replace(now, **kept, measured_until=max(one.begin for one in unseen))
    after.write(versions.model.parent.resolve())
    return after


def config_for(settings: SiteSettings, poses: int) -> Config:
    """The settings of a fit: by the clock, at the usual rate of the cameras."""
    rate = statistics.mode(camera.rate for camera in settings.cameras)
    config = replace(Config.footage(), fps=rate)
    return config if poses >= SMALL_POSES else replace(config, width=SMALL_WIDTH)


def _clips(recordings: Sequence[Recording], judged: JudgedEvents, *, fitting: bool) -> list[Clip]:
    """The poses of recordings, without right alerts and, to fit, without unjudged ones."""
    avoid = spans_of(judged.events, judged.reviews, unjudged=fitting)
    clips = []
    for one in recordings:
        with skip_unreadable(f"recording {one.path.name}"):
            clips += [clip] if is_well_seen(clip := one.clip(avoid)) else []
    return clips


def _calibrate(
    detector: Detector,
    recordings: Sequence[Recording],
    judged: JudgedEvents,
    settings: SiteSettings,
    report: Report,
) -> tuple[Calibration, Amount]:
    """Thresholds from recordings that the model was not fitted on."""
    footage, amount = ScoredFootage(detector), Amount()
    for camera in sorted({one.camera for one in recordings}):
        own = [one for one in recordings if one.camera == camera]
        clips = _clips(own, judged, fitting=False)
        amount = sum(map(amount_of, clips), amount)
        footage.add(camera, clips, report=report)
    rate = settings.learning.alerts_per_hour
    return footage.calibrate(alerts_per_hour=rate), amount


def _learned(
    calibration: Calibration, measured: Amount, name: str, made: float, fitted: Amount
) -> Learned:
    threshold = calibration.threshold
    return Learned(
        name=name,
        made=made,
        fitted=fitted,
        measured=measured,
        marks=0,
        threshold=threshold.value,
        words=promise_words(threshold),
        is_provisional=not threshold.is_promised,
        changed="",
    )


def changes(
    before: Learned | None,
    after: Learned,
    detector: Detector,
    calibration: Calibration,
    judged: JudgedEvents,
) -> str:
    """What it learned from, its promise, and what becomes of the alerts that were judged."""
    amount = after.fitted + after.measured
    seen = f"Learned from {duration(amount.hours)} of motion and {amount.people} tracks of people"
    if before is not None:
        seen += f" (before: {duration((before.fitted + before.measured).hours)})"
    said = [seen, f"Threshold: {after.words}"]
    normal, right = judged.marked("normal"), judged.marked("right")
    if normal:
        quiet = len(normal) - _raised(normal, detector, calibration)
        said.append(f"{quiet} of {len(normal)} alerts marked as normal would not come again")
    if right:
        again = _raised(right, detector, calibration)
        said.append(f"{again} of {len(right)} right alerts would come again")
    return ". ".join(said) + "."


def _raised(clips: Sequence[Clip], detector: Detector, calibration: Calibration) -> int:
    """Number of clips in which the model still finds an event."""
    raised = 0
    for clip in clips:
        try:
            windows = detector.score(clip).windows
        except StepvadError:  # too short for a window
            continue
        raised += bool([*find_events(windows, clip.rate(), calibration.rules, clip)])
    return raised
