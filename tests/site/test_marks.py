"""Marks on events move thresholds, wherever they come from."""

from __future__ import annotations

import json
import shutil
import time
from collections import deque
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.events.calibration import calibration_path
from stepvad.events.marks import Marked, normal_set_path
from stepvad.events.record import MarkMessage
from stepvad.events.rules import Rules
from stepvad.formats import read_clip, tracks
from stepvad.site import demo
from stepvad.site.accounts import Accounts
from stepvad.site.marks import (
    MarkFollower,
    kept_beside,
    mark_stored,
    read_marks,
    write_marks,
)
from stepvad.site.models import Limit, Models, promise_words
from stepvad.site.settings.file import load
from stepvad.site.store.events import Store
from tests.processes import unreadable
from tests.site.records import record
from tests.site.sites import NO_PAGE, camera, one_person, write_site

CAMERA = '[[cameras]]\nname = "door"\nurl = "demo:"\n'


def taken(follower: MarkFollower) -> list[Limit]:
    """The limits on their way to scoring, which takes them."""
    limits = [*follower._limits]
    follower._limits.clear()
    return limits


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The demo's model in a directory of its own."""
    own = tmp_path / "models" / "model.safetensors"
    own.parent.mkdir()
    shutil.copy(demo.MODEL, own)
    shutil.copy(calibration_path(demo.MODEL), calibration_path(own))
    return own


@pytest.fixture
def follower(tmp_path: Path, model: Path, store: Store) -> MarkFollower:
    path = write_site(tmp_path, CAMERA, more=NO_PAGE)
    path.write_text(path.read_text().replace(str(demo.MODEL), str(model)))
    models = Models()
    models.load(model)
    return MarkFollower(load(path), store, models, deque())


def alert(store: Store, number: int, peak: float, sha256: str) -> str:
    """A stored event of the camera, with poses."""
    one = replace(
        record("door", number), top_score=peak, score=peak, model_sha256=sha256, tracks=(1,)
    )
    store.change("new", one)
    store.change("end", one.ended("calm", one.start_time + 3))
    store.put_poses(one.id, tracks.to_bytes(one_person(3.0)))
    return one.id


def test_a_mark_raises_the_threshold_and_taking_it_back_lowers_it(
    follower: MarkFollower, store: Store, model: Path
) -> None:
    loaded = follower._models.load(model)
    before, files = loaded.limit(camera()), model.parent.stat().st_mtime_ns
    follower.follow()
    assert taken(follower) == []
    ids = [alert(store, n, 3 * before.rules.threshold, loaded.sha256) for n in range(1, 31)]
    for id in ids:
        store.mark(id, "normal", time.time())
    follower.follow()
    (limit,) = taken(follower)
    assert limit.rules.threshold > before.rules.threshold
    kept = kept_beside(follower._settings.data, loaded.sha256)
    assert len(read_clip(normal_set_path(kept) / f"{ids[0]}.parquet").tracks) == 1
    follower.follow()
    assert taken(follower) == []  # nothing new was said
    for id in ids:
        store.mark(id, "right", time.time())
    follower.follow()
    (back,) = taken(follower)
    assert back.rules.threshold == before.rules.threshold
    assert not [*normal_set_path(kept).iterdir()]
    assert model.parent.stat().st_mtime_ns == files  # nothing was written beside the model


