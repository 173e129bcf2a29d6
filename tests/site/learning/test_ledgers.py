"""The ledgers of a site's cameras, and limits that keep an alert budget."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.events.calibration import (
    Calibration,
    ScoredFootage,
    calibration_path,
    read_calibration,
    write_calibration,
)
from stepvad.events.ledger import DAY_S, HOUR_S, LedgerEntry
from stepvad.events.record import Record, Review
from stepvad.poses import Clip
from stepvad.site.learning.ledgers import (
    PASS_S,
    UPDATE_S,
    JudgedEvents,
    RecordingScorer,
    SiteLedgers,
    by_clock,
    with_limits,
)
from stepvad.site.learning.versions import Amount, Learned, Versions
from stepvad.site.models import NOT_LEARNED, Limit, Models
from stepvad.site.recorder import RECORDINGS, Recording, find_recordings
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import MODEL_NAME, LearningSettings, SiteSettings
from stepvad.site.store.events import FILE_NAME, Store
from tests.site.records import BEGIN, record, record_clips

MIDNIGHT = BEGIN // DAY_S * DAY_S
EMPTY = Calibration.from_ledgers(
    {"yard": [LedgerEntry(watched_s=1.0, quiet=(1.0,))]}, model_sha256="0" * 64, alerts_per_day=1.0
)


@pytest.mark.parametrize("budget", [1.0, 3.0])
def test_about_as_many_alerts_are_raised_as_the_budget_says(tmp_path: Path, budget: float) -> None:
    """People are there two hours a day for 30 days; the limit follows each of their files."""
    store = Store(tmp_path / FILE_NAME, clock=lambda: MIDNIGHT + 30 * DAY_S)
    rng, settings = np.random.default_rng(0), LearningSettings(alerts_per_day=budget)
    ledger: tuple[LedgerEntry, ...] = ()
    limit, alerts = np.inf, []
    for day in range(30):
        for hour in range(24):
            begin = MIDNIGHT + day * DAY_S + hour * HOUR_S
            store.add_watched({("yard", int(begin // HOUR_S)): HOUR_S})
            watched = store.watched()["yard"]
            for file in range(15 if hour in (9, 17) else 0):
                # the peaks of a file: raised by the limit so far, then in the ledger
                peaks = np.sort(rng.lognormal(0.0, 0.7, rng.poisson(8)))[::-1]
                raised = [peak for peak in peaks.tolist() if peak > limit]
                alerts += [begin] * len(raised)
                quiet = tuple(peak for peak in peaks.tolist() if peak <= limit)
                at = begin + 240.0 * file
                new = LedgerEntry(begin=at, watched_s=240.0, quiet=quiet, alerts=tuple(raised))
                ledger = by_clock([*ledger, new], watched, at + 240.0)
                limit = with_limits(EMPTY, {"yard": ledger}, settings).cameras["yard"].value
    store.close()
    later = [at for at in alerts if at >= MIDNIGHT + 2 * DAY_S]
    assert 0.5 * budget < len(later) / 28 < 1.5 * budget
    assert len(alerts) - len(later) <= 4 * budget + 3  # expect two or three more


def test_hours_without_people_count_and_a_clock_that_stood_does_not() -> None:
    entry = LedgerEntry(begin=MIDNIGHT + 60, watched_s=120.0, quiet=(2.0,))
    clock = {MIDNIGHT: 3000.0, MIDNIGHT + HOUR_S: 3600.0}
    both = by_clock([entry], clock, MIDNIGHT + 2 * HOUR_S)
    assert [(one.watched_s, one.quiet) for one in both] == [(3000.0, (2.0,)), (3600.0, ())]
    # the footage was there, whatever the clock says; what is older than a week is not
    assert [one.watched_s for one in by_clock([entry], {}, MIDNIGHT + HOUR_S)] == [120.0]
    assert by_clock([entry], clock, MIDNIGHT + 8 * DAY_S) == ()


def event(begin: float, seconds: float | None = 4.0, camera: str = "yard") -> Record:
    one = replace(record(camera, round(begin)), start_time=begin)
    return one if seconds is None else one.ended("calm", begin + seconds)


def judged(events: Sequence[Record], *marks: str | None) -> JudgedEvents:
    reviews = {
        one.id: Review(mark, 1.0)  # type: ignore[arg-type]
        for one, mark in zip(events, marks, strict=False)
    }
    return JudgedEvents(events, reviews)


def test_right_and_unjudged_alerts_are_not_normal() -> None:
    events = [event(BEGIN + 100 * n) for n in range(4)] + [event(BEGIN, camera="door")]
    spans = judged(events, "right", "normal", None).not_normal("yard")
    begins = [first for first, _ in spans]
    assert begins == [one.start_time - 2.0 for one in (events[0], events[2], events[3])]
    assert judged([event(BEGIN, None)]).not_normal("yard")[0][1] == np.inf  # it goes on


def test_an_alert_counts_once_and_a_right_one_leaves_no_trace() -> None:
    file = Recording(Path("a"), "yard", BEGIN)
    events = [event(BEGIN + at) for at in (-3.0, 10.0, 50.0, 90.0, 130.0)]
    counted, left_out = judged(events, None, "right", "normal", None).alerts_in(file, 120.0)
    assert [first - BEGIN for first, _ in counted] == [50.0, 90.0]
    assert [first - BEGIN for first, _ in left_out] == [-5.0, 8.0]  # one began in the file before
    assert judged([event(BEGIN, camera="door")]).alerts_in(file, 120.0) == ([], [])


@pytest.fixture(scope="module")
def walks() -> list[Clip]:
    """Normal walks of a few seconds each, and two with something else."""
    normal = [clip for clip, _ in make_clips(9, seed=3, seconds=4.0, anomalies=False)]
    return normal + [clip for clip, _ in make_clips(2, seed=5, seconds=12.0)]


@pytest.fixture(scope="module")
def detector(walks: Sequence[Clip]) -> Detector:
    """A model of the walks."""
    return Detector.fit(
        [clip for clip, _ in make_clips(18, seed=4, seconds=4.0, anomalies=False)],
        Config.usual(25.0),
    )


@dataclass
class Site:
    """A site that has learned a model, at some time of its clock."""

    settings: SiteSettings
    detector: Detector
    store: Store
    models: Models = field(default_factory=Models)
    limits: deque[Limit] = field(default_factory=deque)
    ledgers: SiteLedgers = field(init=False)

    def start(self) -> None:
        """Start, again if need be."""
        self.models, self.limits = Models(), deque()
        camera = self.settings.cameras[0]
        self.models.load(self.settings.model_of(camera))

        def put(task: Callable[[], object]) -> None:
            task()

        self.ledgers = SiteLedgers(self.settings, self.store, self.models, self.limits, put)

    def update(self) -> None:
        found = find_recordings(self.settings.data / RECORDINGS)
        self.ledgers.update(found, lambda: None)

    @property
    def calibration(self) -> Calibration:
        path = self.settings.model_of(self.settings.cameras[0])
        return read_calibration(calibration_path(path))

    def quiet(self) -> list[float]:
        return [peak for one in self.calibration.ledgers["yard"] for peak in one.quiet]

    def alerts(self) -> list[float]:
        return [peak for one in self.calibration.ledgers["yard"] for peak in one.alerts]


@pytest.fixture
def site(tmp_path: Path, walks: Sequence[Clip], detector: Detector) -> Site:
    """A site with a model of three hours ago."""
    path = tmp_path / "site.toml"
    cameras = [
        f'[[cameras]]\nname = "{one}"\nurl = "demo:"\nrate = 25.0\n' for one in ("yard", "new")
    ]
    path.write_text("".join(cameras))
    settings, at = load(path), time.time()
    versions = Versions(settings.data)
    made = versions.new_directory(at - 3 * HOUR_S)
    detector.save(made / MODEL_NAME)
    footage = ScoredFootage()
    footage.score(detector, "yard", walks[:4], begin=at - 3 * HOUR_S)
    ledger = by_clock(footage.ledgers["yard"], {}, at)
    calibration = replace(EMPTY, model_sha256=Detector.load(made / MODEL_NAME).sha256)
    write_calibration(
        with_limits(calibration, {"yard": ledger}, settings.learning),
        calibration_path(made / MODEL_NAME),
    )
    Learned(
        name=made.stem, made=at - 3 * HOUR_S, method="usual", footage=Amount(0.1, 20),
        cameras=("yard",), until=at - 3 * HOUR_S,
    ).save(made)  # fmt: skip
    versions.finish(made, keep=1)
    site = Site(settings, detector, Store(settings.data / FILE_NAME))
    site.start()
    return site


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    plain = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: plain() + seconds)


def test_a_new_recording_moves_the_limit_and_a_restart_knows_it(
    site: Site, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.update()
    before = site.calibration
    record_clips(site.settings.data, "yard", walks[4:9], time.time() - 900)
    record_clips(site.settings.data, "new", walks[4:9], time.time() - 900)
    pass_time(monkeypatch, UPDATE_S + 1)
    site.update()
    after = site.calibration
    assert after.cameras["yard"].events > before.cameras["yard"].events
    assert site.limits[-1].rules.threshold == pytest.approx(after.cameras["yard"].value)
    assert {one.camera.name for one in site.limits} == {"yard"}
    assert [*after.cameras] == [*after.ledgers] == ["yard"]  # nobody has learned the new camera
    # what is counted stays so when the site starts again, and is counted once
    site.start()
    site.update()
    assert site.calibration.ledgers == after.ledgers
    for path in (site.settings.data / RECORDINGS / "yard").glob("*"):
        path.unlink()
    pass_time(monkeypatch, PASS_S + 1)
    site.update()
    assert site.calibration.cameras["yard"].events == after.cameras["yard"].events


def test_an_alert_uses_up_the_budget_until_it_is_marked_right(
    site: Site, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(site.settings.data, "yard", walks[4:], time.time() - 900)
    site.update()
    before = site.quiet()
    # the event of the recording that is the strangest
    scorer = RecordingScorer(
        site.detector,
        site.models.loaded()[0].learned,  # type: ignore[arg-type]
        JudgedEvents([], {}),
        site.settings,
    )
    found = {one: scorer.score(one) for one in find_recordings(site.settings.data / RECORDINGS)}
    one = max(found, key=lambda one: found[one].highest)
    highest = found[one].highest
    alert = event(one.begin, 12.0)
    site.store.change("new", replace(alert, end_time=None, ended_by=None))
    site.store.change("end", alert)
    site.start()  # counts the last hour again
    site.update()
    assert site.alerts() == [pytest.approx(highest, rel=1e-4)]
    assert len(site.quiet()) < len(before)
    site.store.mark(alert.id, "right", time.time() + 5)
    pass_time(monkeypatch, UPDATE_S + 1)
    site.update()
    assert site.alerts() == []
    assert max(site.quiet()) < highest
    site.store.mark(alert.id, None, time.time() + 6)
    pass_time(monkeypatch, 2 * UPDATE_S + 2)
    site.update()
    assert len(site.alerts()) == 1


def test_a_mark_made_while_the_site_was_down_counts(
    site: Site, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = time.time() - 5 * HOUR_S  # in an hour that no restart counts again
    record_clips(site.settings.data, "yard", walks[-1:], begin)
    alert = event(begin + 1.0, 10.0)
    site.store.change("new", replace(alert, end_time=None, ended_by=None))
    site.store.change("end", alert)
    path = calibration_path(site.settings.model_of(site.settings.cameras[0]))
    known = read_calibration(path)
    entry = LedgerEntry(begin=begin, watched_s=12.0, alerts=(50.0,))
    ledger = by_clock([entry, *known.ledgers["yard"]], {}, time.time())
    write_calibration(with_limits(known, {"yard": ledger}, site.settings.learning), path)
    os.utime(path, (begin + 100, begin + 100))
    site.store.mark(alert.id, "right", begin + 200)
    site.start()
    site.update()
    assert site.alerts() == []


def test_another_budget_gives_another_limit_at_once(site: Site) -> None:
    hour = int(time.time() // HOUR_S)
    site.store.add_watched({("yard", hour - k): HOUR_S for k in range(48)})
    site.update()
    (before,) = site.limits
    settings = site.settings.model_copy(update={"learning": LearningSettings(alerts_per_day=500.0)})
    site.ledgers.use(settings)
    site.update()
    assert site.limits[-1].rules.threshold < before.rules.threshold


def test_a_strict_limit_waits_for_days_and_then_a_restart_watches_the_camera(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = LearningSettings(strict=True)
    site.ledgers.use(site.settings.model_copy(update={"learning": strict}))
    site.update()
    assert site.calibration.cameras == {}
    site.start()
    model, camera = site.models.loaded()[0], site.settings.cameras[0]
    assert "strict: not before 3 days without an alert" in model.no_limit(camera)
    assert model.no_limit(site.settings.cameras[1]) == NOT_LEARNED
    site.settings = site.settings.model_copy(update={"learning": strict})
    site.start()
    hour = int(time.time() // HOUR_S)
    site.store.add_watched({("yard", hour - k): HOUR_S for k in range(24 * 6)})
    site.update()
    assert site.calibration.cameras["yard"].how == "counted"
    assert site.ledgers.needs_restart


def test_nobody_alerts_outside_the_hours_of_a_camera(site: Site, walks: Sequence[Clip]) -> None:
    at = time.localtime()
    closed = f"{(at.tm_hour + 6) % 24:02}:00-{(at.tm_hour + 7) % 24:02}:00"
    (path,) = record_clips(site.settings.data, "yard", walks[-1:], time.time() - 30)
    one = Recording.from_path(path)
    learned = site.models.loaded()[0].learned
    assert one is not None
    assert learned is not None
    nothing = JudgedEvents([], {})
    assert RecordingScorer(site.detector, learned, nothing, site.settings).score(one).quiet
    yard = site.settings.cameras[0].model_copy(update={"hours": [closed]})
    settings = site.settings.model_copy(update={"cameras": [yard]})
    assert not RecordingScorer(site.detector, learned, nothing, settings).score(one).quiet
