"""What a trial of a camera says: what it costs here, how many fit, and what lets more fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.site.settings.file import load
from stepvad.site.trial import CameraCost, CameraPicture, advice, try_camera
from tests.site.sites import camera, video_camera, write_networks, write_site
from tests.video.clips import h264_copy, write_images
from tests.video.servers import RtspServer, has_rtsp_server, shows_nothing

COST = CameraCost(sent=25.0, decoding_s=0.0025, looking_s=0.04, people=3.1)
STREAM = camera(url="rtsp://10.0.0.2/Streaming/Channels/101", rate=10.0)


def test_an_installer_reads_how_many_cameras_fit() -> None:
    # 25 x 2.5 ms and 10 x 40 ms are 0.46 cores; 5 x 40 ms make it 0.26; 1.4 of 2 may be busy
    (words, *_) = advice((640, 360), COST, STREAM, cores=2)
    assert words == (
        "this machine carries 3 such cameras at 10 frames a second, 5 at 5, with 3 people in view "
        "of each (decoding: 62 ms of a core a second; finding people: 40 ms a frame; 30% of 2 "
        "cores left for the rest)"
    )
    (words, *_) = advice((640, 360), COST, camera(url="a.mkv", rate=4.0), cores=1)
    assert words.startswith("this machine carries 3 such cameras at 4 frames a second, with")


def test_a_camera_that_one_core_cannot_follow_fits_nowhere() -> None:
    crowded = CameraCost(sent=25.0, decoding_s=0.0025, looking_s=0.08, people=7.0)
    assert [crowded.carried(rate, 64) for rate in (10.0, 5.0)] == [0, 96]


def test_a_large_picture_brings_the_words_for_a_substream_and_no_address() -> None:
    _, words = advice((1920, 1080), COST, camera(url=STREAM.url, rate=20.0), cores=2)
    assert "1920 x 1080" in words
    assert all(one in words for one in ("/Streaming/Channels/102", "subtype=1", "manual"))
    assert "10.0.0.2" not in words
    assert len([*advice((1280, 720), COST, camera(url=STREAM.url, rate=20.0), cores=2)]) == 1
    assert len([*advice((1920, 1080), COST, camera(url="a.mkv"), cores=2)]) == 1


def test_frames_that_nobody_needs_are_named() -> None:
    _, words = advice((640, 360), COST, STREAM, cores=2)
    assert words.startswith("it sends 25 frames a second, all are decoded, and 10 are used")


def test_a_live_camera_is_timed_by_ten_of_its_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_rtsp_server():
        pytest.skip("GStreamer's RTSP server is not installed")
    images = np.random.default_rng(1).integers(0, 255, (60, 12, 16, 3), np.uint8)
    large = images.repeat(20, axis=1).repeat(20, axis=2)
    clip = h264_copy(write_images(tmp_path / "a.mkv", large), tmp_path / "b.mkv")
    server = RtspServer(clip, tmp_path / "server.log")
    user, _, url = server.address.removeprefix("rtsp://").partition("@")
    monkeypatch.setenv("CAMERA", user)
    text = f'[[cameras]]\nname = "door"\nurl = "rtsp://{url}"\ncredentials = "env:CAMERA"\n'
    settings = load(write_site(tmp_path, text, write_networks(tmp_path)))
    server.start()
    try:
        found = try_camera(settings.cameras[0], settings.pose, settings.logs)
    finally:
        server.kill()
    assert isinstance(found, CameraPicture)
    assert found.cost
    assert found.cost.sent == pytest.approx(10, abs=2)
    assert found.cost.people == 1
    assert 0 < found.cost.looking_s < 1
    assert 1e-4 < found.cost.decoding_s < 1
    assert shows_nothing(*found.advice)


def test_check_says_what_each_camera_costs_and_whether_all_fit(tmp_path: Path) -> None:
    cameras = [video_camera(name, tmp_path, n_frames=40) for name in ("door", "yard")]
    # one that shows nothing is no reason to refuse settings that are right
    gone = '[[cameras]]\nname = "gone"\nurl = "http://127.0.0.1:9/a"\nthreshold = 20.0\n'
    settings = write_site(tmp_path, *cameras, gone, write_networks(tmp_path))
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert done.exit_code == 0, done.output
    for name in ("door", "yard"):
        assert f"ok: camera {name}: this machine carries" in done.output
    assert "warning: camera gone: no picture: " in done.output
    assert "ok: all 2 cameras together take" in done.output
