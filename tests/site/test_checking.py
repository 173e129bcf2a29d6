"""What `stepvad watch --check` says of the way to a camera, and which settings of TLS it takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.errors import ConfigError, DataError
from stepvad.formats import read_clip
from stepvad.site import demo
from stepvad.site.checking import check
from stepvad.site.models import Models
from stepvad.site.playback import open_scene
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import SiteSettings
from stepvad.video.url import CameraTls
from tests.site.sites import camera, one_person, pose_camera, write_site
from tests.video.servers import CANARY, shows_nothing
from tests.video.tls_servers import make_certificates


def site(directory: Path, more: str, url: str = "rtsps://10.0.0.2/a") -> SiteSettings:
    for file in demo.MODEL.parent.glob(f"{demo.MODEL.stem}*"):
        shutil.copy(file, directory)
    text = f'model = "{demo.MODEL.name}"\n[[cameras]]\nname = "door"\nurl = "{url}"\n{more}\n'
    (directory / "site.toml").write_text(text + 'threshold = 3\ncredentials = "env:DOOR"\n')
    return load(directory / "site.toml")


def link(settings: SiteSettings) -> str:
    """The line on the way to the camera; the networks after it are not there."""
    return next(line for line in check(settings) if "TLS" in line)


def test_the_papers_method_says_at_once_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.toml"
    text = '[[cameras]]\nname = "door"\nurl = "demo:"\n[learning]\nmethod = "{}"\n'
    monkeypatch.setattr("stepvad.site.checking.find_spec", lambda name: None)
    for more in (["--check"], []):  # the site does not start, either
        path.write_text(text.format("step"))
        run = CliRunner().invoke(app, ["watch", str(path), *more])
        said = str(run.exception)
        assert said == "method step needs the train extra; pip install 'stepvad[train]'"
    path.write_text(text.format("usual"))
    assert next(check(load(path))).startswith("ok: camera door: no alerts until")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR", f"viewer:{CANARY}")


def test_check_says_by_what_tls_is_verified(tmp_path: Path) -> None:
    settings = site(tmp_path, "")
    assert link(settings).startswith("ok: camera door: TLS is verified, host name included, by /")
    make_certificates(tmp_path)
    settings = site(tmp_path, 'tls_ca = "ca.pem"')
    assert link(settings).endswith(f"by {tmp_path / 'ca.pem'}")
    assert settings.cameras[0].address().tls == CameraTls(tmp_path / "ca.pem")


def test_check_warns_of_tls_that_is_not_verified(tmp_path: Path) -> None:
    settings = site(tmp_path, "tls_insecure = true")
    line = link(settings)
    assert line.startswith("warning: camera door: TLS is not verified (tls_insecure)")
    assert "would get the password" in line
    assert settings.cameras[0].address().tls == CameraTls(insecure=True)
    assert shows_nothing(line)


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
def test_check_warns_of_a_password_that_anybody_can_read(tmp_path: Path, scheme: str) -> None:
    line = link(site(tmp_path, "", url=f"{scheme}://10.0.0.2/a"))
    assert line.startswith("warning: camera door: TLS is not used")
    assert f"use {scheme}s://" in line


def test_check_does_not_warn_where_there_is_no_password(tmp_path: Path) -> None:
    settings = site(tmp_path, "", url="rtsp://10.0.0.2/a")
    (door,) = settings.cameras
    bare = settings.model_copy(update={"cameras": [door.model_copy(update={"credentials": None})]})
    assert link(bare).startswith("ok: camera door: TLS is not used")


def test_check_refuses_authorities_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected certificates of authorities"):
        link(site(tmp_path, 'tls_ca = "missing.pem"'))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": "rtsp://a/b", "tls_insecure": True}, "expected rtsps:// or https://"),
        ({"url": "a.mp4", "tls_ca": "a.pem"}, "expected rtsps:// or https://"),
        ({"url": "rtsps://a/b", "tls_ca": "a.pem", "tls_insecure": True}, "got both"),
    ],
)
def test_tls_settings_that_contradict_are_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        camera(**more)


def test_check_opens_no_device_but_looks_for_it(tmp_path: Path) -> None:
    settings = site(tmp_path, "", url="rtsp://10.0.0.2/a")
    door = settings.cameras[0].model_copy(update={"url": "/dev/video99", "credentials": None})
    with pytest.raises(DataError, match="/dev/video99: expected a camera, got no such device"):
        list(check(settings.model_copy(update={"cameras": [door]})))


def test_check_looks_into_a_folder_of_pictures(tmp_path: Path) -> None:
    settings = site(tmp_path, "", url="rtsp://10.0.0.2/a")
    folder = tmp_path / "frames"
    door = settings.cameras[0].model_copy(update={"url": str(folder), "credentials": None})
    settings = settings.model_copy(update={"cameras": [door]})
    folder.mkdir()
    with pytest.raises(DataError, match="expected pictures"):
        next(check(settings))
    (folder / "1.png").touch()
    assert next(check(settings)).startswith("ok: camera door")


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
    assert "ok: camera door: alerts at scores of 20 or more" in done.output
    (tmp_path / "door.parquet").unlink()
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert isinstance(done.exception, DataError)


@pytest.mark.parametrize("words", [["watch"], ["watch", "site.toml", "--demo"]])
def test_settings_or_the_demo_but_not_both(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