def test_marks_on_events_with_damaged_poses_are_applied_too(
    follower: MarkFollower, store: Store, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = follower._models.load(model)
    ids = [alert(store, n, 50.0, loaded.sha256) for n in range(1, 31)]
    for id in ids:
        store.mark(id, "normal", time.time())
    store.put_poses(ids[0], b"torn")
    follower.follow()
    (limit,) = taken(follower)
    assert limit.rules.threshold > loaded.limit(camera()).rules.threshold
    kept = normal_set_path(kept_beside(follower._settings.data, loaded.sha256))
    assert len([*kept.iterdir()]) == 29
    assert f"event {ids[0]}: left out" in caplog.text


def test_marks_outlive_the_events_that_retention_deletes(
    follower: MarkFollower, store: Store, model: Path
) -> None:
    loaded = follower._models.load(model)
    for n in range(1, 31):
        id = alert(store, n, 50.0, loaded.sha256)
        store.mark(id, "normal", time.time())
    follower.follow()
    (raised,) = taken(follower)
    kept = normal_set_path(kept_beside(follower._settings.data, loaded.sha256))
    assert len([*kept.iterdir()]) == 30
    store.delete(camera="door")
    follower.follow()
    assert not [*kept.iterdir()]  # poses go with their event
    taken(follower)
    models = Models()
    models.load(model)
    again = MarkFollower(follower._settings, store, models, deque())  # after a restart
    again.follow()
    (limit,) = taken(again)
    assert limit.rules.threshold == raised.rules.threshold


def test_poses_that_an_earlier_model_found_go_with_their_event(
    follower: MarkFollower, store: Store, model: Path
) -> None:
    loaded = follower._models.load(model)
    store.mark(alert(store, 1, 50.0, loaded.sha256), "normal", time.time())
    follower.follow()
    kept = normal_set_path(kept_beside(follower._settings.data, loaded.sha256))
    earlier = normal_set_path(kept_beside(follower._settings.data, "f" * 64))
    shutil.copytree(kept, earlier)  # as if the site had learned a new model since
    store.mark(alert(store, 2, 50.0, loaded.sha256), "normal", time.time())
    follower.follow()
    assert len([*earlier.iterdir()]) == 1  # its event is stored
    store.delete(camera="door")
    follower.follow()
    assert not [*earlier.iterdir()]


def test_marks_on_events_of_another_model_change_nothing(
    follower: MarkFollower, store: Store
) -> None:
    store.mark(alert(store, 1, 50.0, "f" * 64), "normal", time.time())
    follower.follow()
    assert taken(follower) == []


def test_a_file_of_marks_that_is_damaged_is_no_end(tmp_path: Path) -> None:
    path = tmp_path / "marks.json"
    assert read_marks(path) == {}
    for text in ("{", "[]", '{"normal": {"a": {"camera": "x"}}}'):
        path.write_text(text)
        assert read_marks(path) == {}
        assert not path.exists()  # it is set aside
    path.write_text(json.dumps({"version": 1, "normal": {"a": {"camera": "x", "peak": 2}}}))
    assert read_marks(path)["a"].peak == 2.0


def kept_marks(follower: MarkFollower, store: Store, model: Path) -> Path:
    """The file of 50 marks on events that are deleted, and one mark more in the store."""
    loaded = follower._models.load(model)
    path = kept_beside(follower._settings.data, loaded.sha256)
    older = {f"e{n}": Marked(camera="door", peak=50.0) for n in range(50)}
    write_marks(older, path)
    store.mark(alert(store, 1, 50.0, loaded.sha256), "normal", time.time())
    return path


@pytest.mark.parametrize("reloads", [False, True])
def test_marks_that_cannot_be_read_now_are_applied_later(
    follower: MarkFollower, store: Store, model: Path, *, reloads: bool
) -> None:
    path = kept_marks(follower, store, model)
    with unreadable(path):
        if reloads:
            follower.follow()
            follower.reload(model)
        follower.follow()
    follower.follow()
    assert len(read_marks(path)) == 51
    calibration = follower._models.load(model).calibration
    assert calibration is not None
    assert len(calibration.marked) == 51
    assert taken(follower)


def test_marks_of_a_newer_version_are_kept_and_those_of_the_store_applied(
    follower: MarkFollower, store: Store, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept_marks(follower, store, model)
    path.write_text('{"version": 2}')
    follower.follow()
    follower.follow()
    assert path.read_text() == '{"version": 2}'
    assert caplog.text.count("expected version 1, got 2") == 1
    calibration = follower._models.load(model).calibration
    assert calibration is not None
    assert len(calibration.marked) == 1


def test_a_mark_from_elsewhere_is_audited_and_one_on_an_unknown_event_ignored(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.change("new", record())
    known = record().id
    mark_stored(store, MarkMessage(known, "normal"), "mqtt", tmp_path / "accounts.db")
    mark_stored(store, MarkMessage(known, None), "mqtt", tmp_path / "accounts.db")
    mark_stored(store, MarkMessage("nobody", None), "mqtt", tmp_path / "accounts.db")
    assert "a mark from mqtt is ignored: event nobody" in caplog.text
    with closing(Accounts(tmp_path / "accounts.db")) as accounts:
        found = [(one.user, one.action, one.subject) for one in accounts.audit.entries()]
    words = [f"{known}: taken back", f"{known}: normal"]
    assert found == [("mqtt", "marked event", one) for one in words]


def test_the_words_of_a_limit(model: Path) -> None:
    loaded = Models().load(model)
    by_hand = loaded.limit(camera(threshold=4.0))
    assert (by_hand.rules.threshold, by_hand.words) == (4.0, "set by hand in the settings")
    assert isinstance(by_hand.rules, Rules)
    assert loaded.calibration is not None
    promised = loaded.calibration.threshold
    daily, hourly = (replace(promised, alerts_per_hour=rate) for rate in (1 / 24, 2.0))
    assert promise_words(daily).startswith("at most 1 false alert a day promised, 95 % sure, from")
    assert promise_words(hourly).startswith("at most 2 false alerts an hour promised, 95 % sure")
    guess = replace(promised, how="provisional", hours=0.1)
    assert promise_words(guess) == "provisional: learned from 6 min, no promise yet"
