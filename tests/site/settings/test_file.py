"""Settings files: what they say, errors with their lines, and the token."""

from __future__ import annotations

import re
import stat
import time
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.files import secret
from stepvad.site.settings.file import load
from stepvad.site.settings.page import Web
from stepvad.site.settings.sections import CameraSettings, SiteSettings, token_of
from stepvad.video.camera import Device
from tests.disks import small_disk
from tests.pages import ROOT

GOOD = """\
name = "shop"
model = "models/shop.safetensors"

[[cameras]]
name = "door"
url = "rtsp://10.0.0.2/stream"
credentials = "env:DOOR"
rate = 15
threshold = 3.5
zones.till = [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]]

[[cameras]]
name = "yard"
url = "clips/yard.mp4"
loop = true
record = true

[sinks.mqtt]
host = "localhost"
password = "file:secrets/broker"

[[sinks.webhooks]]
url = "https://example.org/hook"

[retention]
events_days = 3
"""


def wrong(directory: Path, text: str) -> ConfigError:
    file = directory / "site.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(file)
    return raised.value


@pytest.fixture
def good(tmp_path: Path) -> SiteSettings:
    (tmp_path / "site.toml").write_text(GOOD)
    return load(tmp_path / "site.toml")


def test_paths_are_taken_from_where_the_settings_are(good: SiteSettings, tmp_path: Path) -> None:
    assert good.model == tmp_path / "models/shop.safetensors"
    assert good.data == tmp_path / "site-data"
    assert good.camera("yard").url == str(tmp_path / "clips/yard.mp4")
    assert good.sinks.mqtt is not None
    assert good.sinks.mqtt.password == f"file:{tmp_path}/secrets/broker"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("rtsp://host/1", "stream"),
        ("http://host/1", "stream"),
        ("/dev/video0", "device"),
        ("/dev/v4l/by-id/usb-A-index0?rate=15", "device"),
        ("usb:0", "device"),
        ("/dev/shm/a.mp4", "video"),
        ("frames", "video"),
        ("a.mp4", "video"),
        ("a.parquet", "poses"),
        ("a.json", "poses"),
        ("demo:", "demo"),
    ],
)
def test_the_address_tells_the_kind(good: SiteSettings, url: str, kind: str) -> None:
    assert good.camera("yard").model_copy(update={"url": url}).kind == kind


def test_an_attached_camera_is_live_and_keeps_its_address(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(GOOD.replace("clips/yard.mp4", "usb:1?size=640x480"))
    yard = load(tmp_path / "site.toml").camera("yard")
    assert (yard.url, yard.is_live, yard.has_pictures) == ("usb:1?size=640x480", True, True)
    source = yard.live_source()
    assert isinstance(source, Device)
    assert source.size == "640x480"
    error = wrong(tmp_path, GOOD.replace("clips/yard.mp4", "/dev/video0?size=big"))
    assert "got size=big" in error.problem
    assert "1280x720" in error.hint


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("rate = 15", "ratee = 15", 8, "cameras.ratee: expected a known key, got 'ratee'"),
        ("rate = 15", "rate = 0", 8, "cameras.rate: expected greater than 0, got 0"),
        ("rate = 15", 'rate = "fast"', 8, "a valid number"),
        ("loop = true", "lop = true", 15, "got 'lop'"),
        ('host = "localhost"', "port = 70000", 18, "sinks.mqtt.host: expected a value, got none"),
        ("events_days = 3", "events_days = -1", 26, "retention.events_days: expected greater"),
        ("[retention]", "[retentions]", 25, "expected a known key, got 'retentions'"),
        ('name = "yard"', 'name = "door"', 4, "expected distinct names, got 'door' twice"),
        ('name = "yard"', 'name = "a/b"', 13, "cameras.name: expected the form ^[A-Z"),
        ("[0.5, 0.9]]", "[50, 90]]", 10, "expected at least 3 corners of numbers from 0 to 1"),
        ('name = "shop"', "name = shop", 1, "expected TOML"),
        ('host = "localhost"', 'host = "10.0.0.5"\nmarks = true', 18, "username and password with"),
    ],
)
def test_a_mistake_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    assert old in GOOD
    error = wrong(tmp_path, GOOD.replace(old, new))
    assert words in error.problem
    assert f"line {line}" in error.problem
    assert "expected" in error.problem
    assert "got" in error.problem


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (".".join(["a"] * 300) + " = 1", "more than 256 dots (at line 1)"),
        ("'a' . " * 20_000 + "b = 1", "more than 256 dots"),
        ("'\u2028'." * 20_000 + "b = 1", "more than 256 dots"),
        ("[" + ".".join(["1"] * 20_000) + "]", "more than 256 dots"),
        ('x = """\\""" a\n"""\ny = {' + "a." * 20_000 + "b = 1}", "256 dots (at line 3)"),
        ("x = " + "[" * 20_000 + "]" * 20_000, "values nested too deeply"),
        ("x = " + "{a = " * 20_000, "values nested too deeply"),
        ("x = " + "9" * 5000, "a word of more than 3,500 characters (at line 1)"),
        ("name = 0x" + "f" * 5000, "a word of more than 3,500 characters (at line 1)"),
        ('x = """' + '\\"""' * 20_000, "expected TOML"),
    ],
    ids=range(10),
)
def test_what_would_take_memory_or_time_is_refused_at_once(
    tmp_path: Path, line: str, words: str
) -> None:
    begun = time.process_time()
    error = wrong(tmp_path, f"{line}\n{GOOD}")
    assert "expected TOML, got: " in error.problem
    assert words in error.problem
    assert time.process_time() - begun < 5


