"""Run a site: start every stage from the settings, until stopped."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from stepvad.errors import ConfigError
from stepvad.events.record import Mark, MarkMessage, Sink
from stepvad.explain.event import EventExplanation
from stepvad.files import remove_leftovers
from stepvad.site.housekeeping import Housekeeping, delete_old_data
from stepvad.site.intake.camera_states import CameraListener
from stepvad.site.intake.load import LoadListener
from stepvad.site.intake.place_drawings import PlaceDrawings
from stepvad.site.intake.status import LiveStatus
from stepvad.site.learning.learner import Learner, StartRound
from stepvad.site.marks import mark_stored
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.recorder import Replays
from stepvad.site.settings.sections import TOKEN, SiteSettings, token_of
from stepvad.site.sinks import connect, connect_people, names
from stepvad.site.stages import PAGE_S, Page, Stage, Supervisor, watch_over
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.site.store.outbox import SinkDelivery

logger = logging.getLogger(__name__)

LOCK_S = 10.0
"""How long to wait for another site on the same data to exit."""
DELIVER_S = 3.0
DELIVERIES_S = 3.0

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
    learner: Learner | None = None
    """Learns the model of the site; None if it has one."""
    replays: Replays | None = None
    drawings: PlaceDrawings | None = None


class Serve(Protocol):
    """Creates the web page of a site; the supervisor provides its health."""

    def __call__(self, parts: PageParts, token: str, supervisor: Supervisor) -> Page:
        """Return a page that is already listening, to be run as a stage."""
        ...


@runtime_checkable
class MarkSource(Protocol):
    """A sink through which people also judge events."""

    on_mark: Callable[[MarkMessage], None]


class Site:
    """All stages that one process runs."""

    def __init__(
        self,
        settings: SiteSettings,
        *,
        serve: Serve | None = None,
        more: Sequence[Sink] = (),
        supervisor: Supervisor | None = None,
        rounds: StartRound | None = None,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """Events go to the sinks in the settings and to `more`.

        A site without a model learns its own in processes that `rounds` starts; `reload` restarts
        the site with a new one.
        """
        self.settings = settings
        self.status = LiveStatus()
        self._more = more
        known = [*names(settings.sinks), *(sink.name for sink in more)]
        self.store = Store(settings.data / FILE_NAME, known)
        self._serve = serve
        self._supervisor = supervisor or Supervisor()
        self.pipeline = Pipeline(settings, Models(), self.status, self.store)
        self._marks = self.pipeline.mark_follower()
        self.learner = None
        if rounds is not None and settings.is_learning:
            self.learner = Learner(
                *(settings, self.store, self.status, rounds),
                on_fit=reload,
                on_calibrated=self._recalibrated,
                unusable=self.pipeline.unusable,
            )

    def run(self, stop: threading.Event, beat: Callable[[], None] = lambda: None) -> list[str]:
        """Run until stopped; return the stages that failed to stop, usually none.

        If a stage hangs or dies, the process exits here without returning.
        """
        for record in self.store.end_interrupted(time.time()):
            logger.warning("event %s was interrupted", record.id)
        sinks = [*connect(self.settings), *connect_people(self.settings, self.store), *self._more]
        deliveries = [SinkDelivery(self.store.outbox, sink) for sink in sinks]
        listeners = self.pipeline.intake.states.listeners
        listeners += [sink for sink in sinks if isinstance(sink, CameraListener)]
        for sink in sinks:
            if isinstance(sink, MarkSource):
                sink.on_mark = self._mark_later
        page = self._page()
        hearing = [sink for sink in sinks if isinstance(sink, LoadListener)]
        stages: list[Stage] = [*deliveries, *([page] if page else [])]
        stages += [self._housekeeping(deliveries, hearing)]
        stages += [self.learner] if self.learner else []
        try:
            for stage in stages:
                self._supervisor.start(stage)
            self.pipeline.start(self._supervisor)
            logger.info(
                "site %s is watching, cameras: %d", self.settings.name, len(self.status.names())
            )
            watch_over(self._supervisor, stop, beat)
            logger.info("stopping")
            return self._stop(stages, deliveries)
        finally:
            self.store.close()

    def _stop(self, stages: Sequence[Stage], deliveries: Sequence[SinkDelivery]) -> list[str]:
        """Stop the stages in order: cameras first, deliveries last."""
        left = self.pipeline.stop(self._supervisor)
        others = [stage for stage in stages if stage not in deliveries]
        left += self._supervisor.stop(others, PAGE_S)
        deadline = time.monotonic() + DELIVER_S
        while time.monotonic() < deadline and not all(d.is_idle for d in deliveries):
            time.sleep(0.05)  # send the last messages; the rest stays in the store
        return left + self._supervisor.stop(deliveries, DELIVERIES_S)

    def _page(self) -> Page | None:
        if self._serve is None or not self.settings.web.enabled:
            return None
        explain = self.pipeline.explainer.explanation
        replays = Replays(self.store, self.status, self.pipeline.recordings)
        parts = self.settings, self.store, self.status, explain, self.mark
        page_parts = PageParts(*parts, self.learner, replays, self.pipeline.intake.drawings)
        page = self._serve(page_parts, token_of(self.settings), self._supervisor)
        where = self.settings.web.token or self.settings.data / TOKEN
        logger.info("the page is at %s and asks for the token in %s", page.url, where)
        return page

    def _housekeeping(
        self, deliveries: Sequence[SinkDelivery], listeners: Sequence[LoadListener]
    ) -> Housekeeping:
        pipeline = self.pipeline
        retain = partial(delete_old_data, self.store, pipeline.recordings, self.settings.retention)
        return Housekeeping(
            self.status,
            pipeline.tasks,
            self.store,
            deliveries,
            retain,
            pipeline.drifting,
            self._marks,
            listeners,
        )

    def _recalibrated(self, model: Path) -> None:
        """Put a new calibration of the learned model into use."""
        self.pipeline.tasks.put("upkeep", partial(self._marks.reload, model))

    def _mark_later(self, message: MarkMessage) -> None:
        """Queue a mark from outside the page."""
        self.pipeline.tasks.put("upkeep", partial(mark_stored, self.store, message, "mqtt"))

    def mark(self, id: str, mark: Mark | None, by: str) -> None:
        """Judge an event, or take the judgement back."""
        self.store.mark(id, mark, time.time(), by)


@contextmanager
def exclusive_lock(data: Path) -> Iterator[None]:
    """Lock the data directory, and remove what killed writers left there.

    Waits up to `LOCK_S` for another site to release it, then raises.
    """
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (data / "lock").open("w") as file:
        deadline = time.monotonic() + LOCK_S
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
        remove_leftovers(data)
        yield
