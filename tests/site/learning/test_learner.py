"""The stage that learns: when it starts a round, and what follows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import pytest

from stepvad.config import Config
from stepvad.evaluation.walkers import make_clips
from stepvad.intake.models import Models
from stepvad.intake.status import LiveStatus
from stepvad.poses import Clip
from stepvad.settings.file import load
from stepvad.settings.sections import SiteSettings
from stepvad.site.learning import learner as module
from stepvad.site.learning import rounds
from stepvad.site.learning.learner import Learner
from stepvad.site.learning.schedule import RoundKind
from stepvad.site.pipeline import Pipeline
from stepvad.site.store.eventstore import FILE_NAME, Store
from tests.site.learning.recorded import record_clips
from tests.video.servers import wait_until

SITE = '[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 25.0\n[learning]\nfit_hours = []\n'


@pytest.fixture(scope="module")
def walks() -> list[Clip]:
    return [clip for clip, _ in make_clips(9, seed=3, seconds=6.0, anomalies=False)]


@dataclass
class Rounds:
    """Rounds that do what a test says, in real processes."""

    code: str = ""
    started: list[RoundKind] = field(default_factory=list)
    fitted: list[str] = field(default_factory=list)
    calibrated: list[Path] = field(default_factory=list)

    def start(self, kind: RoundKind, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        self.started.append(kind)
        return subprocess.Popen([sys.executable, "-c", self.code], stderr=errors)


@dataclass
class Learning:
    """A learner with its surroundings."""

    settings: SiteSettings
    status: LiveStatus
    store: Store
    rounds: Rounds
    stage: Learner = field(init=False)

    def __post_init__(self) -> None:
        self.stage = self.of()

    def of(self, unusable: str = "") -> Learner:
        """The learner from now on."""
        self.stage = Learner(
            *(self.settings, self.store, self.status, self.rounds.start),
            on_fit=lambda: self.rounds.fitted.append("fit"),
            on_calibrated=self.rounds.calibrated.append,
            unusable=unusable,
        )
        return self.stage

    def until(self, done: Callable[[], bool]) -> None:
        def look() -> bool:
            self.stage.look()
            return done()

        wait_until(look, 20.0)

    @property
    def words(self) -> str:
        view = self.status.snapshot().learning
        assert view is not None
        return view.words


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Learning]:
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    settings, status, made = load(path), LiveStatus(), Rounds()
    store = Store(settings.data / FILE_NAME)
    learning = Learning(settings, status, store, made)
    yield learning
    if learning.stage._round is not None:
        learning.stage._round.end()
    store.close()


def small_fit(settings: SiteSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(Config.footage(), fps=25.0, width=32, sigma_width=16, max_steps=40, K=24)
    monkeypatch.setattr(rounds, "config_for", lambda settings, poses: small)
    rounds.fit(settings)


def test_it_waits_for_footage_and_says_how_it_stands(
    learning: Learning, walks: Sequence[Clip]
) -> None:
    learning.stage.look()
    assert learning.words == "Learning: waiting for the first recording with people in it."
    record_clips(learning.settings.data, "yard", walks[:2], time.time() - 600)
    learning.stage.look()
    assert "First alerts possible" in learning.words
    assert learning.rounds.started == []


def test_a_first_model_restarts_the_site_and_a_new_threshold_does_not(
    learning: Learning, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.stage.look()
    assert learning.rounds.started == ["fit"]
    view = learning.status.snapshot().learning
    assert view is not None
    assert view.doing == "fit"
    small_fit(learning.settings, monkeypatch)  # what the process would have done
    learning.until(lambda: bool(learning.rounds.fitted))
    assert "Alerts are provisional" in learning.words or learning.rounds.started == ["fit"]
    record_clips(learning.settings.data, "yard", walks[6:], time.time() - 60)
    learning.until(lambda: bool(learning.rounds.calibrated))
    assert learning.rounds.fitted == ["fit"]
    learning.stage.fit_now()
    learning.until(lambda: len(learning.rounds.fitted) == 2)
    (current,) = [one for one in learning.stage.versions() if one.is_current]
    learning.stage.use(current.name)
    assert len(learning.rounds.fitted) == 3


def test_a_round_that_fails_is_said_and_not_repeated_at_once(
    learning: Learning, walks: Sequence[Clip]
) -> None:
    learning.rounds.code = "raise SystemExit('no torch here')"
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.until(lambda: learning.stage._failed_at is not None)
    learning.stage.look()
    view = learning.status.snapshot().learning
    assert view is not None
    assert view.problem == "no torch here"
    assert learning.rounds.started == ["fit"]
    assert learning.rounds.fitted == []


def test_a_learned_model_that_cannot_be_used_is_replaced(
    learning: Learning, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    small_fit(learning.settings, monkeypatch)
    learning.stage.look()
    assert learning.rounds.started == []  # it can be used
    learning.stage._versions.model.write_bytes(b"torn")
    pipeline = Pipeline(learning.settings, Models(), learning.status, learning.store)
    assert pipeline.unusable.startswith("the learned model cannot be used")
    stage = learning.of(pipeline.unusable)
    learning.rounds.code = "raise SystemExit('no torch here')"
    learning.until(lambda: stage._failed_at is not None)
    stage._failed_at = None  # the time of the next attempt has come
    learning.rounds.code = ""
    learning.until(lambda: bool(learning.rounds.fitted))
    assert learning.rounds.started == ["fit", "fit"]
    stage.look()
    assert learning.rounds.started == ["fit", "fit"]  # while the site restarts


def test_a_round_that_hangs_is_killed(
    learning: Learning, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    learning.rounds.code = "import time; time.sleep(600)"
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.stage.look()
    process = learning.stage._round
    assert process is not None
    monkeypatch.setitem(module.ROUND_S, "fit", 0.0)
    learning.until(lambda: process.process.poll() is not None)
    assert learning.stage._failed_at is not None


def test_stopping_kills_a_running_round(learning: Learning, walks: Sequence[Clip]) -> None:
    learning.rounds.code = "import time; time.sleep(600)"
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.stage.look()
    process = learning.stage._round
    assert process is not None
    learning.stage.stop(0.0)
    learning.stage.run()
    assert process.process.poll() is not None
