"""What a site learns from, and rounds of learning on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.calibration import calibration_path, read_calibration
from stepvad.formats import tracks
from stepvad.model import usual
from stepvad.poses import Clip, Track
from stepvad.site.learning import rounds
from stepvad.site.learning.rounds import (
    AGAIN_S,
    RecordingIndex,
    amount_of,
    clip_without,
    is_well_seen,
    not_held_out,
    parts_of,
    thinned,
)
from stepvad.site.learning.versions import Amount, Learned, Versions, facts
from stepvad.site.recorder import RECORDINGS, Recording, find_recordings
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import SiteSettings
from stepvad.site.store.events import FILE_NAME, Store
from tests.processes import unreadable
from tests.site.records import BEGIN, name_of, record, record_clips


def clip(n: int = 100, *, every: int = 1, fps: float = 10.0) -> Clip:
    """One person in every n-th frame."""
    frames = np.arange(0, n, every)
    joints = np.random.default_rng(0).uniform(0, 100, (len(frames), 17, 2)).astype(np.float32)
    track = Track(4, frames, joints, np.ones((len(frames), 17), np.float32))
    return Clip("one", fps, n, (track,))


def test_the_name_of_a_recording_says_when_it_begins(tmp_path: Path) -> None:
    (path,) = record_clips(tmp_path, "the-yard", [clip()], BEGIN + 0.25)
    found = Recording.from_path(path)
    assert found is not None
    assert (found.camera, found.begin) == ("the-yard", BEGIN + 0.25)
    assert Recording.from_path(tmp_path / "mine.parquet") is None
    (path.parent / "mine.parquet").write_bytes(b"")
    assert find_recordings(tmp_path / "poses") == [found]


@pytest.mark.parametrize(
    ("first_s", "last_s", "left"),
    [
        (2.0, 3.0, [range(20), range(31, 100)]),
        (-5.0, 1.0, [range(11, 100)]),
        (9.0, 1e9, [range(90)]),
        (8.95, float("inf"), [range(90)]),
        (-9.0, -1.0, [range(100)]),
        (20.0, 30.0, [range(100)]),
        (-1.0, 11.0, []),
    ],
)
def test_a_span_is_cut_out_and_nothing_bridges_it(
    first_s: float, last_s: float, left: list[range]
) -> None:
    cut = clip_without(clip(), first_s, last_s)
    assert [track.frames.tolist() for track in cut.tracks] == [[*part] for part in left]
    assert len({track.id for track in cut.tracks}) == len(left)


def test_footage_of_an_overloaded_camera_is_no_footage(tmp_path: Path) -> None:
    assert is_well_seen(clip())
    assert not is_well_seen(clip(every=5))
    assert not is_well_seen(Clip("none", 10.0, 10, ()))
    record_clips(tmp_path, "yard", [clip(), clip(every=5)])
    record_clips(tmp_path, "gone", [clip()])
    index = RecordingIndex(tmp_path / "poses")
    assert index.update(["yard"], 10)
    assert index.by_camera() == {"yard": amount_of(clip())}  # not of a camera that is gone


def test_files_are_counted_some_at_a_time_and_deleted_ones_forgotten(tmp_path: Path) -> None:
    paths = record_clips(tmp_path, "yard", [clip()] * 3)
    index = RecordingIndex(tmp_path / "poses")
    assert not index.update(["yard"], 2)
    assert index.update(["yard"], 2)
    assert index.total(0.0).people == 3
    assert index.total(BEGIN + 1).people == 2
    paths[0].unlink()
    paths[1].write_bytes(b"torn")
    assert index.update(["yard"], 2)
    assert index.total(0.0).people == 2  # what was read once is known
    assert index.total(0.0).hours == pytest.approx(2 * 10 / 3600)


def test_a_recording_that_cannot_be_read_now_is_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = record_clips(tmp_path, "yard", [clip()] * 3)
    index = RecordingIndex(tmp_path / "poses")
    with unreadable(paths[0]):
        assert not index.update(["yard"], 2)
        assert index.update(["yard"], 2)  # does not try the same file for ever
        assert index.total(0.0).people == 2
    assert caplog.text.count("left out of learning for now") == 1
    assert paths[0].name in caplog.text
    assert index.update(["yard"], 2)
    assert index.total(0.0).people == 2  # not tried at every look
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + AGAIN_S + 1)
    assert index.update(["yard"], 2)
    assert index.total(0.0).people == 3


def several(n: int, camera: str = "yard", every_s: float = 120.0) -> list[Recording]:
    names = [name_of(camera, BEGIN + k * every_s) for k in range(n)]
    return [
        one for name in names if (one := Recording.from_path(Path(f"{name}.parquet"))) is not None
    ]


def test_parts_of_the_footage_have_as_many_people_and_keep_blocks_of_time_together() -> None:
    few = [(one, clip()) for one in several(7)]
    assert [*parts_of(few).values()] == [0, 1, 2, 3, 0, 1, 2]
    crowd = replace(clip(), tracks=tuple(replace(clip().tracks[0], id=k) for k in range(9)))
    assert [*parts_of([(few[0][0], crowd), *few[1:]]).values()] == [0, 1, 2, 3, 1, 2, 3]
    many = parts_of([(one, clip()) for one in several(300)])
    assert [*many.values()][:12] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]  # ten minutes together


def test_of_the_papers_energy_a_third_of_the_time_is_held_out() -> None:
    many = several(300)
    fitted = not_held_out(many)
    assert [many.index(one) for one in fitted][8:12] == [8, 9, 15, 16]
    assert len(fitted) == 200
    both = sorted([*several(6), *several(6, "door")], key=lambda one: one.begin)
    held = {*both} - {*not_held_out(both)}
    assert {one.camera for one in held} == {"yard", "door"}


def test_too_much_footage_is_thinned_over_all_of_its_days() -> None:
    week = several(5000)
    kept = thinned(week, 48.0)
    assert 0.2 * len(week) < len(kept) <= 48 * 30
    assert kept[0] == week[0]
    assert week[-1].begin - kept[-1].begin < 3600
    assert thinned(week[:100], 48.0) == week[:100]


METHODS = ("usual", "step")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of a second."""
    small = replace(Config.footage(), fps=25.0, width=32, sigma_width=16, max_steps=40, K=24)
    plain = rounds.config_for

    def config_for(settings: SiteSettings) -> Config | tuple[Config, ...]:
        return plain(settings) if settings.learning.method == "usual" else small

    monkeypatch.setattr(rounds, "config_for", config_for)
    monkeypatch.setattr(usual, "CENTROIDS", 160)


