"""Small parts of a site: background tasks, logs and what --check tries."""

from __future__ import annotations

import json
import logging
import tempfile
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.errors import DataError
from stepvad.formats import read_clip, tracks
from stepvad.site import event_writer
from stepvad.site.event_writer import TaskQueue, background_stage
from stepvad.site.intake import demo
from stepvad.site.intake.playback import open_scene
from stepvad.site.models import Models
from stepvad.site.stages import Form, Supervisor, set_up
from stepvad.site.store.database import StoreError
from tests.site.sites import camera, one_person, pose_camera, write_site
from tests.video.servers import wait_until


def note(done: list[int], number: int) -> None:
    """A task that writes its number down; 2 fails."""
    done.append(1 // (number - 2) and number)


def test_tasks_are_done_in_order_and_one_that_fails_stops_no_other() -> None:
    tasks, done, supervisor = TaskQueue(), list[int](), Supervisor()
    stage = background_stage(tasks)
    supervisor.start(stage)
    for number in range(5):
        tasks.put("explanation", partial(note, done, number))
    assert supervisor.stop([stage], 5) == []
    assert len(done) == 4


class Flaky:
    """A task that fails some times before it works."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors, self.runs = errors, 0

    def __call__(self) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)


def test_a_task_that_the_system_fails_is_tried_again_and_one_that_is_wrong_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_writer, "FIRST_TASK_RETRY_S", 0.01)
    out_of_files = DataError("event.parquet: expected a place that can be written")
    out_of_files.__cause__ = OSError(24, "Too many open files")
    full = StoreError("events.db: full", fault="full", remedy="make room")
    passing, wrong = Flaky([out_of_files, full]), Flaky([ValueError("a bug")] * 5)
    tasks, supervisor = TaskQueue(), Supervisor()
    stage = background_stage(tasks)
    for task in (passing, wrong):
        tasks.put("recording", task)
    supervisor.start(stage)
    wait_until(lambda: wrong.runs > 0, 10)
    assert supervisor.stop([stage], 5) == []
    assert (passing.runs, wrong.runs) == (3, 1)
    assert "ValueError: a bug" in caplog.text


def test_too_many_tasks_drop_the_oldest_of_their_kind_and_never_a_recording() -> None:
    done = list[int]()
    tasks = TaskQueue({"recording": 3, "explanation": 2, "upkeep": 9})
    for number in (10, 11):
        tasks.put("recording", partial(done.append, number))
    for number in range(20, 25):
        tasks.put("explanation", partial(done.append, number))
    assert len(tasks) == 4
    assert tasks.dropped() == {"recording": 0, "explanation": 3, "upkeep": 0}
    while (task := tasks.take(0)) is not None:
        task[1]()
    assert done == [10, 11, 23, 24]


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs_hide_credentials_in_both_forms(
    form: Form, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger().handlers, logging.getLogger().level
    try:
        set_up(form)
        logging.getLogger("x").warning("no answer from %s", "rtsp://viewer:canary@host/1")
    finally:
        logging.getLogger().handlers, level = before
        logging.getLogger().setLevel(level)
    line = capsys.readouterr().err
    assert "canary" not in line
    assert "rtsp://***@host/1" in line
    if form == "json":
        assert json.loads(line)["level"] == "warning"


def test_the_poses_of_an_event_come_back_as_they_were() -> None:
    clip = one_person(3.0)
    again = tracks.from_bytes(tracks.to_bytes(clip))
    assert again.digest() == clip.digest()


def test_the_poses_of_an_event_are_in_no_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert tracks.from_bytes(tracks.to_bytes(one_person(3.0))).n_poses
    with pytest.raises(DataError, match="poses: expected a Parquet file of tracks, got"):
        tracks.from_bytes(b"not a file")


def test_a_file_without_poses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError):
        open_scene(camera(url=str(tmp_path / "a.json")))


def test_the_demo_has_falls_and_a_model_that_sees_them() -> None:
    from stepvad.events.rules import events_in

    model = Models().load(demo.MODEL)
    clip = read_clip(demo.POSES)
    rules = model.rules_of(camera())
    found = events_in(model.detector.score(clip).windows, demo.RATE, rules)
    assert 3 <= len(found) <= 6
    assert found[0].first_s < 15
    size = sum(path.stat().st_size for path in demo.HERE.iterdir() if path.is_file())
    assert size < 1_000_000


def test_check_explains_and_tries_the_settings(tmp_path: Path) -> None:
    settings = write_site(tmp_path, pose_camera("door", one_person(3.0), tmp_path))
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert done.exit_code == 0, done.output
    assert "Site test: 1 camera" in done.output
    assert "ok: camera door: alerts at scores of 20 or more" in done.output
    (tmp_path / "door.parquet").unlink()
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert isinstance(done.exception, DataError)


@pytest.mark.parametrize("words", [["watch"], ["watch", "site.toml", "--demo"]])
def test_settings_or_the_demo_but_not_both(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
