"""What a site learns from, and rounds of learning on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.calibration import calibration_path, read_calibration
from stepvad.events.record import Review
from stepvad.formats import tracks, write_clip
from stepvad.poses import Clip, Track
from stepvad.site.learning import rounds
from stepvad.site.learning.rounds import (
    AGAIN_S,
    RecordingIndex,
    TimeSpan,
    amount_of,
    clip_without,
    held_out,
    is_well_seen,
    newest,
    read_without,
    spans_of,
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


def test_only_the_spans_of_its_camera_are_left_out(tmp_path: Path) -> None:
    (path,) = record_clips(tmp_path, "yard", [clip()])
    one = Recording.from_path(path)
    assert one is not None
    avoid = [TimeSpan("door", BEGIN, BEGIN + 5), TimeSpan("yard", BEGIN + 1, BEGIN + 2)]
    assert read_without(one, avoid).n_poses == 100 - 11


def test_right_alerts_are_never_learned_and_unjudged_ones_not_fitted() -> None:
    events = [record("yard", n) for n in range(4)]
    reviews = {
        events[0].id: Review("right", 1.0),
        events[1].id: Review("normal", 1.0),
        events[2].id: Review(None, 1.0),
    }
    spans = spans_of(events, reviews, unjudged=False)
    assert [span.first for span in spans] == [events[0].start_time - 2.0]
    assert len(spans_of(events, reviews, unjudged=True)) == 3
    assert spans[0].last == float("inf")  # it goes on


def test_footage_of_an_overloaded_camera_is_no_footage(tmp_path: Path) -> None:
    assert is_well_seen(clip())
    assert not is_well_seen(clip(every=5))
    assert not is_well_seen(Clip("none", 10.0, 10, ()))
    record_clips(tmp_path, "yard", [clip(), clip(every=5)])
    index = RecordingIndex(tmp_path / "poses")
    assert index.update(10)
    assert (len(index), index.amount()) == (1, amount_of(clip()))


def test_files_are_counted_some_at_a_time_and_deleted_ones_forgotten(tmp_path: Path) -> None:
    paths = record_clips(tmp_path, "yard", [clip()] * 3)
    index = RecordingIndex(tmp_path / "poses")
    assert not index.update(2)
    assert index.update(2)
    assert index.amount().poses == 300
    assert index.amount(since=BEGIN + 1).poses == 200
    paths[0].unlink()
    paths[1].write_bytes(b"torn")
    assert index.update(2)
    assert index.amount().poses == 200  # what was read once is known
    assert index.amount().hours == pytest.approx(2 * 10 / 3600)


def test_a_recording_that_cannot_be_read_now_is_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = record_clips(tmp_path, "yard", [clip()] * 3)
    index = RecordingIndex(tmp_path / "poses")
    with unreadable(paths[0]):
        assert not index.update(2)
        assert index.update(2)  # does not try the same file for ever
        assert index.amount().poses == 200
    assert caplog.text.count("left out of learning for now") == 1
    assert paths[0].name in caplog.text
    assert index.update(2)
    assert index.amount().poses == 200  # not tried at every look
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + AGAIN_S + 1)
    assert index.update(2)
    assert index.amount().poses == 300


def several(n: int, camera: str = "yard", every_s: float = 120.0) -> list[Recording]:
    names = [name_of(camera, BEGIN + k * every_s) for k in range(n)]
    return [
        one for name in names if (one := Recording.from_path(Path(f"{name}.parquet"))) is not None
    ]


def test_a_third_of_the_time_is_held_out_in_blocks() -> None:
    few, many = several(7), several(300)
    assert [few.index(one) for one in held_out(few)] == [2, 5]
    held = [many.index(one) for one in held_out(many)]
    assert held[:10] == [10, 11, 12, 13, 14, 25, 26, 27, 28, 29]  # ten minutes together
    assert len(held) == 100
    both = sorted([*several(6), *several(6, "door")], key=lambda one: one.begin)
    assert {one.camera for one in held_out(both)} == {"yard", "door"}


def test_too_much_footage_is_thinned_over_all_of_its_days() -> None:
    week = several(5000)
    kept = newest(week, 48.0)
    assert 0.2 * len(week) < len(kept) <= 48 * 30
    assert kept[0] == week[0]
    assert week[-1].begin - kept[-1].begin < 3600
    assert newest(week[:100], 48.0) == week[:100]


SITE = """
[[cameras]]
name = "yard"
url = "demo:"
rate = 25.0
[learning]
keep = 1
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of seconds."""
    small = replace(Config.footage(), fps=25.0, width=32, sigma_width=16, max_steps=40, K=24)
    monkeypatch.setattr(rounds, "config_for", lambda settings, poses: small)


@pytest.fixture
def site(tmp_path: Path) -> SiteSettings:
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    settings = load(path)
    Store(settings.data / FILE_NAME).close()
    return settings


@pytest.fixture(scope="module")
def walks() -> list[Clip]:
    """Normal walks of a few seconds each."""
    return [clip for clip, _ in make_clips(9, seed=3, seconds=6.0, anomalies=False)]


def alert(settings: SiteSettings, clip: Clip, begin: float, mark: str | None) -> str:
    """A stored event with its poses, judged or not."""
    store = Store(settings.data / FILE_NAME)
    one = replace(
        record("yard", round(begin)), start_time=begin, tracks=tuple(t.id for t in clip.tracks)
    )
    store.change("new", one)
    store.change("end", one.ended("calm", begin + 6))
    store.put_poses(one.id, tracks.to_bytes(clip))
    if mark is not None:
        store.mark(one.id, mark, time.time())  # type: ignore[arg-type]
    store.close()
    return one.id


def test_a_site_fits_and_calibrates_on_its_recordings(
    site: SiteSettings, walks: Sequence[Clip]
) -> None:
    record_clips(site.data, "yard", walks[:6])
    learned = rounds.fit(site, now=BEGIN)
    versions = Versions(site.data)
    assert versions.current == learned
    assert (learned.is_provisional, learned.marks) == (True, 0)
    assert len(learned.held_out) == 2
    assert learned.fitted.poses > learned.measured.poses > 0
    assert learned.changed.startswith("Learned from ")
    made = read_calibration(calibration_path(versions.model))
    assert made.model_sha256 == Detector.load(versions.model).sha256
    assert made.threshold.value == learned.threshold
    assert [*made.counted] == ["yard"]

    record_clips(site.data, "yard", walks[6:], BEGIN + 7200)
    after = rounds.calibrate(site)
    assert after.measured.poses > learned.measured.poses
    assert (after.name, after.fitted, after.until) == (learned.name, learned.fitted, learned.until)
    again = read_calibration(calibration_path(versions.model))
    assert again.threshold.hours > made.threshold.hours
    assert again.model_sha256 == made.model_sha256


def test_nobody_learns_from_alerts_unless_they_were_normal(
    site: SiteSettings, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(site.data, "yard", walks[:6])
    fitted: list[list[str]] = []
    plain = Detector.fit

    def fit(clips: Sequence[Clip], *more: object, **options: object) -> Detector:
        fitted.append([clip.name for clip in clips])
        return plain(clips, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Detector, "fit", fit)
    rounds.fit(site, now=BEGIN)
    everything = len(fitted[-1])
    alert(site, walks[7], BEGIN, None)  # covers the first recording
    right = alert(site, walks[8], BEGIN + 120, "right")  # and the second
    normal = alert(site, walks[6], BEGIN + 9000, "normal")
    learned = rounds.fit(site, now=BEGIN + 10)
    names = fitted[-1]
    assert sum(name.startswith("yard-") for name in names) == everything - 2
    assert any(name.startswith(normal) for name in names)
    assert not any(name.startswith(right) for name in names)
    assert not {*names} & {*learned.held_out}  # its limit is set on what it has not seen
    assert learned.marks == 1
    assert "of 1 alerts marked as normal would not come again" in learned.changed
    assert "of 1 right alerts would come again" in learned.changed


def test_normal_alerts_are_learned_from_after_their_poses_left_the_store(
    site: SiteSettings, walks: Sequence[Clip]
) -> None:
    record_clips(site.data, "yard", walks[:6])
    id = alert(site, walks[6], BEGIN + 9000, "normal")
    kept = site.data / "marks" / "0123.normal"
    kept.mkdir(parents=True)
    write_clip(replace(walks[6], name=id), kept / f"{id}.parquet")
    with (
        closing(Store(site.data / FILE_NAME)) as store,
        store._database.transaction() as connection,
    ):
        connection.execute("DELETE FROM poses")
    assert rounds.fit(site, now=BEGIN).marks == 1


def test_older_models_are_kept_to_go_back_to_and_no_more_than_asked(
    site: SiteSettings, walks: Sequence[Clip]
) -> None:
    record_clips(site.data, "yard", walks[:6])
    names = [rounds.fit(site, now=BEGIN + 100 * n).name for n in range(3)]
    versions = Versions(site.data)
    assert [one.name for one in versions.all()] == names[:0:-1]  # keep = 1, and the current one
    versions.use(names[1])
    assert [one.name for one in facts(versions) if one.is_current] == [names[1]]
    assert versions.model.resolve().parent.name == names[1]
    with pytest.raises(ConfigError, match=r"expected one of .* got 'nobody'"):
        versions.use("nobody")
    with pytest.raises(ConfigError):
        versions.use("../../etc")


def test_an_interrupted_round_leaves_the_model_as_it_was(
    site: SiteSettings, walks: Sequence[Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_clips(site.data, "yard", walks[:6])
    first = rounds.fit(site, now=BEGIN)

    def fail(*_: object) -> str:
        raise RuntimeError("killed")

    monkeypatch.setattr(rounds, "changes", fail)
    with pytest.raises(RuntimeError, match="killed"):
        rounds.fit(site, now=BEGIN + 10)
    versions = Versions(site.data)
    assert versions.current == first
    monkeypatch.undo()
    versions.new_directory(BEGIN + 20).rmdir()
    assert [path.name for path in sorted(versions.directory.iterdir())] == [first.name, "current"]


def test_without_footage_nothing_is_learned(site: SiteSettings, walks: Sequence[Clip]) -> None:
    with pytest.raises(DataError, match="expected recorded poses to learn from, got none"):
        rounds.fit(site)
    with pytest.raises(DataError, match="expected a learned model, got none"):
        rounds.calibrate(site)


def test_damaged_poses_are_left_out_of_a_round(
    site: SiteSettings, walks: Sequence[Clip], caplog: pytest.LogCaptureFixture
) -> None:
    paths = record_clips(site.data, "yard", walks, BEGIN)
    alert(site, walks[0], BEGIN, "normal")
    damaged = alert(site, walks[1], BEGIN + 600, "normal")
    with closing(Store(site.data / FILE_NAME)) as store:
        store.put_poses(damaged, b"torn")
    paths[0].write_bytes(b"torn")
    held = held_out(find_recordings(site.data / RECORDINGS))[-1].path
    held.write_bytes(b"torn")
    learned = rounds.fit(site)
    assert learned.marks == 1
    assert (learned.fitted + learned.measured).people < sum(len(one.tracks) for one in walks)
    for name in (paths[0].name, held.name, damaged):
        assert f"{name}: left out, its poses cannot be read" in caplog.text
    rounds.calibrate(site)


def test_facts_that_cannot_be_read_are_no_model(site: SiteSettings, tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version": 9}', '{"version": 1}'):
        (tmp_path / "learned.json").write_text(text)
        with pytest.raises(DataError, match="expected a learned model, got"):
            Learned.load(tmp_path)
    assert Versions(site.data).current is None


def test_a_model_whose_facts_cannot_be_read_now_is_still_there(site: SiteSettings) -> None:
    versions = Versions(site.data)
    made = versions.new_directory(BEGIN)
    amount = Amount(1.0, 2, 3)
    Learned(
        name=made.stem, made=BEGIN, fitted=amount, measured=amount, marks=0, threshold=1.0,
        words="", is_provisional=False, changed="",
    ).save(made)  # fmt: skip
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
