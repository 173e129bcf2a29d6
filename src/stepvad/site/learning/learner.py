"""The stage that learns: it looks when a fit is due, and has one run in a process."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stepvad.events.rules import WatchHours
from stepvad.events.threshold import duration
from stepvad.site.learning.ledgers import SiteLedgers
from stepvad.site.learning.rounds import RecordingIndex
from stepvad.site.learning.versions import Amount, Learned, LearnedFacts, Versions, facts
from stepvad.site.recorder import RECORDINGS
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.stages import FailureLog, Loop
from stepvad.site.status import LearningView, LiveStatus
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)
CHECK_S = 5.0
DEADLINE_S = 120.0
ROUND_S = 6 * 3600.0
"""Longest round; one that takes longer hangs and is killed."""
FILES_PER_CHECK = 200
MOST_WORDS = 500

StartRound = Callable[[IO[bytes]], "subprocess.Popen[bytes]"]

FIRST_HOURS, FIRST_TRACKS = 4 / 60, 20
"""Recordings with people for the first model, and tracks in them; the time for a new camera."""
YOUNG_HOURS, GROWTH = 2.0, 2.0
"""A model of less footage than this is replaced by day, too, when there is twice as much."""
NIGHT_SHARE = 0.1
"""At night a model is replaced if this share of the footage is new."""
REST_S = 6 * 3600.0
"""Shortest time between two fits, so that a night has one."""
RETRY_S = 600.0
"""Pause after a round that failed."""
NOTHING = Amount()


class Learner:
    """Learns when it is time; one round runs at a time, in a process with low priority."""

    def __init__(
        self,
        settings: SiteSettings,
        store: Store,
        status: LiveStatus,
        start: StartRound,
        ledgers: SiteLedgers,
        *,
        on_fit: Callable[[], None],
        unusable: str = "",
    ) -> None:
        """`on_fit` is called for a new model; if it raises, it is called again at the next check.

        If the learned model is `unusable`, a new one is fitted as soon as there is footage.
        """
        self.stage = Loop("learning", self._check_due, DEADLINE_S, at_end=self._end_round)
        self.settings, self._store, self._status = settings, store, status
        self._start, self._ledgers, self._on_fit = start, ledgers, on_fit
        self._versions = Versions(settings.data)
        self._index = RecordingIndex(settings.data / RECORDINGS)
        self._round: TrainingJob | None = None
        self._failed_at: float | None = None
        self._unusable = self._problem = unusable
        self._asked, self._is_fitted = threading.Event(), False
        self._failures = FailureLog(logger)

    def apply(self, settings: SiteSettings) -> None:
        """Go on by other settings."""
        self.settings = settings
        self._ledgers.use(settings)

    def _check_due(self, loop: Loop) -> bool:
        try:
            self.check_due()
        except Exception as error:
            self._failures.log("learning failed, retrying at the next check", error)
        loop.stopping.wait(CHECK_S)
        return False

    def _end_round(self) -> None:
        """Kill a running round."""
        if self._round is not None:
            self._round.end()

    def fit_now(self) -> None:
        """Fit a new model at the next check, if there is footage to learn from."""
        self._asked.set()

    def use(self, name: str) -> None:
        """Go back to an older model."""
        self._versions.use(name)
        self._on_fit()

    def versions(self) -> list[LearnedFacts]:
        """The models, the newest first."""
        return facts(self._versions)

    def check_due(self) -> None:
        """Count the recordings, see to the running round, and start one that is due."""
        learning = [one.name for one in self.settings.cameras if self.settings.learns(one)]
        while not self._index.update(learning, FILES_PER_CHECK):
            self.stage.heartbeat.beat()
        if self._round is not None:
            self._see_to(self._round)
        if self._is_fitted or self._ledgers.needs_restart:
            self._on_fit()  # raises, to be called again, while the settings file is broken
            self._is_fitted = self._ledgers.needs_restart = False
            return  # the site restarts with a new model
        situation = self._situation()
        if self._round is None and is_due(situation, self.settings.learning.hours):
            self._asked.clear()
            errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with its round
            self._round = TrainingJob(self._start(errors), errors, time.monotonic())
            logger.info("learning: a fit begins")
        self._tell(situation)
        self._ledgers.update(self._index.amounts, self.stage.heartbeat.beat)

    def _situation(self) -> Situation:
        current = None if self._unusable else self._versions.current
        return Situation(
            now=time.time(),
            amounts=self._index.by_camera(),
            new=self._index.total(current.until if current else 0.0),
            since=next((one.begin for one in self._index.amounts), None),
            current=current,
            failed_at=self._failed_at,
            is_asked=self._asked.is_set(),
        )

    def _see_to(self, round: TrainingJob) -> None:
        """Note the end of a round; one that hangs is killed."""
        # still running, hanging, done or failed
        code = round.process.poll()
        if code is None and round.is_late:
            round.kill()
            code = round.process.returncode
        if code is None:
            return
        learned = self._versions.current if code == 0 else None  # raises: seen to at the next check
        self._round = None
        if code == 0:
            self._failed_at, self._problem, self._unusable = None, "", ""
            self._is_fitted = learned is not None
            logger.info("learned a new model: %s", learned.changed if learned else "none")
        else:
            self._failed_at, self._problem = time.time(), round.complaint()
            logger.warning("learning: the fit failed: %s", self._problem)
        round.end()

    def _tell(self, at: Situation) -> None:
        # progress for the page
        view = LearningView(
            progress_words(at, self._store.to_review()),
            at.total.hours,
            at.total.people,
            "" if self._round is None else "fit",
            (self._problem.splitlines() or [""])[-1],
        )
        self._status.learning(view)


@dataclass(slots=True, eq=False)
class TrainingJob:
    """A round in a process of its own."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    began: float
    """Monotonic time."""

    @property
    def is_late(self) -> bool:
        """True if it has run for too long."""
        return time.monotonic() - self.began > ROUND_S

    def kill(self) -> None:
        """Kill it and wait until it has ended."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it if it still runs, and close its file."""
        if self.process.poll() is None:
            self.kill()
        self.errors.close()

    def complaint(self) -> str:
        """The end of what it wrote to stderr."""
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace").strip()
        return text[-MOST_WORDS:] or f"exit code {self.process.returncode}"