def test_a_number_as_long_as_words_may_be_is_refused_in_words(tmp_path: Path) -> None:
    for old in ("rate = 15", "threshold = 3.5", "events_days = 3", 'name = "shop"', "loop = true"):
        huge = f"{old.split()[0]} = 0x{'f' * 3400}"
        assert "expected" in wrong(tmp_path, GOOD.replace(old, huge)).problem


def test_a_zone_of_many_corners_is_one_line(tmp_path: Path) -> None:
    corners = ", ".join(["[0.1, 0.25]", "[0.1,0.5 ]", "[0.75 ,0.5]"] * 200)
    path = tmp_path / "site.toml"
    path.write_text(GOOD.replace("[0.5, 0.9]]", f"[0.5, 0.9], {corners}]"))
    assert len(load(path).camera("door").zones["till"]) == 603


def test_a_corner_without_a_number_is_told(tmp_path: Path) -> None:
    error = wrong(tmp_path, GOOD.replace("[0.5, 0.9]]", "[0.5]]"))
    assert "zones" in error.problem
    assert "expected a value, got none" in error.problem


def test_lines_are_right_after_long_values(tmp_path: Path) -> None:
    text = GOOD.replace(
        "[[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]]",
        "[ # model = 1\n  [0.1, 0.1],\n  [0.5, 0.1],\n  [0.5, 0.9],\n]",
    )
    error = wrong(tmp_path, text.replace("record = true", "recrd = true"))
    assert "line 20:" in error.problem


def test_a_key_that_is_missing_is_told_with_its_table(tmp_path: Path) -> None:
    error = wrong(tmp_path, GOOD.replace('url = "clips/yard.mp4"\n', ""))
    assert "line 12: cameras.url: expected a value, got none" in error.problem
    assert "rtsp://" in error.hint