def site_of(directory: Path, method: str = "usual", more: str = "") -> SiteSettings:
    """A site with one camera that learns, and has run."""
    path = directory / "site.toml"
    path.write_text(
        '[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 25.0\n'
        f'{more}[learning]\nkeep = 1\nmethod = "{method}"\n'
    )
    settings = load(path)
    Store(settings.data / FILE_NAME).close()
    return settings


@pytest.fixture(params=METHODS)
def site(tmp_path: Path, request: pytest.FixtureRequest) -> SiteSettings:
    """A site that learns by either method."""
    return site_of(tmp_path, request.param)


@pytest.fixture(scope="module")
def walks() -> list[Clip]:
    """Normal walks of a few seconds each."""
    return [clip for clip, _ in make_clips(18, seed=3, seconds=4.0, anomalies=False)]


@pytest.fixture
def fitted(walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch) -> None:
    """One detector for all fits of a test."""
    once = Detector.fit(walks, Config.usual(25.0))
    monkeypatch.setattr(Detector, "fit", lambda *_, **__: once)


def alert(settings: SiteSettings, clip: Clip, begin: float, mark: str | None) -> str:
    """A stored event with its poses, judged or not."""
    store = Store(settings.data / FILE_NAME)
    one = replace(
        record("yard", round(begin)), start_time=begin, tracks=tuple(t.id for t in clip.tracks)
    )
    store.change("new", one)
    store.change("end", one.ended("calm", begin + 4))
    store.put_poses(one.id, tracks.to_bytes(clip))
    if mark is not None:
        store.mark(one.id, mark, time.time())  # type: ignore[arg-type]
    store.close()
    return one.id


