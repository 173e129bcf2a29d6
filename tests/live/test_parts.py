"""Small parts of a site: restarts, chores, logs and what --check tries."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.errors import DataError
from stepvad.formats import read_clip
from stepvad.live import demo
from stepvad.live.child import Restarts
from stepvad.live.chores import Chores
from stepvad.live.explainer import packed, unpacked
from stepvad.live.logs import Form, set_up
from stepvad.live.models import Models
from stepvad.live.posefiles import open_scene
from stepvad.live.supervisor import supervise
from tests.live.sites import camera, one_person, pose_camera, write_site


def test_what_dies_too_often_is_not_started_again() -> None:
    restarts = Restarts(most=3, within_s=60)
    assert [restarts.allow(now) for now in (0, 1, 2, 3)] == [True, True, True, False]
    assert restarts.allow(200)


def test_chores_are_done_in_order_and_one_that_fails_stops_no_other() -> None:
    done: list[int] = []

    def fails_at_two(number: int) -> None:
        done.append(1 // (number - 2) and number)

    chores = Chores()
    chores.start()
    for number in range(5):
        chores.add(partial(fails_at_two, number))
    chores.stop()
    assert len(done) == 4


def test_too_many_chores_leave_the_oldest_out() -> None:
    chores, done = Chores(most=3), list[int]()
    for number in range(5):
        chores.add(partial(done.append, number))
    chores.start()
    chores.stop()
    assert done == [2, 3, 4]
    assert chores.left_out == 2


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
    again = unpacked(packed(clip))
    assert again.digest() == clip.digest()


def test_a_file_without_poses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError):
        open_scene(camera(url=str(tmp_path / "a.json")))


def test_the_demo_has_falls_and_a_model_that_sees_them() -> None:
    from stepvad import events

    model = Models().load(demo.MODEL)
    clip = read_clip(demo.POSES)
    rules = model.rules_of(camera())
    found = events.find(model.detector.score(clip).windows, demo.RATE, rules)
    assert 3 <= len(found) <= 6
    assert found[0].first_s < 15
    size = sum(path.stat().st_size for path in demo.HERE.iterdir() if path.is_file())
    assert size < 1_000_000


def test_check_explains_and_tries_the_settings(tmp_path: Path) -> None:
    settings = write_site(tmp_path, pose_camera("door", one_person(3.0), tmp_path))
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert done.exit_code == 0, done.output
    assert "Site test: 1 camera" in done.output
    assert "ok: camera door: alerts from a score of 20 on" in done.output
    (tmp_path / "door.parquet").unlink()
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert isinstance(done.exception, DataError)


@pytest.mark.parametrize("words", [["watch"], ["watch", "site.toml", "--demo"]])
def test_settings_or_the_demo_but_not_both(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ends"),
    [("raise SystemExit(0)", 0), ("raise SystemExit(3)", 1), ("import os; os.abort()", 1)],
)
def test_a_site_that_ends_is_started_again_unless_it_means_it(code: str, ends: int) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert threading.current_thread() is threading.main_thread()
        assert supervise([sys.executable, "-c", code]) == ends
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
