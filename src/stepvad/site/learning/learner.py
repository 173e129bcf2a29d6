"""The stage that lets a site learn: it watches the recordings and starts rounds of learning."""

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
from typing import IO

from stepvad.calibration import file
from stepvad.calibration.promise import hours_for_promise
from stepvad.errors import StepvadError
from stepvad.intake.status import LearningView, LiveStatus
from stepvad.settings.sections import SiteSettings
from stepvad.site.learning import schedule
from stepvad.site.learning.recordings import RecordingIndex, find
from stepvad.site.learning.schedule import RoundKind, Situation
from stepvad.site.learning.versions import Learned, LearnedFacts, Versions, facts
from stepvad.site.recorder import RECORDINGS
from stepvad.site.store.eventstore import Store
from stepvad.supervision.logs import FailureLog
from stepvad.supervision.stages import Heartbeat

logger = logging.getLogger(__name__)

LOOK_S = 5.0
DEADLINE_S = 120.0
ROUND_S = {"fit": 6 * 3600.0, "calibrate": 2 * 3600.0}
"""Longest round; one that takes longer hangs and is killed."""
FILES_A_LOOK = 200
MOST_WORDS = 500

StartRound = Callable[[RoundKind, IO[bytes]], "subprocess.Popen[bytes]"]


@dataclass(slots=True, eq=False)
class Round:
    """A round in a process of its own."""

    kind: RoundKind
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    began: float
    """Monotonic time."""

    @property
    def is_late(self) -> bool:
        """Whether it has run for too long."""
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


class Learner:
    """The stage `learning`; one round runs at a time, in a process with low priority."""

    name = "learning"

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

        If the learned model is `unusable`, a new one is fitted as soon as there is footage.
        """
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._settings, self._store, self._status = settings, store, status
        self._start, self._on_fit, self._on_calibrated = start, on_fit, on_calibrated
        self._versions = Versions(settings.data)
        self._index = RecordingIndex(settings.data / RECORDINGS)
        self._round: Round | None = None
        self._failed_at: float | None = None
        self._unusable = self._problem = unusable
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._failures = FailureLog(logger)

    def run(self) -> None:
        """Look at the recordings until stopped; a running round is killed then."""
        while not self._stopping.is_set():
            self.heartbeat.beat()
            try:
                self.look()
            except Exception as error:
                self._failures.log("learning failed, retrying at the next check", error)
            self._stopping.wait(LOOK_S)
        if self._round is not None:
            self._round.end()

    def stop(self, deadline: float) -> None:
        """Request the stage to stop."""
        self._stopping.set()

    def fit_now(self) -> None:
        """Fit a new model at the next look, if there is footage to learn from."""
        self._asked.set()

    def use(self, name: str) -> None:
        """Go back to an older model."""
        self._versions.use(name)
        self._on_fit()

    def versions(self) -> list[LearnedFacts]:
        """The models, the newest first."""
        return facts(self._versions)

    def look(self) -> None:
        """Count the recordings, see to the running round, and start one that is due."""
        while not self._index.update(FILES_A_LOOK):
            self.heartbeat.beat()
        if self._round is not None and self._see_to(self._round):
            return  # the site restarts with a new model
        situation = self._situation()
        if self._round is None:
            kind = schedule.due(situation, self._settings.learning.hours)
            if kind is not None:
                self._begin(kind)
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

    def _begin(self, kind: RoundKind) -> None:
        self._asked.clear()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with its round
        self._round = Round(kind, self._start(kind, errors), errors, time.monotonic())
        logger.info("learning: a %s begins", "fit" if kind == "fit" else "calibration")

    def _see_to(self, round: Round) -> bool:
        """Note the end of a round; one that hangs is killed. True if there is a new model."""
        code = round.process.poll()
        if code is None and round.is_late:
            round.kill()
            code = round.process.returncode
        if code is None:
            return False
        learned = self._versions.current if code == 0 else None  # raises: seen to at the next look
        self._round = None
        if code == 0:
            self._failed_at, self._problem, self._unusable = None, "", ""
            self._finished(round.kind, learned)
        else:
            self._failed_at, self._problem = time.time(), round.complaint()
            logger.warning("learning: the %s failed: %s", round.kind, self._problem)
        round.end()
        return code == 0 and round.kind == "fit"

    def _finished(self, kind: RoundKind, learned: Learned | None) -> None:
        if learned is None:
            return
        if kind == "fit":
            logger.info("learned a new model: %s", learned.changed)
            self._on_fit()
        else:
            logger.info("threshold set again: %s", learned.words)
            self._on_calibrated(self._versions.model)

    def _tell(self, at: Situation) -> None:
        recordings = find(self._settings.data / RECORDINGS)
        words = schedule.words(
            at,
            self._settings.learning.alerts_per_day,
            since=recordings[0].begin if recordings else None,
            needed=self._needed(),
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

    def _needed(self) -> float:
        """Hours of footage, new to the model, that its promise takes."""
        try:
            found = file.read(file.beside(self._versions.model))
        except StepvadError:
            return 0.0
        first, *others = found.counted.values()
        threshold = found.threshold
        return hours_for_promise(
            first.joined(others), threshold.alerts_per_hour, threshold.confidence
        )


def start_process(settings: Path) -> StartRound:
    """Start rounds in a process of low priority on one thread."""

    def start(kind: RoundKind, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stepvad.services.learning", kind, str(settings)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    return start
