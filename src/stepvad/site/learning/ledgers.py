"""The ledgers of a site's cameras, from their recordings, and the limits for its alert budget."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from stepvad.detector import Detector
from stepvad.errors import DataError, StepvadError
from stepvad.events.calibration import (
    Calibration,
    ScoredFootage,
    calibration_path,
    write_calibration,
)
from stepvad.events.exceptions import MotionException
from stepvad.events.ledger import DAY_S, DAYS, HOUR_S, LedgerEntry, TimeSpan, by_hour
from stepvad.events.record import Mark, Record, Review
from stepvad.events.rules import WatchHours
from stepvad.events.threshold import limit_of
from stepvad.formats import read_clip
from stepvad.poses import Clip
from stepvad.site.learning.versions import Learned
from stepvad.site.marks import judged_clips, skip_unreadable
from stepvad.site.models import Limit, Loaded, Models
from stepvad.site.recorder import PART_S, Recording
from stepvad.site.settings.sections import LearningSettings, SiteSettings
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import Store

MARGIN_S = 2.0
"""Seconds around an alert that are left out with it."""
MINUTE_S = 60.0
UPDATE_S, PASS_S = 60.0, 600.0
"""Limits are set again so often at most if there is new footage, and if time has passed."""
FILES_PER_UPDATE = 50


def since(at: float) -> float:
    """The time from which on a ledger counts."""
    return at - DAYS * DAY_S


@dataclass(frozen=True, slots=True)
class JudgedEvents:
    """The events of a site, what was said of them, and the poses of those that were judged."""

    events: Sequence[Record]
    reviews: Mapping[str, Review]
    clips: Mapping[str, Clip] = field(default_factory=dict)

    @classmethod
    def from_store(
        cls, store: Store, since: float | None = None, *, with_poses: bool = False
    ) -> JudgedEvents:
        """Read events that begin after a time."""
        events, reviews = store.events(since=since, limit=None), store.reviews()
        judged = [id for id, one in reviews.items() if with_poses and one.mark is not None]
        return cls(events, reviews, judged_clips(store, judged))

    def mark(self, event: Record) -> Mark | None:
        """The judgement of an event."""
        review = self.reviews.get(event.id)
        return None if review is None else review.mark

    def not_normal(self, camera: str) -> list[TimeSpan]:
        """The time of a camera's alerts that are right or not judged: nothing to learn from."""
        own = [one for one in self.events if one.camera == camera]
        return [_span(one, MARGIN_S) for one in own if self.mark(one) != "normal"]

    def alerts_in(self, one: Recording, seconds: float) -> tuple[list[TimeSpan], list[TimeSpan]]:
        """The alerts in a recording that count for its camera's budget, and what does not count.

        Right alerts do not, and an alert counts once, in the recording in which it begins.
        """
        counted, left_out = [], []
        for event in self.events:
            first, last = _span(event, MARGIN_S)
            if event.camera != one.camera or last < one.begin or first > one.begin + seconds:
                continue
            begins_here = one.begin - MARGIN_S <= event.start_time <= one.begin + seconds
            if self.mark(event) == "right" or not begins_here:
                left_out.append((first, last))
            else:
                counted.append(_span(event))
        return counted, left_out


def _span(event: Record, margin_s: float = 0.0) -> TimeSpan:
    last = math.inf if event.end_time is None else event.end_time
    return event.start_time - margin_s, last + margin_s


