"""Marks at a running site: thresholds rise, and poses join the normal set."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from stepvad.codec import NewerVersionError
from stepvad.errors import DataError, StepvadError
from stepvad.events.marks import Marked, Marks, normal_set_path, update_normal_set
from stepvad.events.record import MarkMessage, Record
from stepvad.files import read_state, write_state
from stepvad.formats import file_stem, tracks
from stepvad.poses import Clip
from stepvad.site.accounts import Accounts
from stepvad.site.models import Limit, Loaded, Models
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.stages import FailureLog
from stepvad.site.store.events import Store, open_store

logger = logging.getLogger(__name__)
DIRECTORY = "marks"
"""Directory of the data directory: a file of marks and a set of poses for each model."""
MAX_BYTES = 1 << 24


class MarkFollower:
    """Updates the thresholds of a site after marks, whoever made them and wherever.

    Marks from the page, from MQTT and from the command line all end in the store; this is the one
    reader. The scores of marked alerts outlive the events, which retention deletes; their poses go
    with the events. The files of the model are not touched.
    """

    def __init__(
        self, settings: SiteSettings, store: Store, models: Models, limits: deque[Limit]
    ) -> None:
        self._settings, self._store = settings, store
        self._models, self._limits = models, limits
        self._seen: Mapping[str, float] | None = None
        self._failures = FailureLog(logger)
        self._lock = threading.Lock()
        """Held while limits are queued: those of older settings never follow newer ones."""

    def use(self, settings: SiteSettings) -> None:
        """Queue the limits of all cameras by other settings, which count from now on."""
        with self._lock:
            self._settings = settings
        for model in self._models.loaded():
            self._queue(model)

    def follow(self) -> None:
        """Apply the marks to all models if they have changed since the last call.

        A background task calls this every few seconds; scoring takes the new limits from the queue.
        A model whose file of marks cannot be read now follows at the next call.
        """
        marked = self._store.marked()
        if marked == self._seen:
            return
        applied = [self._is_applied(model) for model in self._models.loaded()]
        # Poses of normal events are kept as long as the events are stored, and no longer, whichever
        # model found them: a site that learns has a new one every night.
        stored = {file_stem(id) for id in self._store.marked()}
        directories = normal_set_path(self._settings.data / DIRECTORY / "*").name
        for path in (self._settings.data / DIRECTORY).glob(f"{directories}/*.parquet"):
            if path.stem not in stored:
                path.unlink(missing_ok=True)
        self._seen = marked if all(applied) else None

    def reload(self, path: Path) -> None:
        """Read the calibration of a model again, and apply the marks to it."""
        model = self._models.reload(path)
        if not self._is_applied(model):
            self._seen = None
        self._queue(self._models.load(path))

    def _is_applied(self, model: Loaded) -> bool:
        """Apply the marks to a model; False if its file of marks cannot be read now.

        A file of a newer version is left as it is: the marks that the store has are applied.
        """
        # marks of events that retention has deleted are in a file
        kept = kept_beside(self._settings.data, model.sha256)
        try:
            older = read_marks(kept)
        except NewerVersionError as error:
            self._failures.log("marks of deleted events are not used", error)
            self._apply(model, self._marks(model, {}))
        except OSError as error:
            self._failures.log("marks are not applied yet", error)
            return False
        else:
            marks = self._marks(model, older)
            write_marks(marks.normal, kept)
            self._apply(model, marks)
        return True

    def _marks(self, model: Loaded, older: Mapping[str, Marked]) -> Marks:
        """The marks of the store, and older ones that nobody has taken back."""
        # a mark that was taken back counts no more
        marks = marks_in(self._store, model.sha256)
        gone = {*marks.not_normal}
        kept = {id: one for id, one in older.items() if id not in gone}
        return replace(marks, normal=kept | dict(marks.normal))

    def _apply(self, model: Loaded, marks: Marks) -> None:
        """Write the poses of marked events."""
        kept = kept_beside(self._settings.data, model.sha256)
        update_normal_set(normal_set_path(kept), marks.clips, marks.not_normal)

    def _queue(self, model: Loaded) -> None:
        """Queue the limits of a model's cameras."""
        with self._lock:
            for camera in self._settings.cameras:
                has_limit = model.calibration is not None or camera.threshold is not None
                has_limit &= not model.no_limit(camera)
                if has_limit and self._settings.model_of(camera).resolve() == model.path:
                    self._limits.append(model.limit(camera))


@dataclass(frozen=True, slots=True)
class MarksFile:
    """The events that a model found and somebody marked as normal."""

    normal: dict[str, Marked]
    version: Literal[1] = 1


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


def kept_beside(data: Path, model_sha256: str) -> Path:
    """The file with the marks on events that a model found."""
    return data / DIRECTORY / f"{model_sha256[:16]}.json"


def read_marks(path: Path) -> dict[str, Marked]:
    """The marks of a file; none if it is missing or damaged.

    Raise `OSError` if it cannot be read now, `NewerVersionError` if it is of a newer version.
    """
    lost = "marks of deleted events are lost"
    found = read_state(path, MarksFile, "marks", most=MAX_BYTES, lost=lost)
    return {} if found is None else found.normal


def write_marks(normal: Mapping[str, Marked], path: Path) -> None:
    """Write the events marked as normal."""
    if normal or path.exists():
        write_state(path, MarksFile({**normal}))


def marks_of(data: Path, model_sha256: str) -> Marks:
    """Marks on events of a data directory that this model found."""
    with open_store(data) as store:
        return marks_in(store, model_sha256)


def marks_in(store: Store, model_sha256: str) -> Marks:
    """Marks on events that this model found, with their poses if still stored."""
    # the events of this model, those marked, and the poses of those
    found = [one for one in store.events(limit=None) if one.model_sha256 == model_sha256]
    records = {one.id: one for one in found}
    every = store.marked()
    marked = [id for id in every if id in records]
    bodies = {id: body for id in marked if (body := store.poses(id)) is not None}
    # the poses of the people in each event, as far as they are stored and can be read
    clips = {}
    for id, body in bodies.items():
        with skip_unreadable(f"event {id}"):
            clips[id] = people_of(records[id], tracks.from_bytes(body))
    if len(every) > len(marked):
        logger.info("marked events of other models, left alone: %d", len(every) - len(marked))
    if len(bodies) < len(marked):
        old = len(marked) - len(bodies)
        logger.info("marked events whose poses are too old to be kept: %d", old)
    return Marks(
        normal={id: Marked(camera=records[id].camera, peak=records[id].top_score) for id in marked},
        clips=clips,
        not_normal=[id for id in records if id not in marked],
    )


@contextmanager
def skip_unreadable(what: str) -> Iterator[None]:
    """Log that poses are damaged, deleted or of a newer version, and go on without them.

    One damaged file must not keep a site from the others.
    """
    try:
        yield
    except (StepvadError, OSError) as error:
        logger.warning("%s: left out, its poses cannot be read: %s", what, error)


def people_of(event: Record, clip: Clip) -> Clip:
    """The poses of the people in an event; of everybody if none of them has poses."""
    tracks = tuple(track for track in clip.tracks if track.id in event.tracks)
    return replace(clip, name=event.id, tracks=tracks or clip.tracks)