def test_a_site_fits_on_its_recordings_and_counts_what_the_model_has_not_seen(
    site: SiteSettings, walks: Sequence[Clip]
) -> None:
    paths = record_clips(site.data, "yard", walks, BEGIN)
    (fresh,) = record_clips(site.data, "yard", walks[:1], BEGIN - 8 * 86400)
    learned = rounds.fit(site, now=BEGIN + 7200)
    versions = Versions(site.data)
    assert versions.current == learned
    assert (learned.method, learned.cameras) == (site.learning.method, ("yard",))
    assert learned.footage.people == sum(amount_of(one).people for one in [*walks, walks[0]])
    assert learned.changed.startswith("Learned from ")
    made = read_calibration(calibration_path(versions.model))
    assert made.model_sha256 == Detector.load(versions.model).sha256
    assert made.cameras["yard"].value > 0
    # by the usual motion of the other parts, or on a third; never on footage of last week
    unseen = [
        one for one in paths if site.learning.method == "usual" or one.stem not in learned.folds
    ]
    assert len(learned.folds) == (19 if site.learning.method == "usual" else 13)
    assert fresh.stem in learned.folds
    assert sum(one.watched_s for one in made.ledgers["yard"]) == pytest.approx(4.0 * len(unseen))


def test_footage_is_scored_without_the_part_that_it_is_in(
    tmp_path: Path, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path)
    record_clips(site.data, "yard", walks, BEGIN)
    honest = rounds.fit(site, now=BEGIN + 7200)
    peaks = read_calibration(calibration_path(Versions(site.data).model)).ledgers["yard"]
    monkeypatch.setattr(Detector, "without", lambda self, fold: self)
    rounds.fit(site, now=BEGIN + 7300)
    seen = read_calibration(calibration_path(Versions(site.data).model)).ledgers["yard"]
    assert {*honest.folds.values()} == {0, 1, 2, 3}
    assert sum(np.sum(one.quiet) for one in seen) < sum(np.sum(one.quiet) for one in peaks)