@pytest.mark.parametrize(
    "url",
    [
        "rtsp://admin:canary@10.0.0.2/stream",
        "rtsp://canary@10.0.0.2/stream",
        "http://10.0.0.2/video?user=a&pwd=canary",
        "rtsp://admin:${PASSWORD}canary@10.0.0.2/stream",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    error = wrong(tmp_path, GOOD.replace("rtsp://10.0.0.2/stream", url))
    assert "line 6: cameras.url: expected an address without credentials" in error.problem
    assert "credentials" in error.hint
    assert "canary" not in str(error)


def test_a_password_in_place_of_its_name_is_refused_and_not_shown(tmp_path: Path) -> None:
    error = wrong(tmp_path, GOOD.replace("env:DOOR", "admin:canary"))
    assert "line 7: cameras.credentials: expected env:NAME or file:PATH" in error.problem
    assert "canary" not in str(error)


def test_both_kinds_of_credentials_make_the_address(
    good: SiteSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR", "admin:p@ss/word")
    door = good.camera("door")
    assert door.address().reveal() == "rtsp://admin:p%40ss%2Fword@10.0.0.2/stream"
    assert "word" not in str(door.address())
    kept = tmp_path / "door"
    kept.write_text("admin:p@ss/word\n")
    kept.chmod(0o600)
    by_file = door.model_copy(update={"credentials": f"file:{kept}"})
    assert by_file.address() == door.address()


def test_a_secret_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDS", "open sesame")
    assert secret("env:WORDS") == "open sesame"
    file = tmp_path / "words"
    file.write_text("open sesame\n")
    file.chmod(0o600)
    assert secret(f"file:{file}") == "open sesame"
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="expected a file that others cannot read, got mode 644"):
        secret(f"file:{file}")
    with pytest.raises(ConfigError, match="expected the environment variable NO_WORDS, got none"):
        secret("env:NO_WORDS")


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    error = wrong(tmp_path, f'{GOOD}\n[pose]\ndevice = "abacus"\n')
    assert "abacus" in str(error)
    assert "'cuda'" in str(error)


def test_the_settings_that_the_guide_shows_are_settings(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/watch-cameras.md").read_text()
    shown = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    whole = next(text for text in shown if text.startswith("name = "))
    for part in shown:
        (tmp_path / "site.toml").write_text(whole if part is whole else whole + part)
        load(tmp_path / "site.toml")
    assert len(shown) >= 2


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a settings file, got: No such file") as raised:
        load(tmp_path / "none.toml")
    assert "--demo" in raised.value.hint


def settings(data: Path, web: Web | None = None) -> SiteSettings:
    camera = CameraSettings(name="yard", url="demo:")
    return SiteSettings(data=data, model=data / "model", cameras=[camera], web=web or Web())


def test_a_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    site = settings(tmp_path / "new" / "data")
    token = token_of(site)
    assert len(token) == 32
    assert token_of(site) == token
    assert stat.S_IMODE((site.data / "token").stat().st_mode) == 0o600
    assert [file.name for file in site.data.iterdir()] == ["token"]


def test_the_token_of_the_settings_comes_first(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("a token of my own\n")
    mine.chmod(0o600)
    assert token_of(settings(tmp_path, Web(token=f"file:{mine}"))) == "a token of my own"


def test_an_empty_file_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    assert len(token_of(settings(tmp_path))) == 32


def test_a_first_start_on_a_full_disk_leaves_nothing_behind_and_makes_a_token() -> None:
    with small_disk(1) as disk:
        disk.fill()
        assert len(token_of(settings(disk.path))) == 32
        assert [file.name for file in disk.path.iterdir()] == ["fills"]
        disk.free()
        assert token_of(settings(disk.path)) == token_of(settings(disk.path))


def test_poses_of_devices_need_brokers_and_names_of_their_own(tmp_path: Path) -> None:
    one = '[[cameras]]\nname = "{}"\nurl = "nats:{}"\n'
    cases = [
        (one.format("door", "a"), "expected .fleet. with a camera at nats:a, got none"),
        (one.format("door", "a.b") + "[fleet]\n", "expected nats:NAME of letters, digits"),
        (one.format("door", "a") + one.format("gate", "a") + "[fleet]\n", "distinct names"),
    ]
    path = tmp_path / "site.toml"
    for text, problem in cases:
        path.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            load(path)
    path.write_text(one.format("door", "yard-7") + "[fleet]\n")
    (camera,) = load(path).cameras
    assert (camera.kind, camera.subject, camera.has_pictures) == ("nats", "yard-7", False)
