"""Marks at a running site: what they do is told before, and becomes exceptions within seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stepvad.errors import DataError, StepvadError
from stepvad.events.calibration import calibration_path, write_calibration
from stepvad.events.exceptions import Judgement, MotionException, judge
from stepvad.events.record import Box, Mark, MarkMessage, Review
from stepvad.formats import tracks
from stepvad.poses import Clip
from stepvad.site.accounts import Accounts
from stepvad.site.models import Limit, Loaded, Models
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)
RIGHT = (
    "It was worth telling. The limit stays, and no later Normal may hide an alert like this one."
)
NORMAL = "This is usual here. Learned as an exception for this posture at this place"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkEffect:
    """What a mark on an event does; no mark moves a limit."""

    mark: Mark | None
    words: str
    """Before it is made."""
    said: str
    """Once it is made."""
    hides: tuple[str, ...] = ()
    """Right alerts that it would hide, by id: it is stored, and nothing is passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionFacts:
    """Motion of a camera that is passed over at its place."""

    event: str
    """Id of the event that somebody marked as normal."""
    camera: str
    at: float
    """Unix time at which it began."""
    place: Box
    """Left, top, right and bottom in pixels."""
    windows: int

    @classmethod
    def of(cls, one: MotionException) -> ExceptionFacts:
        """Those of an exception."""
        n = max(map(len, one.points))
        return cls(event=one.event, camera=one.camera, at=one.at, place=one.place, windows=n)


