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
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.rules import WatchHours
from stepvad.poses import Clip
from stepvad.site.learning import learner as module
from stepvad.site.learning import rounds
from stepvad.site.learning.learner import Learner, Situation, is_due, progress_words
from stepvad.site.learning.ledgers import SiteLedgers
from stepvad.site.learning.versions import Amount, Learned
from stepvad.site.models import Models
from stepvad.site.pipeline import Pipeline
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from tests.site.records import record, record_clips
from tests.video.servers import wait_until

SITE = '[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 25.0\n[learning]\nfit_hours = []\n'


@pytest.fixture(scope="module")
def walks() -> list[Clip]:
    """Four minutes of people."""
    return [clip for clip, _ in make_clips(24, seed=3, seconds=10.5, anomalies=False)]


@dataclass
class Rounds:
    """Rounds that do what a test says, in real processes."""

    code: str = ""
    started: int = 0
    fitted: int = 0

    def on_fit(self) -> None:
        self.fitted += 1

    def start(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        self.started += 1
        return subprocess.Popen([sys.executable, "-c", self.code], stderr=errors)


@dataclass
class Learning:
    """A learner with its surroundings."""

    settings: SiteSettings
    status: LiveStatus
    store: Store
    rounds: Rounds
    ledgers: Mock = field(default_factory=lambda: Mock(SiteLedgers, needs_restart=False))
    stage: Learner = field(init=False)

    def __post_init__(self) -> None:
        self.learner = self.of()

    def of(self, unusable: str = "") -> Learner:
        """The learner from now on."""
        self.learner = Learner(
            *(self.settings, self.store, self.status, self.rounds.start, self.ledgers),
            on_fit=self.rounds.on_fit,
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


@pytest.fixture(scope="module")
def detector(walks: Sequence[Clip]) -> Detector:
    return Detector.fit(walks[:12], Config.usual(25.0))


def quick_fit(settings: SiteSettings, detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process of a round does."""
    with monkeypatch.context() as patch:
        patch.setattr(Detector, "fit", lambda *_, **__: detector)
        rounds.fit(settings)


def test_it_waits_for_footage_and_says_how_it_stands(
    learning: Learning, walks: Sequence[Clip]
) -> None:
    learning.learner.check_due()
    assert learning.words == "Learning: waiting for the first recording with people in it."
    record_clips(learning.settings.data, "yard", walks[:2], time.time() - 600)
    learning.learner.check_due()
    assert "First alerts possible in about" in learning.words
    assert learning.rounds.started == 0


def test_a_new_model_restarts_the_site_and_one_can_go_back(
    learning: Learning, walks: Sequence[Clip], detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(learning.settings.data, "yard", walks, time.time() - 6000)
    learning.learner.check_due()
    assert learning.rounds.started == 1
    view = learning.status.snapshot().learning
    assert view is not None
    assert view.doing == "fit"
    quick_fit(learning.settings, detector, monkeypatch)
    learning.until(lambda: learning.rounds.fitted == 1)
    learning.learner.check_due()
    assert learning.words == "Learned from 4 min with people, 57 tracks."
    learning.store.change("new", record())
    learning.learner.check_due()
    assert learning.words.endswith(
        "1 to review. They use up the budget; how strange they were does not lift the limit."
    )
    assert learning.rounds.started == 1
    learning.learner.fit_now()
    learning.until(lambda: learning.rounds.fitted == 2)
    (current,) = [one for one in learning.learner.versions() if one.is_current]
    learning.learner.use(current.name)
    assert learning.rounds.fitted == 3


def test_ledgers_follow_the_recordings_and_may_need_a_restart(
    learning: Learning, walks: Sequence[Clip]
) -> None:
    record_clips(learning.settings.data, "yard", walks[:2], time.time() - 600)
    learning.learner.check_due()
    ((recordings, _), _) = learning.ledgers.update.call_args
    assert [one.camera for one in recordings] == ["yard", "yard"]
    learning.learner.apply(learning.settings)
    learning.ledgers.use.assert_called_once_with(learning.settings)
    learning.ledgers.needs_restart = True
    learning.learner.check_due()
    learning.learner.check_due()
    assert learning.rounds.fitted == 1


def test_a_new_model_waits_for_a_settings_file_that_somebody_broke(
    learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Mock(side_effect=[ConfigError("broken"), ConfigError("broken"), None])
    monkeypatch.setattr(learning.learner, "_on_fit", called)
    learning.learner._is_fitted = True
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
    record_clips(learning.settings.data, "yard", walks, time.time() - 6000)
    learning.until(lambda: learning.learner._failed_at is not None)
    learning.learner.check_due()
    view = learning.status.snapshot().learning
    assert view is not None
    assert view.problem == "no torch here"
    assert (learning.rounds.started, learning.rounds.fitted) == (1, 0)


def test_a_learned_model_that_cannot_be_used_is_replaced(
    learning: Learning, walks: Sequence[Clip], detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(learning.settings.data, "yard", walks, time.time() - 6000)
    quick_fit(learning.settings, detector, monkeypatch)
    learning.learner.check_due()
    assert learning.rounds.started == 0  # it can be used
    learning.learner._versions.model.write_bytes(b"torn")
    pipeline = Pipeline(learning.settings, Models(), learning.status, learning.store)
    assert pipeline.watched.unusable.startswith("the learned model cannot be used")
    stage = learning.of(pipeline.watched.unusable)
    learning.rounds.code = "raise SystemExit('no torch here')"
    learning.until(lambda: stage._failed_at is not None)
    stage._failed_at = None  # the time of the next attempt has come
    learning.rounds.code = ""
    learning.until(lambda: learning.rounds.fitted == 1)
    assert learning.rounds.started == 2
    stage.check_due()
    assert learning.rounds.started == 2  # while the site restarts


def test_a_round_that_hangs_is_killed(
    learning: Learning, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    learning.rounds.code = "import time; time.sleep(600)"
    record_clips(learning.settings.data, "yard", walks, time.time() - 6000)
    learning.learner.check_due()
    process = learning.learner._round
    assert process is not None
    monkeypatch.setattr(module, "ROUND_S", 0.0)
    learning.until(lambda: process.process.poll() is not None)
    assert learning.learner._failed_at is not None


def test_stopping_kills_a_running_round(learning: Learning, walks: Sequence[Clip]) -> None:
    learning.rounds.code = "import time; time.sleep(600)"
    record_clips(learning.settings.data, "yard", walks, time.time() - 6000)
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
    method="usual",
    footage=Amount(3.0, 300),
    cameras=("yard",),
    until=NOW - 2 * DAY_S,
)


def at(amount: Amount, current: Learned | None = FITTED, **more: Any) -> Situation:
    plain = Situation(now=NOW, amounts={"yard": amount}, current=current, since=NOW - 3600)
    return replace(plain, **more)


def test_the_first_model_needs_four_minutes_and_twenty_tracks() -> None:
    assert not is_due(at(Amount(3.9 / 60, 40), None), NEVER)
    assert not is_due(at(Amount(9 / 60, 19), None), NEVER)
    assert is_due(at(Amount(4 / 60, 20), None), NEVER)
    both = {"yard": Amount(2 / 60, 10), "door": Amount(2 / 60, 10)}
    assert is_due(at(Amount(), None, amounts=both), NEVER)


def test_a_young_model_is_replaced_by_day_when_the_footage_has_doubled() -> None:
    young = replace(FITTED, footage=Amount(0.3, 40))
    assert not is_due(at(Amount(0.59, 80), young), NEVER)
    assert is_due(at(Amount(0.6, 80), young), NEVER)
    assert not is_due(at(Amount(12.0, 900)), NEVER)  # that can wait for the night


def test_a_new_camera_has_a_model_learned_from_four_minutes_of_its_own() -> None:
    few = {"yard": Amount(3.0, 300), "new": Amount(3.9 / 60, 9)}
    assert not is_due(at(Amount(), amounts=few), NEVER)
    assert is_due(at(Amount(), amounts=few | {"new": Amount(4 / 60, 9)}), NEVER)


@pytest.mark.parametrize(
    ("change", "hours", "wanted"),
    [
        ({"new": Amount(0.4)}, ALWAYS, True),
        ({"new": Amount(0.4)}, NEVER, False),
        ({"new": Amount(0.3)}, ALWAYS, False),  # hardly anything new
        ({"is_asked": True}, NEVER, True),
    ],
)
def test_at_night_a_model_is_replaced_if_there_is_something_to_learn(
    change: dict[str, Any], hours: WatchHours, wanted: bool
) -> None:
    assert is_due(at(Amount(3.4, 300), **change), hours) == wanted
    fresh = replace(FITTED, made=NOW - 3600)  # of the same night
    if "new" in change:
        assert not is_due(at(Amount(3.4, 300), fresh, **change), hours)


def test_a_round_that_failed_is_tried_again_after_a_pause() -> None:
    now = at(Amount(4.0, 300), new=Amount(2.0))
    assert not is_due(replace(now, failed_at=NOW - 60), ALWAYS)
    assert is_due(replace(now, failed_at=NOW - 1000), ALWAYS)
    assert is_due(replace(now, failed_at=NOW - 60, is_asked=True), NEVER)
    assert is_due(replace(now, failed_at=NOW + 9999), ALWAYS)  # the clock was set back


def test_what_an_operator_reads() -> None:
    def said(amount: Amount, current: Learned | None = None, to_review: int = 0) -> str:
        return progress_words(at(amount, current), to_review)

    assert said(Amount()) == "Learning: waiting for the first recording with people in it."
    assert said(Amount(2 / 60, 12)) == (
        "Learning: 2 min with people, 12 tracks so far. First alerts possible in about 1 h."
    )
    assert "possible in about 3 h" in said(Amount(9 / 60, 5))  # too few people
    assert "possible in a minute or two" in said(Amount(4 / 60, 20))
    assert said(Amount(3.2, 412), FITTED) == "Learned from 3.2 h with people, 412 tracks."
    assert said(Amount(3.2, 412), FITTED, 3).endswith(
        "3 to review. They use up the budget; how strange they were does not lift the limit."
    )