class RecordingScorer:
    """Scores recordings as footage that a learned model has not seen."""

    def __init__(
        self,
        detector: Detector,
        learned: Learned,
        judged: JudgedEvents,
        settings: SiteSettings,
        exceptions: Sequence[MotionException] = (),
    ) -> None:
        self.footage = ScoredFootage(exceptions=exceptions)
        """The ledger of each camera, an entry a recording."""
        self._learned, self._judged, self._settings = learned, judged, settings
        self._detectors: dict[int | None, Detector] = {None: detector}

    def is_unseen(self, one: Recording) -> bool:
        """True if the model was not fitted on a recording, or can do without it."""
        return self._learned.method == "usual" or one.path.stem not in self._learned.folds

    def score(self, one: Recording) -> LedgerEntry:
        """Add a recording to the ledger of its camera."""
        fold = self._learned.folds.get(one.path.stem)
        if fold is not None and fold not in self._detectors:
            self._detectors[fold] = self._detectors[None].without(fold)
        clip = read_clip(one.path)
        seconds = clip.n_frames / clip.rate()
        alerts, left_out = self._judged.alerts_in(one, seconds)
        # nobody alerts outside the hours of a camera
        hours = self._settings.camera(one.camera).hours
        if hours is not None:
            minutes = [one.begin + MINUTE_S * k for k in range(math.ceil(seconds / MINUTE_S))]
            watched = WatchHours.parse(hours)
            left_out += [(at, at + MINUTE_S) for at in minutes if not watched.include(at)]
        self.footage.score(
            self._detectors[fold],
            one.camera,
            [clip],
            begin=one.begin,
            alerts=alerts,
            left_out=left_out,
        )
        return self.footage.ledgers[one.camera][-1]


def by_clock(
    entries: Iterable[LedgerEntry], watched: Mapping[float, float], at: float
) -> tuple[LedgerEntry, ...]:
    """The hours of a ledger up to now, with the time watched in them by the clock of the site.

    It is at least that of the footage; hours without people count, too.
    """
    empty = [LedgerEntry(begin=hour, watched_s=0.0) for hour in watched]
    return tuple(
        replace(one, watched_s=max(one.watched_s, watched.get(one.begin, 0.0)))
        for one in by_hour([*entries, *empty], since(at))
    )


def with_limits(
    calibration: Calibration, ledgers: Mapping[str, Sequence[LedgerEntry]], budget: LearningSettings
) -> Calibration:
    """A calibration with other ledgers and the limits that follow from them, for a budget."""
    made = Calibration.from_ledgers(
        ledgers,
        model_sha256=calibration.model_sha256,
        alerts_per_day=budget.alerts_per_day,
        rules=calibration.rules,
    )
    cameras = {**made.cameras}
    if budget.strict:
        cameras.clear()
        for camera, entries in ledgers.items():
            with suppress(DataError):  # of one that has to wait
                cameras[camera] = limit_of(entries, budget.alerts_per_day, strict=True)
    return replace(
        calibration,
        rules=made.rules,
        threshold=made.threshold,
        cameras=cameras,
        ledgers=made.ledgers,
    )