class MarkFollower:
    """Makes the exceptions of a site's cameras anew whenever the marks on events have changed.

    Marks from the page, MQTT, the command line and a fleet all end in the store; this is the one
    reader. A mark that is taken back, or whose event is deleted, leaves nothing behind.
    """

    def __init__(
        self, settings: SiteSettings, store: Store, models: Models, limits: deque[Limit]
    ) -> None:
        self._settings, self._store = settings, store
        self._models, self._limits = models, limits
        self._seen: Mapping[str, object] | None = None
        self._lock = threading.Lock()
        """Held while limits are queued: those of older settings never follow newer ones."""

    def use(self, settings: SiteSettings) -> None:
        """Queue the limits of all cameras by other settings, which count from now on."""
        with self._lock:
            self._settings = settings
        for model in self._models.loaded():
            self._queue(model)

    def follow(self) -> None:
        """Apply the marks if they, or the poses of marked events, have changed since the last call.

        A background task calls this every few seconds; scoring takes what is new from the queue.
        """
        marked = self._store.marked()
        seen, self._seen = self._seen, None  # after a failure all is done again
        if marked != seen:
            events = [self._store.event(id) for id in dict(marked.items() ^ (seen or {}).items())]
            is_known = seen is not None and None not in events  # else of any camera
            cameras = {event.camera for event in events if event} if is_known else None
            for model in self._models.loaded():
                self._apply(model, cameras)
        self._seen = marked

    def _apply(self, model: Loaded, cameras: Collection[str] | None) -> None:
        """Make the exceptions of some cameras of a model anew; None: of all."""
        own = {one.name for one in self._settings.cameras if self._is_of(one, model)}
        if (before := model.calibration) is None or not own:
            return
        chosen = own if cameras is None else own.intersection(cameras)
        kept = [one for one in before.exceptions if one.camera in own - chosen]
        made = [one for name in sorted(chosen) for one in self._judge(model, name).exceptions]
        exceptions = tuple(sorted((*kept, *made), key=lambda one: one.camera))
        if exceptions == before.exceptions:
            return
        logger.info("exceptions of model %s: %d", model.name, len(exceptions))
        self._models.calibrated(model.path, replace(before, exceptions=exceptions))
        self._queue(self._models.load(model.path))
        if model.learned:  # of other models they are made anew at each start
            with suppress(OSError):
                write_calibration(
                    replace(before, exceptions=exceptions), calibration_path(model.path)
                )

    def _judge(
        self, model: Loaded, camera: str, new: Mapping[str, Review] | None = None
    ) -> Judgement:
        """What the marks on events of a camera come to, with some `more`."""
        reviews = self._store.reviews() | dict(new or {})
        stored = self._store.events(camera=camera, limit=None)
        events = [one for one in stored if one.id in reviews and reviews[one.id].mark]
        clips = judged_clips(self._store, [one.id for one in events])
        return judge(model.detector, events, reviews, clips)

    def _is_of(self, camera: CameraSettings, model: Loaded) -> bool:
        """True if a model scores a camera; one that was learned meanwhile is not loaded yet."""
        return self._settings.model_of(camera).resolve() == model.path

    def _queue(self, model: Loaded) -> None:
        """Queue the limits of a model's cameras."""
        with self._lock:
            for camera in self._settings.cameras:
                has_limit = model.calibration is not None or camera.threshold is not None
                has_limit &= not model.no_limit(camera)
                if has_limit and self._is_of(camera, model):
                    self._limits.append(model.limit(camera))

    def exceptions(self) -> list[ExceptionFacts]:
        """What is passed over at the site, the latest first."""
        every = (one.calibration for one in self._models.loaded() if one.calibration)
        found = [ExceptionFacts.of(one) for made in every for one in made.exceptions]
        return sorted(found, key=lambda one: -one.at)

    def effect(self, id: str, mark: Mark | None) -> MarkEffect:
        """What a mark on an event would do."""
        event = self._store.event(id)
        if event is None:
            raise DataError(f"event {id}: expected the id of a stored event, got an unknown id")
        camera = next((one for one in self._settings.cameras if one.name == event.camera), None)
        models = [one for one in self._models.loaded() if camera and self._is_of(camera, one)]
        limit, found = event.threshold, Judgement((), {}, {})
        if camera and models:
            limit = models[0].rules_of(camera).threshold
            if mark == "normal" and models[0].calibration:
                found = self._judge(models[0], event.camera, {id: Review(mark, time.time())})
        n = sum(peak >= limit for peak in found.peaks.values())
        stays = f"limit stays {limit:.1f}"
        stays += f"; {_alerts(n)} {'is' if n == 1 else 'are'} still raised" if n else ""
        said, like = stays.capitalize(), found.too_like.get(id, ())
        if mark == "right":
            words, said = RIGHT, f"Marked as right. {said}."
        elif mark is None:
            words, said = "What the mark did is undone.", f"Mark removed. {said}."
        elif like:
            at = time.strftime("%A, %H:%M", time.localtime(like[-1].start_time))
            words = f"This would hide {_alerts(len(like))}."
            said = f"Not passed over: too like the alert of {at}, which you marked right. {said}."
        elif any(one.event == id for one in found.exceptions):
            down = " Somebody down still rings." if camera and camera.went_down else ""
            words, said = f"{NORMAL}; {stays}.{down}", f"Marked as normal. {said}."
        else:
            words = said = f"Its poses show nothing that could be passed over. {said}."
        return MarkEffect(mark=mark, words=words, said=said, hides=tuple(one.id for one in like))


def _alerts(n: int) -> str:
    return f"{n} right alert{'' if n == 1 else 's'}"


def judged_clips(store: Store, ids: Iterable[str]) -> dict[str, Clip]:
    """The poses around events by id, as far as they are stored and can be read."""
    clips = {}
    for id in ids:
        if (body := store.poses(id)) is not None:
            with skip_unreadable(f"event {id}"):
                clips[id] = tracks.from_bytes(body)
    return clips


def mark_stored(
    store: Store, message: MarkMessage, by: str, log: Path, *, at: float | None = None
) -> None:
    """Store a mark from outside the page, made now or `at`, and write it into the audit log.

    One on an unknown event is logged and ignored.
    """
    try:
        store.mark(message.id, message.mark, time.time() if at is None else at, by)
        subject = f"{message.id}: {message.mark or 'taken back'}"
        with closing(Accounts(log)) as accounts:
            accounts.audit.record(by, "marked event", subject)
    except DataError as error:
        logger.warning("a mark from %s is ignored: %s", by, error.problem)


@contextmanager
def skip_unreadable(what: str) -> Iterator[None]:
    """Log that poses are damaged, deleted or of a newer version, and go on without them.

    One damaged file must not keep a site from the others.
    """
    try:
        yield
    except (StepvadError, OSError) as error:
        logger.warning("%s: left out, its poses cannot be read: %s", what, error)