def test_time_watched_by_the_clock_counts_and_not_that_of_the_footage(
    tmp_path: Path, walks: Sequence[Clip]
) -> None:
    site = site_of(tmp_path)
    record_clips(site.data, "yard", walks, BEGIN)
    store = Store(site.data / FILE_NAME, clock=lambda: BEGIN)
    store.add_watched({("yard", int(BEGIN // 3600) - k): 3600.0 for k in range(48)})
    store.close()
    rounds.fit(site, now=BEGIN + 7200)
    made = read_calibration(calibration_path(Versions(site.data).model))
    assert made.cameras["yard"].hours == pytest.approx(48.0, abs=0.01)


def test_right_and_unjudged_alerts_are_not_learned_from(
    site: SiteSettings, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(site.data, "yard", walks, BEGIN)
    fitted: list[list[str]] = []
    plain = Detector.fit

    def fit(clips: Sequence[Clip], *more: object, **options: object) -> Detector:
        fitted.append([clip.name for clip in clips])
        return plain(clips, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Detector, "fit", fit)
    everything = len(rounds.fit(site, now=BEGIN + 7200).folds)
    assert len(fitted[-1]) == everything
    alert(site, walks[0], BEGIN, None)  # covers the first recording
    right = alert(site, walks[1], BEGIN + 120, "right")  # and the second
    alert(site, walks[3], BEGIN + 360, "normal")
    learned = rounds.fit(site, now=BEGIN + 7210)
    there = [one.path.stem for one in find_recordings(site.data / RECORDINGS)]
    assert not {*fitted[-1]} & {*there[:2]}
    assert there[3] in fitted[-1]
    assert right not in fitted[-1]
    assert "0 of 1 alerts marked as normal would come again" in learned.changed
    assert "of 1 alerts marked as right would come again" in learned.changed
    # the unjudged one counts as an alert of the budget, the right one not at all
    made = read_calibration(calibration_path(Versions(site.data).model))
    if site.learning.method == "usual":
        assert sum(len(one.alerts) for one in made.ledgers["yard"]) == 2


def test_a_fit_of_usual_motion_needs_no_torch(tmp_path: Path, walks: Sequence[Clip]) -> None:
    site = site_of(tmp_path)
    record_clips(site.data, "yard", walks, time.time() - 7200)
    code = "import sys; from stepvad.site.learning import rounds; rounds.main(); "
    check = "sys.exit('torch' in sys.modules)"
    command = [sys.executable, "-c", code + check, str(tmp_path / "site.toml")]
    subprocess.run(command, check=True, timeout=120)
    assert Versions(site.data).current is not None


@pytest.mark.usefixtures("fitted")
def test_older_models_are_kept_to_go_back_to_and_no_more_than_asked(
    tmp_path: Path, walks: Sequence[Clip]
) -> None:
    site = site_of(tmp_path)
    record_clips(site.data, "yard", walks)
    names = [rounds.fit(site, now=BEGIN + 9000 + 100 * n).name for n in range(3)]
    versions = Versions(site.data)
    assert [one.name for one in versions.all()] == names[:0:-1]  # keep = 1, and the current one
    versions.use(names[1])
    assert [one.name for one in facts(versions) if one.is_current] == [names[1]]
    assert versions.model.resolve().parent.name == names[1]
    with pytest.raises(ConfigError, match=r"expected one of .* got 'nobody'"):
        versions.use("nobody")
    with pytest.raises(ConfigError):
        versions.use("../../etc")


@pytest.mark.usefixtures("fitted")
def test_an_interrupted_round_leaves_the_model_as_it_was(
    tmp_path: Path, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path)
    record_clips(site.data, "yard", walks)
    first = rounds.fit(site, now=BEGIN + 9000)

    def fail(*_: object) -> str:
        raise RuntimeError("killed")

    monkeypatch.setattr(rounds, "changes", fail)
    with pytest.raises(RuntimeError, match="killed"):
        rounds.fit(site, now=BEGIN + 9010)
    versions = Versions(site.data)
    assert versions.current == first
    versions.new_directory(BEGIN + 20).rmdir()
    assert [path.name for path in sorted(versions.directory.iterdir())] == [first.name, "current"]


def test_without_footage_nothing_is_learned(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected recorded poses to learn from, got none"):
        rounds.fit(site_of(tmp_path))


def test_damaged_poses_are_left_out_of_a_round(
    tmp_path: Path, walks: Sequence[Clip], caplog: pytest.LogCaptureFixture
) -> None:
    site = site_of(tmp_path)
    paths = record_clips(site.data, "yard", walks, BEGIN)
    damaged = alert(site, walks[1], BEGIN + 600, "normal")
    store = Store(site.data / FILE_NAME)
    store.put_poses(damaged, b"torn")
    store.close()
    paths[0].write_bytes(b"torn")
    learned = rounds.fit(site, now=BEGIN + 7200)
    assert paths[0].stem not in learned.folds
    for name in (paths[0].name, damaged):
        assert f"{name}: left out, its poses cannot be read" in caplog.text


def test_facts_that_cannot_be_read_are_no_model(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version": 9}', '{"version": 1}'):
        (tmp_path / "learned.json").write_text(text)
        with pytest.raises(DataError, match="expected a learned model, got"):
            Learned.load(tmp_path)
    assert Versions(tmp_path / "data").current is None


def test_a_model_whose_facts_cannot_be_read_now_is_still_there(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    made = versions.new_directory(BEGIN)
    Learned(
        name=made.stem, made=BEGIN, method="usual", footage=Amount(1.0, 2), cameras=(), until=0.0
    ).save(made)
    path = versions.finish(made, keep=1) / "learned.json"
    with unreadable(path):
        with pytest.raises(DataError, match="expected a learned model, got"):
            _ = versions.current
        assert facts(versions) == []
    assert versions.current is not None
    path.write_text('{"version": 9}')
    with pytest.raises(DataError, match="expected version 1, got 9"):
        _ = versions.current
    path.write_text("{")
    assert versions.current is None
