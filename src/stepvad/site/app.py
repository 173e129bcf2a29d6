"""Run a site: start every stage from the settings, until stopped."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from stepvad.errors import ConfigError
from stepvad.events.record import Mark, MarkMessage, Record, Sink
from stepvad.explain.event import EventExplanation
from stepvad.files import remove_leftovers
from stepvad.site import sinks
from stepvad.site.accounts import FILE_NAME as ACCOUNTS
from stepvad.site.frames import CameraListener, PoseSource
from stepvad.site.housekeeping import (
    Housekeeping,
    Job,
    LoadWatch,
    WatchedTime,
    delete_old_data,
)
from stepvad.site.learning.learner import Learner, StartRound
from stepvad.site.learning.ledgers import SiteLedgers
from stepvad.site.marks import MarkFollower, mark_stored
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.recorder import Replays
from stepvad.site.settings.changes import Changes
from stepvad.site.settings.page import Section
from stepvad.site.settings.sections import TOKEN, SiteSettings, token_of
from stepvad.site.stages import PAGE_S, Page, Stage, Supervisor, watch_over
from stepvad.site.status import LiveStatus
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.site.store.outbox import SinkDelivery
from stepvad.site.troubles import RunMarker, SiteFaults, TroubleListener, Troubles

logger = logging.getLogger(__name__)

LOCK_S = 10.0
"""Longest wait for another site on the same data to exit."""
SINKS_S = 15.0
"""Longest time for sinks with changed settings to stop; a send may have to time out."""
DELIVER_S, DELIVERIES_S = 3.0, 3.0
"""Longest time for the last messages, then for the deliveries to stop."""
TROUBLES_S, LOAD_S, MARKS_S, CHECK_S, RETAIN_S, DRIFT_S = 1.0, 2.0, 3.0, 30.0, 600.0, 600.0
WATCHED_S, SAVE_S = 2.0, 60.0
"""Intervals of periodic work."""
BUSY_S = 2.0
"""Longest wait for the store's lock: an event that cannot be stored goes out from memory."""
RUNNING = "running"
"""File in the data directory that an orderly end removes."""