class SiteLedgers:
    """Keeps the ledgers of the model in use up to date while a site runs, and so its limits.

    Recordings are scored in the thread of the learner; what follows from them is applied in the
    background, where one change of a calibration comes after another.
    """

    def __init__(
        self,
        settings: SiteSettings,
        store: Store,
        models: Models,
        limits: deque[Limit],
        put: Callable[[Callable[[], object]], None],
    ) -> None:
        """`limits` go to scoring; `put` has a function called in the background."""
        self.settings = settings
        self._store, self._models, self._limits, self._put = store, models, limits, put
        # the file now in use: a new model has another, which counts after a restart
        learned = [settings.model_of(one) for one in settings.cameras if settings.learns(one)]
        self._path = learned[0].resolve() if learned else None
        self._entries: dict[Recording, LedgerEntry] = {}
        """Of recordings scored in this run."""
        model = self._model
        known = model.calibration.ledgers if model and model.calibration else {}
        self._from = {
            camera: max((one.begin for one in entries), default=0.0) - HOUR_S
            for camera, entries in known.items()
        }
        """Hour from which on the recordings of each camera are scored in this run."""
        self._hours: set[tuple[str, float]] = set()
        """Earlier hours that are scored again, because a mark came or went."""
        self._right: set[str] | None = None
        """Alerts marked as right, as far as the ledgers know."""
        self._applied = -math.inf
        self.needs_restart = False
        """True once a camera has a limit that had none, or none any more."""

    @property
    def _model(self) -> Loaded | None:
        """The model in use, with its present calibration."""
        return next((one for one in self._models.loaded() if one.path == self._path), None)

    def use(self, settings: SiteSettings) -> None:
        """Go on by other settings: another budget gives other limits."""
        self.settings, self._applied = settings, -math.inf

    def update(self, recordings: Collection[Recording], beat: Callable[[], None]) -> None:
        """Score what is new, and have the limits set again; `beat` is called at every file."""
        model, first = self._model, since(time.time())
        if model is None or model.learned is None or model.calibration is None:
            return
        self._notice_marks(model, recordings)
        self._entries = {one: made for one, made in self._entries.items() if one.begin >= first}
        due = [
            one
            for one in recordings
            if one.begin >= first
            and one not in self._entries
            and self._is_own(one.camera, one.begin)
        ]
        if due:
            judged = JudgedEvents.from_store(self._store, first - DAY_S)
            known = model.detector, model.learned, judged, self.settings
            scorer = RecordingScorer(*known, model.calibration.exceptions)
            for one in due[:FILES_PER_UPDATE]:
                beat()
                self._entries[one] = LedgerEntry(begin=one.begin, watched_s=0.0)
                if scorer.is_unseen(one):
                    with skip_unreadable(f"recording {one.path.name}"):
                        self._entries[one] = scorer.score(one)
        passed_s = time.monotonic() - self._applied
        is_due = passed_s >= PASS_S or (due and passed_s >= UPDATE_S)
        if is_due and len(due) <= FILES_PER_UPDATE:
            self._applied = time.monotonic()
            self._put(partial(self._apply, {**self._entries}))

    def _is_own(self, camera: str, begin: float) -> bool:
        """True if footage is in an hour that is counted in this run."""
        hour = begin // HOUR_S * HOUR_S
        is_late = camera in self._from and hour >= self._from[camera]
        return is_late or (camera, hour) in self._hours

    def _notice_marks(self, model: Loaded, recordings: Collection[Recording]) -> None:
        """Have recordings scored again of which an alert has become right, or is so no more."""
        marked = {id: one.at for id, one in self._store.reviews().items() if one.mark == "right"}
        if self._right is None:  # the file knows the marks that are older
            written = calibration_path(model.path).stat().st_mtime
            self._right = {id for id, at in marked.items() if at <= written}
        changed, self._right = marked.keys() ^ self._right, {*marked}
        for event in filter(None, map(self._store.event, changed)):
            first, last = _span(event, MARGIN_S)
            for one in recordings:
                if one.camera == event.camera and first - PART_S <= one.begin <= last:
                    self._entries.pop(one, None)
                    self._hours.add((one.camera, one.begin // HOUR_S * HOUR_S))

    def _apply(self, entries: Mapping[Recording, LedgerEntry]) -> None:
        """Set the limits by the ledgers: of the running site, and in the file for the next run."""
        model, at = self._model, time.time()
        if model is None or model.calibration is None:
            return
        try:
            before, watched = model.calibration, self._store.watched(since(at))
        except StoreError:  # the next call tries again; explanations must not wait for that
            return
        ledgers = {}
        for camera, known in before.ledgers.items():
            # hours scored in this run take the place of those in the file
            own = [made for one, made in entries.items() if one.camera == camera]
            hours = {one.begin // HOUR_S * HOUR_S for one in own}
            earlier = [one for one in known if one.begin not in hours]
            ledgers[camera] = by_clock([*earlier, *own], watched.get(camera, {}), at)
        try:
            after = with_limits(before, ledgers, self.settings.learning)
        except DataError:  # nobody was there for a week: the limits stay
            return
        self._models.calibrated(model.path, after)
        changed = self._models.load(model.path)
        for one in self.settings.cameras:
            if self.settings.learns(one) and one.name in after.cameras:
                self._limits.append(changed.limit(one))
        self.needs_restart |= after.cameras.keys() != before.cameras.keys()
        with suppress(OSError, StepvadError):  # of a disk that fails
            write_calibration(after, calibration_path(model.path))
