"""The stage that learns: it looks when a fit or a calibration is due, and runs it in a process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from stepvad.events.rules import WatchHours
from stepvad.events.threshold import duration
from stepvad.site.learning.rounds import RecordingIndex
from stepvad.site.learning.versions import Amount, Learned, LearnedFacts, Versions, facts
from stepvad.site.recorder import RECORDINGS, find_recordings
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.stages import FailureLog, Loop
from stepvad.site.status import LearningView, LiveStatus
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)
CHECK_S = 5.0
DEADLINE_S = 120.0
ROUND_S = {"fit": 6 * 3600.0, "calibrate": 2 * 3600.0}
"""Longest round; one that takes longer hangs and is killed."""
FILES_PER_CHECK = 200
MOST_WORDS = 500

JobKind = Literal["fit", "calibrate"]

StartRound = Callable[[JobKind, IO[bytes]], "subprocess.Popen[bytes]"]

FIRST_POSES = 1500
"""Poses for the first model: a few people who cross the picture."""
FIRST_FILES = 6
"""Recordings for the first model: four to fit, two to calibrate."""
YOUNG_HOURS, GROWTH = 2.0, 3.0
"""A model of less footage than this is replaced by day, too, when three times as much is new."""
NIGHT_SHARE = 0.1
"""At night a model is replaced if this share of the footage is new, or if alerts were marked."""
MEASURE_SHARE = 0.5
"""The threshold is set again when there is this much more footage than it was measured on."""
REST_S = 6 * 3600.0
"""Shortest time between two fits, so that a night has one."""
NOTHING = Amount()
RETRY_S = 900.0
"""Pause after a round that failed."""


class Learner:
    """Learns when it is time; one round runs at a time, in a process with low priority."""

    def __init__(
        self,
        settings: SiteSettings,
        store: Store,
        status: LiveStatus,
        start: StartRound,
        *,
        on_fit: Callable[[], None],
        on_calibrated: Callable[[Path], None],
        unusable: str = "",
    ) -> None:
        """`on_fit` is called for a new model, `on_calibrated` for a new threshold of the model.

        If `on_fit` raises, it is called again at the next check.

        If the learned model is `unusable`, a new one is fitted as soon as there is footage.
        """
        self.stage = Loop("learning", self._check_due, DEADLINE_S, at_end=self._end_round)
        self.settings, self._store, self._status = settings, store, status
        self._start, self._on_fit, self._on_calibrated = start, on_fit, on_calibrated
        self._versions = Versions(settings.data)
        self._index = RecordingIndex(settings.data / RECORDINGS)
        self._round: TrainingJob | None = None
        self._failed_at: float | None = None
        self._unusable = self._problem = unusable
        self._asked, self._is_fitted = threading.Event(), False
        self._failures = FailureLog(logger)

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
        while not self._index.update(FILES_PER_CHECK):
            self.stage.heartbeat.beat()
        if self._round is not None:
            self._see_to(self._round)
        if self._is_fitted:
            self._on_fit()  # raises, to be called again, while the settings file is broken
            self._is_fitted = False
            return  # the site restarts with a new model
        situation = self._situation()
        if self._round is None:
            kind = due_round(situation, self.settings.learning.hours)
            if kind is not None:
                self._asked.clear()
                errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with its round
                self._round = TrainingJob(kind, self._start(kind, errors), errors, time.monotonic())
                logger.info("learning: a %s begins", "fit" if kind == "fit" else "calibration")
        self._tell(situation)

    def _situation(self) -> Situation:
        current = None if self._unusable else self._versions.current
        return Situation(
            now=time.time(),
            amount=self._index.amount(),
            files=len(self._index),
            new=self._index.amount(current.until if current else 0.0),
            unmeasured=self._index.amount(current.measured_until if current else 0.0),
            marks=len(self._store.marked()),
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
            self._finished(round.kind, learned)
        else:
            self._failed_at, self._problem = time.time(), round.complaint()
            logger.warning("learning: the %s failed: %s", round.kind, self._problem)
        round.end()

    def _finished(self, kind: JobKind, learned: Learned | None) -> None:
        if learned is None:
            return
        if kind == "fit":
            logger.info("learned a new model: %s", learned.changed)
            self._is_fitted = True
        else:
            logger.info("threshold set again: %s", learned.words)
            self._on_calibrated(self._versions.model)

    def _tell(self, at: Situation) -> None:
        # progress for the page
        recordings = find_recordings(self.settings.data / RECORDINGS)
        words = progress_words(
            at,
            self.settings.learning.alerts_per_day,
            since=recordings[0].begin if recordings else None,
            needed=0.0,
        )
        doing = "" if self._round is None else self._round.kind
        view = LearningView(
            words,
            at.amount.hours,
            at.amount.people,
            doing,
            (self._problem.splitlines() or [""])[-1],
        )
        self._status.learning(view)


@dataclass(slots=True, eq=False)
class TrainingJob:
    """A round in a process of its own."""

    kind: JobKind
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    began: float
    """Monotonic time."""

    @property
    def is_late(self) -> bool:
        """True if it has run for too long."""
        return time.monotonic() - self.began > ROUND_S[self.kind]

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

    def start(kind: JobKind, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stepvad.site.learning.rounds", kind, str(settings)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    return start


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that decides whether a round is due."""

    now: float
    amount: Amount
    """All recordings that can be learned from."""
    files: int
    """Their number."""
    new: Amount = NOTHING
    """Recordings that begin after those that the current model was fitted on."""
    unmeasured: Amount = NOTHING
    """Recordings that begin after those that its threshold was measured on."""
    marks: int
    """Alerts marked as normal, by any model."""
    current: Learned | None
    failed_at: float | None = None
    """Time at which the latest round failed."""
    is_asked: bool = False
    """True if a person asked for a fit."""


