"""A whole site, from poses and pictures to stored events."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.formats import read_clips
from stepvad.site import app as site
from stepvad.site.intake import demo
from tests.processes import wait_until_nobody_is_left
from tests.site.sites import (
    Running,
    one_person,
    pose_camera,
    video_camera,
    write_networks,
    write_site,
)
from tests.video.servers import wait_until

pytestmark = pytest.mark.slow


def test_poses_become_events_with_words_and_a_stop_leaves_nothing(
    tmp_path: Path,
) -> None:
    camera = pose_camera("door", one_person(), tmp_path, "record = true")
    with Running(write_site(tmp_path, camera)) as running:
        (first, *_) = running.wait_for_events(1)
        wait_until(lambda: not running.events()[0].is_open, 30)
        processes = running.processes()
        assert "site" in processes
        assert running.stop() == 0, running.log.read_text()
        wait_until_nobody_is_left(processes["site"])
        over = running.events()[0]
        assert over.id == first.id
        assert over.ended_by == "calm"
        assert over.why
        assert all(not record.is_open for record in running.events())
        with running.store() as store:
            explained, poses = store.explained(over.id), store.poses(over.id)
        assert explained is not None
        assert explained.words
        assert poses
        recorded = [*read_clips(tmp_path / "site-data/poses/door")]
        assert sum(clip.n_poses for clip in recorded) > 50


def test_pictures_go_through_the_networks_and_ctrl_c_ends_events(
    tmp_path: Path,
) -> None:
    networks = write_networks(tmp_path)
    cameras = [video_camera(name, tmp_path) for name in ("left", "right")]
    with Running(write_site(tmp_path, *cameras, networks)) as running:
        running.wait_for_events(2)
        assert {"capture-left", "capture-right", "poses-0"} <= running.processes().keys()
        assert running.service.send_signal(signal.SIGINT) == 0, running.log.read_text()
        ended = running.events()
        assert {record.camera for record in ended} == {"left", "right"}
        assert {record.ended_by for record in ended} <= {"stopped", "camera lost"}
        assert "stopped" in {record.ended_by for record in ended}


def test_settings_that_do_not_work_are_told_once(tmp_path: Path) -> None:
    settings = write_site(tmp_path, '[[cameras]]\nname = "a"\nurl = "demo:"\n')
    settings.write_text(settings.read_text().replace(str(demo.MODEL), "model.safetensors"))
    with Running(settings) as running:
        assert running.service.wait() == 1
        log = running.log.read_text()
        assert log.count("error:") == 1
        assert "model.safetensors" in log
        assert "Traceback" not in log


def test_a_second_site_on_the_same_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "LOCK_S", 0.3)
    with (
        site.exclusive_lock(tmp_path),
        pytest.raises(ConfigError, match="expected it to be unused"),
        site.exclusive_lock(tmp_path),
    ):
        pass
