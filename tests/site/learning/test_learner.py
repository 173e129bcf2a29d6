"""When a site learns, and the stage that does it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any
from unittest.mock import Mock

import pytest

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.rules import WatchHours
from stepvad.poses import Clip
from stepvad.site.learning import learner as module
from stepvad.site.learning import rounds
from stepvad.site.learning.learner import JobKind, Learner, Situation, due_round, progress_words
from stepvad.site.learning.versions import Amount, Learned
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from tests.site.records import record_clips
from tests.video.servers import wait_until

SITE = '[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 25.0\n[learning]\nfit_hours = []\n'


@pytest.fixture(scope="module")
def walks() -> list[Clip]:
    return [clip for clip, _ in make_clips(9, seed=3, seconds=6.0, anomalies=False)]


@dataclass
class Rounds:
    """Rounds that do what a test says, in real processes."""

    code: str = ""
    started: list[JobKind] = field(default_factory=list)
    fitted: list[str] = field(default_factory=list)
    calibrated: list[Path] = field(default_factory=list)

    def start(self, kind: JobKind, errors: IO[bytes]) -> subprocess.Popen[bytes]:
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
        self.learner = self.of()

    def of(self, unusable: str = "") -> Learner:
        """The learner from now on."""
        self.learner = Learner(
            *(self.settings, self.store, self.status, self.rounds.start),
            on_fit=lambda: self.rounds.fitted.append("fit"),
            on_calibrated=self.rounds.calibrated.append,
            unusable=unusable,
        )
        return self.learner

    def until(self, done: Callable[[], bool]) -> None:
        def look() -> bool:
            self.learner.check_due()
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
    if learning.learner._round is not None:
        learning.learner._round.end()
    store.close()


def small_fit(settings: SiteSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(Config.footage(), fps=25.0, width=32, sigma_width=16, max_steps=40, K=24)
    monkeypatch.setattr(rounds, "config_for", lambda settings, poses: small)
    rounds.fit(settings)


def test_it_waits_for_footage_and_says_how_it_stands(
    learning: Learning, walks: Sequence[Clip]
) -> None:
    learning.learner.check_due()
    assert learning.words == "Learning: waiting for the first recording with people in it."
    record_clips(learning.settings.data, "yard", walks[:2], time.time() - 600)
    learning.learner.check_due()
    assert "First alerts possible" in learning.words
    assert learning.rounds.started == []


def test_a_first_model_restarts_the_site_and_a_new_threshold_does_not(
    learning: Learning, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.learner.check_due()
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
    learning.learner.fit_now()
    learning.until(lambda: len(learning.rounds.fitted) == 2)
    (current,) = [one for one in learning.learner.versions() if one.is_current]
    learning.learner.use(current.name)
    assert len(learning.rounds.fitted) == 3


def test_a_new_model_waits_for_a_settings_file_that_somebody_broke(
    learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Mock(side_effect=[ConfigError("broken"), ConfigError("broken"), None])
    monkeypatch.setattr(learning.learner, "_on_fit", called)
    learning.learner._finished("fit", Mock(changed="a first model"))
    for _ in range(2):  # a restart would not come back: the site goes on and tries again
        with pytest.raises(ConfigError, match="broken"):
            learning.learner.check_due()
    learning.learner.check_due()
    learning.learner.check_due()
    assert called.call_count == 3


def test_a_round_that_fails_is_said_and_not_repeated_at_once(
    learning: Learning, walks: Sequence[Clip]
) -> None:
    learning.rounds.code = "raise SystemExit('no torch here')"
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.until(lambda: learning.learner._failed_at is not None)
    learning.learner.check_due()
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
    learning.learner.check_due()
    assert learning.rounds.started == []  # it can be used
    learning.learner._versions.model.write_bytes(b"torn")
    pipeline = Pipeline(learning.settings, Models(), learning.status, learning.store)
    assert pipeline.watched.unusable.startswith("the learned model cannot be used")
    stage = learning.of(pipeline.watched.unusable)
    learning.rounds.code = "raise SystemExit('no torch here')"
    learning.until(lambda: stage._failed_at is not None)
    stage._failed_at = None  # the time of the next attempt has come
    learning.rounds.code = ""
    learning.until(lambda: bool(learning.rounds.fitted))
    assert learning.rounds.started == ["fit", "fit"]
    stage.check_due()
    assert learning.rounds.started == ["fit", "fit"]  # while the site restarts


def test_a_round_that_hangs_is_killed(
    learning: Learning, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    learning.rounds.code = "import time; time.sleep(600)"
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.learner.check_due()
    process = learning.learner._round
    assert process is not None
    monkeypatch.setitem(module.ROUND_S, "fit", 0.0)
    learning.until(lambda: process.process.poll() is not None)
    assert learning.learner._failed_at is not None


def test_stopping_kills_a_running_round(learning: Learning, walks: Sequence[Clip]) -> None:
    learning.rounds.code = "import time; time.sleep(600)"
    record_clips(learning.settings.data, "yard", walks[:6], time.time() - 6000)
    learning.learner.check_due()
    process = learning.learner._round
    assert process is not None
    learning.learner.stage.stop(0.0)
    learning.learner.stage.run()
    assert process.process.poll() is not None


ALWAYS, NEVER = WatchHours.parse(["00:00-24:00"]), WatchHours(())
NOW = 1_790_000_000.0
DAY_S = 86400.0
FITTED = Learned(
    name="a",
    made=NOW - 2 * DAY_S,
    fitted=Amount(2.0, 200, 50_000),
    measured=Amount(1.0, 100, 25_000),
    marks=0,
    threshold=4.0,
    words="provisional: learned from 1 h, no promise yet",
    is_provisional=True,
    changed="",
)


def at(amount: Amount, current: Learned | None = FITTED, **more: Any) -> Situation:
    plain = Situation(now=NOW, amount=amount, files=20, marks=0, current=current)
    return replace(plain, **more)


def test_the_first_model_needs_people_and_files() -> None:
    assert due_round(at(Amount(0.02, 9, 1499), None), NEVER) is None
    assert due_round(at(Amount(0.02, 9, 1500), None, files=5), NEVER) is None
    assert due_round(at(Amount(0.02, 9, 1500), None), NEVER) == "fit"


def test_a_young_model_is_replaced_by_day_when_three_times_as_much_is_new() -> None:
    young = replace(FITTED, fitted=Amount(0.2, 9, 5000), measured=Amount(0.1, 5, 2500))
    all_ = Amount(1.3, 900, 20_000)
    new = at(all_, young, new=Amount(1.0), unmeasured=Amount(1.0))
    assert due_round(new, NEVER) == "fit"
    assert due_round(replace(new, new=Amount(0.8)), NEVER) == "calibrate"
    old = at(Amount(12.0, 900, 200_000), new=Amount(9.0), unmeasured=Amount(9.0))
    assert due_round(old, NEVER) == "calibrate"  # it can wait for the night


@pytest.mark.parametrize(
    ("change", "hours", "wanted"),
    [
        ({"new": Amount(0.4)}, ALWAYS, "fit"),
        ({"new": Amount(0.4)}, NEVER, None),
        ({"new": Amount(0.3)}, ALWAYS, None),  # hardly anything new
        ({"new": Amount(0.3), "marks": 1}, ALWAYS, "fit"),
        ({"is_asked": True}, NEVER, "fit"),
        ({"unmeasured": Amount(0.5)}, NEVER, "calibrate"),  # half of the hour before
        ({"unmeasured": Amount(0.4)}, NEVER, None),
    ],
)
def test_at_night_a_model_is_replaced_if_there_is_something_to_learn(
    change: dict[str, Any], hours: WatchHours, wanted: str | None
) -> None:
    assert due_round(at(Amount(3.4, 300, 80_000), **change), hours) == wanted


def test_footage_that_replaces_older_footage_is_new_although_there_is_no_more_of_it() -> None:
    week = replace(FITTED, fitted=Amount(40.0, 9, 5000), measured=Amount(20.0, 5, 2500))
    assert due_round(at(Amount(60.0, 900, 200_000), week, new=Amount(9.0)), ALWAYS) == "fit"


def test_a_model_of_the_same_night_is_left_alone() -> None:
    fresh = replace(FITTED, made=NOW - 3600)
    assert due_round(at(Amount(3.4, 300, 80_000), fresh, new=Amount(1.0)), ALWAYS) is None


def test_a_round_that_failed_is_tried_again_after_a_pause() -> None:
    now = at(Amount(12.0, 900, 200_000), unmeasured=Amount(2.0))
    assert due_round(replace(now, failed_at=NOW - 60), NEVER) is None
    assert due_round(replace(now, failed_at=NOW - 1000), NEVER) == "calibrate"
    assert due_round(replace(now, failed_at=NOW - 60, is_asked=True), NEVER) == "fit"
    assert (
        due_round(replace(now, failed_at=NOW + 9999), NEVER) == "calibrate"
    )  # the clock was set back


def test_what_an_operator_reads() -> None:
    def said(amount: Amount, current: Learned | None = FITTED, since_s: float = 3600.0) -> str:
        now = at(amount, current, unmeasured=Amount(0.2))
        return progress_words(now, 1.0, since=NOW - since_s, needed=2.4)

    assert said(Amount(), None) == "Learning: waiting for the first recording with people in it."
    assert said(Amount(0.1, 12, 500), None) == (
        "Learning: 6 min of motion, 12 tracks of people so far. First alerts possible in about 2 h."
    )
    assert "possible in a minute or two" in said(Amount(0.1, 12, 1600), None)
    assert said(Amount(3.2, 412, 80_000), since_s=DAY_S) == (
        "3.2 h of motion, 412 tracks of people. Alerts are provisional; "
        "the promise of at most 1 false alert a day takes about 9 h more."
    )
    promised = replace(FITTED, is_provisional=False, words="at most 1 a day")
    assert said(Amount(3.2, 412, 80_000), promised).endswith("Threshold: at most 1 a day.")