Explain = Callable[[str], EventExplanation]
MarkEvent = Callable[[str, Mark | None, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class PageParts:
    """The data and callbacks of a site that its page needs."""

    settings: SiteSettings
    store: Store
    status: LiveStatus
    explain: Explain
    mark: MarkEvent
    marks: MarkFollower | None = None
    learner: Learner | None = None
    """Learns the model of the site; None if it has one."""
    replays: Replays | None = None


Serve = Callable[[PageParts, str, Supervisor], Page]
"""Creates a page that is already listening, with its token; the supervisor knows its health."""


class FleetLink(Protocol):
    """The connection of a site to the fleet that it belongs to; nothing waits for it."""

    @property
    def sinks(self) -> Sequence[Sink]:
        """Sinks of events."""
        ...

    @property
    def poses(self) -> PoseSource:
        """The frames of cameras whose devices find the people."""
        ...

    def stages(self, parts: PageParts, restart: Callable[[], None]) -> Sequence[Stage]:
        """The work of the link; `restart` starts the site again with what the fleet has sent."""
        ...

    def close(self) -> None:
        """Disconnect, after the last event."""
        ...


@runtime_checkable
class Broker(Protocol):
    """A sink with a connection of its own, through which people also judge events."""

    on_connected: Callable[[], None]
    on_mark: Callable[[MarkMessage], None]


class Site:
    """All stages that one process runs."""

    def __init__(
        self,
        settings: SiteSettings,
        *,
        serve: Serve | None = None,
        fleet: FleetLink | None = None,
        rounds: StartRound | None = None,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """Events go to the sinks in the settings and to those of the fleet.

        A site without a model learns its own in processes that `rounds` starts; `reload` restarts
        the site with a new one.
        """
        self.settings = settings
        self.status = LiveStatus()
        self._fleet, self._reload = fleet, reload
        self._shared: Sequence[Sink] = fleet.sinks if fleet else ()
        known = [*sinks.names(settings.sinks), *(sink.name for sink in self._shared)]
        self.store = Store(settings.data / FILE_NAME, known, later=True, busy_s=BUSY_S)
        self._deliveries: list[SinkDelivery] = []
        self._serve = serve
        self._supervisor = Supervisor()
        self._running = RunMarker(settings.data / RUNNING)
        poses = fleet.poses if fleet else None
        self.pipeline = Pipeline(settings, Models(), self.status, self.store, poses)
        watched = self.pipeline.watched
        self._faults = SiteFaults(self.store, self.status, watched.unusable, watched.unscored)
        self._troubles = Troubles(self.status, self._faults.find)
        self.learner = None
        if rounds is not None and settings.is_learning:
            # a new model restarts the site, a new limit of the same model does not
            ledgers = SiteLedgers(
                *(settings, self.store, self.pipeline.models, self.pipeline.limits),
                put=partial(self.pipeline.tasks.put, "upkeep"),
            )
            self.learner = Learner(
                *(settings, self.store, self.status, rounds, ledgers),
                on_fit=reload,
                unusable=watched.unusable,
            )

    def run(self, stop: threading.Event, beat: Callable[[], None] | None = None) -> list[str]:
        """Run until stopped; return the stages that failed to stop, usually none.

        If a stage hangs or dies, the process exits here without returning.
        """
        self.store.check()
        self._faults.has_failed = self._running.begin()
        for sink in (*self._new_sinks(self.store.sinks), *self._shared):
            self._connect(sink)
        parts = PageParts(
            *(self.settings, self.store, self.status, self.store.explanation, self.mark),
            marks=self.pipeline.marks,
            learner=self.learner,
            replays=Replays(self.store, self.status, self.pipeline.recordings),
        )
        page = self._page(parts)
        others: list[Stage] = [page] if page else []
        others += [self._housekeeping().stage]
        others += [self.learner.stage] if self.learner else []
        others += self._fleet.stages(parts, self._reload) if self._fleet else []
        try:
            # consumers before producers: deliveries and the page, then the pipeline
            for stage in (*(delivery.stage for delivery in self._deliveries), *others):
                self._supervisor.start(stage)
            self.pipeline.start(self._supervisor)
            logger.info(
                "site %s is watching, cameras: %d", self.settings.name, len(self.status.names())
            )
            watch_over(self._supervisor, stop, beat)
            logger.info("stopping")
            self._running.end()
            # cameras first, deliveries last
            left = self.pipeline.stop(self._supervisor)
            left += self._supervisor.stop(others, PAGE_S)
            # the last messages get a moment; the rest stays in the store
            deadline = time.monotonic() + DELIVER_S
            while time.monotonic() < deadline and not all(d.is_idle for d in self._deliveries):
                time.sleep(0.05)
            return left + self._supervisor.stop([d.stage for d in self._deliveries], DELIVERIES_S)
        finally:
            if self._fleet:
                self._fleet.close()
            self.store.close()

    def apply(self, settings: SiteSettings, changes: Changes) -> list[str]:
        """Run by other settings from now on, as far as they take no restart.

        Returns the stages that did not stop in time: only a restart applies the rest.
        """
        before, self.settings = self.settings, settings
        if self.learner is not None:
            self.learner.apply(settings)
        left = self.pipeline.use(settings, changes.reopen)
        return left or self._replace_sinks(
            sinks.sections(before.sinks), sinks.sections(settings.sinks)
        )

    def _replace_sinks(self, before: dict[str, Section], after: dict[str, Section]) -> list[str]:
        """Replace the sinks whose settings differ; what they have not sent waits in the store."""
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        ended = [one for one in self._deliveries if one.name in changed]
        left = self._supervisor.stop([one.stage for one in ended], SINKS_S)
        if left:
            return left
        self.store.sinks = (*after, *(sink.name for sink in self._shared))
        for one in ended:
            self._deliveries.remove(one)
            self.status.forget_sink(one.name)
            self.pipeline.cameras.states.forget(one.sink)
            self._troubles.forget(one.sink)
        opened: Sequence[Record] = ()
        with suppress(StoreError):  # a broken disk keeps no sink from its events
            opened = self.store.events(open=True, limit=None)
        for sink in self._new_sinks(changed, opened):
            self._supervisor.start(self._connect(sink).stage)
        return []

    def _new_sinks(self, chosen: Collection[str], opened: Sequence[Record] = ()) -> Iterator[Sink]:
        """The configured sinks with these names, for machines and for people."""
        yield from sinks.connect(self.settings, chosen, opened)
        yield from sinks.connect_people(self.settings, chosen, self.store)

    def _connect(self, sink: Sink) -> SinkDelivery:
        """Have a sink hear of cameras and send marks, and deliver to it once its stage runs."""
        if isinstance(sink, CameraListener):
            self.pipeline.cameras.states.listen(sink)
        if isinstance(sink, TroubleListener):
            self._troubles.listeners.append(sink)
        log = self.settings.web.accounts or self.settings.data / ACCOUNTS
        delivery = SinkDelivery(self.store.outbox, sink)
        if isinstance(sink, Broker):  # its thread must not wait for the disk
            sink.on_connected = delivery.wake
            sink.on_mark = lambda mark: self.pipeline.tasks.put(
                "upkeep", partial(mark_stored, self.store, mark, "mqtt", log)
            )
        self._deliveries.append(delivery)
        return delivery

    def _page(self, parts: PageParts) -> Page | None:
        if self._serve is None or not self.settings.web.enabled:
            return None
        page = self._serve(parts, token_of(self.settings), self._supervisor)
        where = self.settings.web.token or self.settings.data / TOKEN
        logger.info("the page is at %s and asks for the token in %s", page.url, where)
        return page

    def _housekeeping(self) -> Housekeeping:
        """Periodic work; what takes long goes to the background."""
        pipeline, queue = self.pipeline, partial(self.pipeline.tasks.put, "upkeep")
        watched = WatchedTime(self.status, self.store)

        # looked at often, done in the background
        def retain() -> None:
            delete_old_data(self.store, pipeline.recordings, self.settings.retention)

        jobs: list[Job] = [
            (TROUBLES_S, self._troubles.look),
            (CHECK_S, partial(queue, self.store.check)),
            (LOAD_S, LoadWatch(self.status, pipeline.cameras.states.listeners).report_changes),
            (MARKS_S, partial(queue, pipeline.marks.follow)),
            (WATCHED_S, watched.count),
            (SAVE_S, partial(queue, watched.save)),
            (RETAIN_S, partial(queue, retain)),
            *((DRIFT_S, partial(queue, one.report)) for one in pipeline.drifting),
        ]
        return Housekeeping(self.status, self.store, pipeline.tasks, self._deliveries, jobs)

    def mark(self, id: str, mark: Mark | None, by: str) -> None:
        """Judge an event, or take the judgement back."""
        self.store.mark(id, mark, time.time(), by)


@contextmanager
def exclusive_lock(data: Path, *, wait_s: float = LOCK_S) -> Iterator[None]:
    """Lock the data directory, and remove what killed writers left there.

    Waits up to `wait_s` for another site to release it, then raises. Without a disk there is
    nothing to lock.
    """
    with ExitStack() as stack:
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            (data / "lock").touch()
        except OSError as error:
            logger.warning("%s: the disk fails, the site runs from memory: %s", data, error)
        try:
            file = stack.enter_context((data / "lock").open())  # a read-only disk has locks, too
        except OSError:
            yield
            return
        # a site that restarts takes over from the one before, which is about to exit
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"{data}: expected it to be unused, got another running site",
                        hint="stop that one, or choose another data directory",
                    ) from None
            time.sleep(0.1)
        with suppress(OSError):
            remove_leftovers(data)
        yield
