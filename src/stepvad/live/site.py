"""A running site: settings in, everything wired, until it is told to stop."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets as random_words
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from stepvad.errors import ConfigError
from stepvad.live import recorder
from stepvad.live.board import Board
from stepvad.live.chores import Chores
from stepvad.live.courier import Courier
from stepvad.live.drifting import EVERY_S, Drifting, latest_block
from stepvad.live.explainer import Explainer
from stepvad.live.ledger import Entry, Ledger
from stepvad.live.models import Models
from stepvad.live.pipeline import Pipeline
from stepvad.live.sections import Settings
from stepvad.live.sinks import Sink, connect, names
from stepvad.live.store import FILE_NAME, Store
from stepvad.secrets import secret

logger = logging.getLogger(__name__)

TOKEN = "token"
LOCK_S = 10.0
"""How long another site on the same data may take to end."""
HANG_S = 30.0
"""Scoring that stands still for so long never goes on by itself."""
DELIVER_S = 3.0
OVERLOAD_S, OVERLOADED = 60.0, 0.8
"""A camera is said to be overloaded when such a share of its frames was shed in a minute."""
TELL_S, RETAIN_S, DRIFT_S = 1.0, 600.0, 600.0

Explain = Callable[[str], dict[str, Any]]
Mark = Callable[[str, bool], None]


class Page(Protocol):
    """The server of a page."""

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        ...

    def stop(self) -> None:
        """Answer nobody any more."""
        ...


Serve = Callable[[Settings, Store, Board, str, Explain, Mark], Page]


class StuckError(Exception):
    """Scoring does not go on; only a new process helps."""


class Site:
    """Everything that one process runs."""

    def __init__(
        self, settings: Settings, *, serve: Serve | None = None, more: Sequence[Sink] = ()
    ) -> None:
        """Events go to the sinks of the settings and to `more`."""
        self.settings = settings
        self.board = Board()
        self._more = more
        known = [*names(settings.sinks), *(sink.name for sink in more)]
        self.store = Store(settings.data / FILE_NAME, known)
        self._serve = serve
        self._chores = Chores()
        self._ledger = Ledger(self.store, stored=self._stored, trouble=self._trouble)
        self._models = Models()
        self._sinks: list[Sink] = []
        self._couriers: list[Courier] = []
        self._load: dict[str, tuple[int, int]] = {}
        self.pipeline = Pipeline(
            settings,
            self._models,
            self.board,
            next_epoch=self.store.next_epoch,
            announce=self._ledger.put,
            recorded=lambda camera, clip: self._chores.add(lambda: camera.write(clip)),
            on_state=self._on_state,
        )
        subjects = {name: watcher.subject for name, watcher in self.pipeline.watchers.items()}
        self._explainer = Explainer(self.store, subjects, said=self.pipeline.scorer.explained)
        self._drifting = self._all_drifting()

    def run(self, stop: threading.Event) -> None:
        """Watch until told to stop; everything that was begun is then over."""
        for record in self.store.end_open("interrupted", time.time()):
            logger.warning("event %s was interrupted", record.id)
        with ExitStack() as running:
            running.callback(self.store.close)
            self._sinks = [*connect(self.settings), *self._more]
            self._couriers = [Courier(self.store, sink) for sink in self._sinks]
            for courier in self._couriers:
                courier.start()
                running.callback(courier.stop)
            running.callback(self._deliver)
            self._chores.start()
            running.callback(self._chores.stop)
            if self._serve is not None and self.settings.web.enabled:
                running.callback(self._open_page(self._serve).stop)
            self._ledger.start()
            running.callback(self._end_ledger)
            self.pipeline.start()
            running.callback(self.pipeline.stop)
            logger.info("site %s watches, cameras: %d", self.settings.name, len(self.board.names()))
            self._watch_over(stop)
            logger.info("stopping")

    def _watch_over(self, stop: threading.Event) -> None:
        """Do what has to be done now and then."""
        every = [
            _Every(TELL_S, self._tell_sinks),
            _Every(RETAIN_S, lambda: self._chores.add(self._retain)),
            _Every(EVERY_S, self._look, at_once=False),
            _Every(OVERLOAD_S, self._tell_overload, at_once=False),
            _Every(DRIFT_S, lambda: self._chores.add(self._tell_drift), at_once=False),
        ]
        while not stop.wait(0.25):
            for task in every:
                task.run(time.monotonic())
            if time.monotonic() - self.pipeline.scorer.alive_at > HANG_S:
                raise StuckError(f"scoring has stood still for {HANG_S:g} s")

    def _open_page(self, serve: Serve) -> Page:
        token = token_of(self.settings)
        page = serve(
            self.settings, self.store, self.board, token, self._explainer.explanation, self.mark
        )
        where = self.settings.web.token or self.settings.data / TOKEN
        logger.info("the page is at %s and asks for the token in %s", page.url, where)
        return page

    def mark(self, id: str, normal: bool) -> None:
        """Say that an event was normal, or take that back."""
        self.store.mark(id, "normal" if normal else None, time.time())

    def _stored(self, entry: Entry) -> None:
        """An event is on the disk: say so, count it, and look into it."""
        record, camera = entry.record, entry.record.camera
        if entry.kind != "update":
            words = f"score {record.top_score:.1f}, threshold {record.threshold:.1f}"
            logger.info("camera %s: event %s: %s (%s)", camera, record.id, entry.kind, words)
        if entry.kind == "new":
            self.board.count(camera, "events")
            self.board.observe_alert(camera, time.monotonic() - entry.arrived)
        if entry.cast is not None:
            self._chores.add(lambda: self._explainer.look(entry))

    def _trouble(self, waiting: int, why: str) -> None:
        """The store does not take events: make room, and let people know."""
        self.board.sink("store", waiting, int(bool(why)), why)
        if why:
            recorder.drop_oldest([*(self.settings.data / "poses").glob("*/")])

    def _deliver(self) -> None:
        """Give the sinks a moment for the last messages; the rest waits in the store."""
        deadline = time.monotonic() + DELIVER_S
        while time.monotonic() < deadline and not all(c.is_idle for c in self._couriers):
            time.sleep(0.05)

    def _end_ledger(self) -> None:
        left = self._ledger.stop()
        if left:
            logger.error("%d changes of events could not be stored", left)

    def _on_state(self, camera: str, state: str) -> None:
        for sink in self._sinks:
            status = getattr(sink, "status", None)
            if status is not None:
                status(camera, state)

    def _tell_sinks(self) -> None:
        for courier in self._couriers:
            lag = self.store.lag(courier.name)
            self.board.sink(courier.name, lag, courier.failures, courier.last_error or "")

    def _tell_overload(self) -> None:
        """Say so when so many frames are left out that nobody can be followed."""
        for view in self.board.snapshot().cameras:
            came, shed = view.counts["frames_in"], view.counts["shed"]
            before = self._load.get(view.name, (0, 0))
            self._load[view.name] = came, shed
            share = (shed - before[1]) / max(came - before[0], 1)
            if share > OVERLOADED:
                logger.warning(
                    "camera %s: %.0f %% of its frames are left out; lower its rate, choose smaller "
                    "networks, or give more workers and cores",
                    *(view.name, 100 * share),
                )

    def _retain(self) -> None:
        kept, now = self.settings.retention, time.time()
        done = self.store.retain(kept, now)
        files = recorder.retain(
            self.settings.data / "poses", days=kept.poses_days, most_mb=kept.poses_mb, now=now
        )
        if done.events or done.poses or files:
            logger.info(
                "too old and deleted: %d events, poses of %d more, %d recorded files",
                *(done.events, done.poses, files),
            )

    def _all_drifting(self) -> list[Drifting]:
        found = []
        for camera in self.settings.cameras:
            calibration = self._models.load(self.settings.model_of(camera)).calibration
            if calibration is not None:
                subject = self.pipeline.watchers[camera.name].subject
                found.append(Drifting(subject, calibration, self.board))
        return found

    def _look(self) -> None:
        for one in self._drifting:
            watcher = self.pipeline.watchers[one.subject.camera]

            def take(one: Drifting = one, watcher: Any = watcher) -> None:
                block = latest_block(watcher.clip()[1])
                self._chores.add(lambda: one.add(block))

            self.pipeline.scorer.with_watchers(take)

    def _tell_drift(self) -> None:
        for one in self._drifting:
            one.tell()


class _Every:
    """Something that is done again after so many seconds."""

    def __init__(self, seconds: float, task: Callable[[], None], *, at_once: bool = True) -> None:
        self._seconds, self._task = seconds, task
        self._next = time.monotonic() + (0.0 if at_once else seconds)

    def run(self, now: float) -> None:
        """Do it if it is time; what fails is tried again the next time."""
        if now < self._next:
            return
        self._next = now + self._seconds
        try:
            self._task()
        except Exception:
            logger.exception("what is done every %g s failed", self._seconds)


@contextmanager
def alone(data: Path) -> Iterator[None]:
    """Hold the data directory; another site on it is waited for a little, then an error."""
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
                        f"{data}: expected nobody else to use it, got another running site",
                        hint="stop that one, or choose another data directory",
                    ) from None
            time.sleep(0.1)
        yield


def token_of(settings: Settings) -> str:
    """The token of the page: that of the settings, or one that is made once and kept."""
    if settings.web.token is not None:
        return secret(settings.web.token)
    path = settings.data / TOKEN
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(random_words.token_urlsafe(24) + "\n")
    return secret(f"file:{path}")