def due_round(at: Situation, hours: WatchHours) -> JobKind | None:
    """The round that is due; None if none is."""
    if at.failed_at is not None and 0 <= at.now - at.failed_at < RETRY_S and not at.is_asked:
        return None
    if at.files < FIRST_FILES or at.amount.poses < FIRST_POSES:
        return None
    current = at.current
    if current is None or at.is_asked:
        return "fit"
    # a young model by day, too, any other at night and once, if there is reason to
    known = (current.fitted + current.measured).hours
    if known < YOUNG_HOURS and at.new.hours >= GROWTH * known:
        return "fit"
    rested = at.now - current.made >= REST_S
    is_worth = at.new.hours >= NIGHT_SHARE * at.amount.hours or at.marks != current.marks
    if hours.include(at.now) and rested and is_worth:
        return "fit"
    # the same model with a threshold of more footage
    is_more = at.unmeasured.hours >= MEASURE_SHARE * current.measured.hours
    return "calibrate" if is_more else None


def progress_words(
    at: Situation, alerts_per_day: float, *, since: float | None, needed: float
) -> str:
    """Progress of learning, for an operator.

    `since` is the time of the oldest recording, `needed` the hours of footage, new to the model,
    that the promise takes.
    """
    # the rate so far says how long the rest will take
    amount, current = at.amount, at.current
    seen = f"{duration(amount.hours)} of motion, {amount.people} tracks of people"
    passed_s = 0.0 if since is None else max(at.now - since, 1.0)
    if current is None:
        if not amount.poses:
            return "Learning: waiting for the first recording with people in it."
        left_s = passed_s * max(FIRST_POSES / amount.poses - 1, 0.0)
        soon = f"in about {duration(left_s / 3600)}" if left_s > 20 else "in a minute or two"
        return f"Learning: {seen} so far. First alerts possible {soon}."
    if not current.is_provisional:
        return f"Learned from {seen}. Threshold: {current.words}."
    missing = max(needed - current.measured.hours - at.unmeasured.hours, 0.0)
    wait_h = missing * passed_s / 3600 / amount.hours if amount.hours else 0.0
    often = f"{alerts_per_day:g} false alert{'' if alerts_per_day == 1 else 's'} a day"
    soon = f"takes about {duration(wait_h)} more" if wait_h > 0.02 else "comes with the next check"
    return f"{seen}. Alerts are provisional; the promise of at most {often} {soon}."
