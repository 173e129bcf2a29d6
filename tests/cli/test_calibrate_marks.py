"""An operator who says that alerts were normal, from the command line."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad import Detector, read_clip
from stepvad.events.calibration import calibration_path, read_calibration
from stepvad.model import modelfile
from stepvad.site.recorder import packed
from stepvad.site.store.events import Store
from tests.cli.conftest import QUICK
from tests.conftest import Command
from tests.site.records import record
from tests.site.sites import one_person


@pytest.fixture
def own(stepvad: Command, model: Path, people: Path, tmp_path: Path) -> Path:
    """A model with a calibration that lets many events through."""
    path = tmp_path / "own.safetensors"
    path.write_bytes(model.read_bytes())
    words = ("--fps", "25", "--alerts-per-hour", "600", "--confidence", "0.5")
    assert stepvad("calibrate", path, people / "pose" / "train", *words).code == 0
    return path


@pytest.fixture
def events(stepvad: Command, own: Path, people: Path, tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    run = stepvad("score", own, people / "pose" / "test", "--fps", "25", "--events", path)
    assert run.code == 0, run.err
    return path


def ids(events: Path) -> list[str]:
    return [str(json.loads(line)["id"]) for line in events.read_text().splitlines()]


def test_a_marked_event_joins_the_normal_set_and_raises_the_threshold(
    stepvad: Command, own: Path, events: Path
) -> None:
    before = read_calibration(calibration_path(own)).threshold.value
    names = ids(events)
    marks = [word for name in names for word in ("--normal", name)]
    run = stepvad("calibrate", own, "--marks", events, *marks)
    assert run.code == 0, run.err
    after = read_calibration(calibration_path(own))
    assert f"events marked as normal: {len(names)}" in run.out
    assert f"threshold {before:.2f} -> {after.threshold.value:.2f}" in run.out
    assert after.threshold.value > before
    assert {*after.marked} == {*names}
    assert after.looks
    kept = own.with_suffix(".normal")
    assert {path.stem for path in kept.iterdir()} == {*names}
    again = stepvad("calibrate", own, "--marks", events, "--not-normal", names[0])
    assert again.code == 0, again.err
    assert {*read_calibration(calibration_path(own)).marked} == {*names[1:]}
    assert {path.stem for path in kept.iterdir()} == {*names[1:]}


def test_a_model_is_fitted_anew_with_what_was_marked(
    stepvad: Command, own: Path, events: Path, people: Path, tmp_path: Path
) -> None:
    better = tmp_path / "better.safetensors"
    fit = ("fit", people / "pose" / "train", "-o", better, "--marked", own)
    assert "expected poses of events marked as normal" in stepvad(*fit).err
    mark = ("calibrate", own, "--marks", events, "--normal", ids(events)[0])
    assert stepvad(*mark).code == 0
    run = stepvad(*fit, "--seed", "4")
    assert run.code == 0, run.err
    old, new = Detector.load(own), Detector.load(better)
    assert new.config == replace(old.config, seed=4)
    assert 1.01 < new.origin.windows / old.origin.windows < 1.2


def test_what_cannot_be_marked_is_said(
    stepvad: Command, own: Path, events: Path, people: Path, tmp_path: Path
) -> None:
    mark = ("calibrate", own, "--marks", events)
    run = stepvad(*mark, "--normal", "nobody")
    assert run.code == 1
    assert "expected an event nobody, got others" in run.err
    name = ids(events)[0]
    (tmp_path / "others").mkdir()
    some = next((people / "pose" / "train").iterdir())
    (tmp_path / "others" / "other.json").write_bytes(some.read_bytes())
    run = stepvad(*mark, tmp_path / "others", "--normal", name)
    assert run.code == 1
    assert f"{name}: expected its poses in" in run.err
    other = tmp_path / "other.safetensors"
    fitted = stepvad("fit", people / "pose" / "train", "-o", other, *QUICK, "--seed", "9")
    assert fitted.code == 0
    run = stepvad("calibrate", other, "--marks", events, "--normal", name)
    assert "expected events of this model, got those of another" in run.err


def test_events_need_a_calibration(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    run = stepvad("score", model, people / "pose" / "test", "--events", tmp_path / "e.jsonl")
    assert run.code == 1
    assert "expected a calibration next to the model" in run.err


@pytest.fixture
def site(own: Path, tmp_path: Path) -> Path:
    """The data of a site that found events with the model, each with its poses."""
    sha256 = modelfile.sha256(own)
    with closing(Store(tmp_path / "site-data" / "events.db")) as store:
        for number in range(9):
            one = record("yard", number, top_score=50.0 + number, tracks=(1,), model_sha256=sha256)
            store.change("new", one)
            store.change("end", one.ended("calm", one.start_time + 5))
            store.put_poses(one.id, packed(one_person(6.0)))
        other = record("yard", 9, model_sha256="f" * 64)
        store.change("new", other)
        store.mark(other.id, "normal", 1.0)
    return tmp_path / "site-data"


def test_marks_of_a_site_raise_the_threshold_and_keep_their_poses(
    stepvad: Command, own: Path, site: Path
) -> None:
    before = read_calibration(calibration_path(own)).threshold.value
    ids = [record("yard", number).id for number in range(8)]
    assert stepvad("events", "mark", ids[0], "-d", site).code == 0
    with closing(Store(site / "events.db")) as store:
        for id in ids[1:]:
            store.mark(id, "normal", 1.0)
        with store._database.write() as connection:
            connection.execute("DELETE FROM poses WHERE id <> ?", (ids[0],))
    run = stepvad("calibrate", own, "--marks", site)
    assert run.code == 0, run.err
    assert "events marked as normal: 8" in run.out
    assert "of other models, left alone: 1" in run.err
    assert "too old to be kept: 7" in run.err
    after = read_calibration(calibration_path(own))
    assert after.threshold.value > before
    assert {name: alert.peak for name, alert in after.marked.items()} == {
        id: 50.0 + number for number, id in enumerate(ids)
    }
    assert {alert.camera for alert in after.marked.values()} == {"yard"}
    (kept,) = own.with_suffix(".normal").iterdir()
    assert kept.stem == ids[0]
    assert read_clip(kept).n_poses == one_person(6.0).n_poses
    assert stepvad("events", "mark", ids[0], "--not-normal", "-d", site).code == 0
    assert stepvad("calibrate", own, "--marks", site).code == 0
    assert {*read_calibration(calibration_path(own)).marked} == {*ids[1:]}, (
        "a mark that was taken back"
    )
    assert not [*own.with_suffix(".normal").iterdir()]


@pytest.mark.parametrize(
    "words",
    [
        ("--marks", "site-data", "--normal", "a"),
        ("--marks", "site-data", "--fleet", "fleet.toml"),
        ("--marks", "site-data", "--alerts-per-hour", "1"),
        ("--normal", "a"),
    ],
)
def test_marks_come_from_one_place_and_need_no_rate(
    stepvad: Command, own: Path, words: tuple[str, ...]
) -> None:
    run = stepvad("calibrate", own, *words)
    assert run.code == 1
    assert "expected --marks or --fleet, and --normal with events of `score` alone" in run.err


def test_without_marks_poses_and_a_rate_are_needed(stepvad: Command, own: Path) -> None:
    run = stepvad("calibrate", own, "--alerts-per-hour", "1")
    assert run.code == 1
    assert "expected normal poses and --alerts-per-hour" in run.err