def start_process(settings: Path) -> StartRound:
    """Start rounds in a process of low priority on one thread."""

    def start(errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "stepvad.site.learning.rounds", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    return start


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that decides whether a fit is due."""

    now: float
    amounts: Mapping[str, Amount]
    """The recordings of each camera that can be learned from."""
    new: Amount = NOTHING
    """Recordings that begin after those that the current model was fitted on."""
    since: float | None = None
    """Begin of the first recording."""
    current: Learned | None
    failed_at: float | None = None
    """Time at which the latest round failed."""
    is_asked: bool = False
    """True if a person asked for a fit."""

    @property
    def total(self) -> Amount:
        """The recordings of all cameras."""
        return sum(self.amounts.values(), Amount())


def is_due(at: Situation, hours: WatchHours) -> bool:
    """True if a new model is to be fitted now."""
    has_failed = at.failed_at is not None and 0 <= at.now - at.failed_at < RETRY_S
    total, current = at.total, at.current
    if (has_failed and not at.is_asked) or missing_share(total) > 0:
        return False
    if current is None or at.is_asked:
        return True
    # a camera that has no limit yet
    strange = [one for camera, one in at.amounts.items() if camera not in current.cameras]
    if any(one.hours >= FIRST_HOURS for one in strange):
        return True
    # a young model by day, too, any other at night and once, if there is reason to
    known = current.footage.hours
    if known < YOUNG_HOURS and total.hours >= GROWTH * known:
        return True
    rested = at.now - current.made >= REST_S
    return hours.include(at.now) and rested and at.new.hours >= NIGHT_SHARE * total.hours


def missing_share(amount: Amount) -> float:
    """Time that a first model still takes, in shares of the time that this amount took."""
    if not amount.hours or not amount.people:
        return math.inf
    return max(FIRST_HOURS / amount.hours, FIRST_TRACKS / amount.people, 1.0) - 1.0


def progress_words(at: Situation, to_review: int) -> str:
    """Progress of learning, for an operator; `to_review` alerts wait for one."""
    total = at.total
    tracks = f"{total.people} track{'' if total.people == 1 else 's'}"
    seen = f"{duration(total.hours)} with people, {tracks}"
    if at.current is None:
        if not total.hours or at.since is None:
            return "Learning: waiting for the first recording with people in it."
        # the rate so far says how long the rest will take
        left_s = missing_share(total) * max(at.now - at.since, 1.0)
        soon = f"in about {duration(left_s / 3600)}" if left_s > 20 else "in a minute or two"
        return f"Learning: {seen} so far. First alerts possible {soon}."
    waiting = (
        f" {to_review} to review. They use up the budget; how strange they were does not lift the "
        "limit."
    )
    return f"Learned from {seen}.{waiting if to_review else ''}"
