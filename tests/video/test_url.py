from __future__ import annotations

import base64
import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.errors import ConfigError, DataError
from stepvad.files import redact
from stepvad.video.url import Url

CANARY = "canary-Zq7/x@y:w"
QUOTED = "canary-Zq7%2Fx%40y%3Aw"


def hidden(text: str) -> bool:
    return "canary" not in text and "Zq7" not in text


def test_the_real_address_is_given_to_who_asks_for_it_only() -> None:
    url = Url(f"rtsp://viewer:{QUOTED}@camera.example:8554/stream?channel=1")
    assert url.reveal() == f"rtsp://viewer:{QUOTED}@camera.example:8554/stream?channel=1"
    assert str(url) == "rtsp://***@camera.example:8554/stream?channel=1"
    assert repr(url) == "Url('rtsp://***@camera.example:8554/stream?channel=1')"
    assert f"{url}" == str(url)
    assert url.scheme == "rtsp"
    assert pickle.loads(pickle.dumps(url)) == url
    assert hash(url) == hash(Url(url.reveal()))
    assert not hasattr(url, "__dict__")


def test_variables_of_the_environment_are_filled_in_and_encoded() -> None:
    names = {"CAMERA_USER": "viewer", "CAMERA_PASSWORD": CANARY}
    url = Url("rtsp://${CAMERA_USER}:${CAMERA_PASSWORD}@host/a", environment=names)
    assert url.reveal() == f"rtsp://viewer:{QUOTED}@host/a"
    assert hidden(repr(url))


def test_one_variable_may_hold_user_and_password_or_the_whole_address() -> None:
    both = Url("rtsp://${BOTH}@host/a", environment={"BOTH": "viewer:canary"})
    assert both.reveal() == "rtsp://viewer:canary@host/a"
    whole = Url("${WHOLE}", environment={"WHOLE": "rtsp://viewer:canary@host/a"})
    assert whole.reveal() == "rtsp://viewer:canary@host/a"
    assert hidden(repr(both) + repr(whole))


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(DataError, match="CAMERA_PASSWORD"):
        Url("rtsp://${CAMERA_PASSWORD}@host/a", environment={})


def test_credentials_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "camera"
    file.write_text(f"viewer:{CANARY}\n")
    file.chmod(0o600)
    url = Url("rtsp://host/a", credentials=file)
    assert url.reveal() == f"rtsp://viewer:{QUOTED}@host/a"
    assert hidden(repr(url))


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (f"viewer:{CANARY}", 0o644, "others cannot read"),
        (f"{CANARY.replace(':', '')}", 0o600, "without a colon"),
        (f"viewer:{CANARY}\nmore", 0o600, "got 2"),
        (f":{CANARY}", 0o600, "user:password"),
        ("", 0o600, "got 0"),
    ],
)
def test_a_file_of_credentials_must_be_private_and_whole(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    file = tmp_path / "camera"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=problem) as caught:
        Url("rtsp://host/a", credentials=file)
    assert hidden("".join(traceback.format_exception(caught.value)))
    assert caught.value.hint


def test_a_file_of_credentials_that_is_missing_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Url("rtsp://host/a", credentials=tmp_path / "missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xffcanary\xfe")
    binary.chmod(0o600)
    with pytest.raises(ConfigError, match="UTF-8") as caught:
        Url("rtsp://host/a", credentials=binary)
    assert hidden("".join(traceback.format_exception(caught.value)))


def test_credentials_in_two_places_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "camera"
    file.write_text("viewer:canary")
    file.chmod(0o600)
    address = "rtsp://viewer:canary@host/a"
    with pytest.raises(DataError, match="got both") as caught:
        Url(address, credentials=file)
    assert hidden("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host/a",
        "file:///etc/passwd",
        "concat:a|b",
        "rtsp://",
        "rtsp://viewer:canary@",
        "ftp://viewer:canary@host/a",
        "rtsp://viewer:canary@host:port/a",
        "rtsp://viewer:canary/Zq7@host/a",
        "rtsp://viewer:canary#Zq7@host/a",
        "rtsp://viewer:canary Zq7@host/a",
        "rtsp://viewer:canary",
        "rtsp://viewer:can\nary@host/a",
        "rtsp://viewer:canary@[host/a",
        "rtsp://viewer:canary@host:99999/a",
    ],
)
def test_what_is_no_address_of_a_camera_is_an_error_that_hides_it(text: str) -> None:
    with pytest.raises(DataError, match="expected rtsp://") as caught:
        Url(text)
    assert hidden("".join(traceback.format_exception(caught.value)))
    assert "Zq7" not in repr(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"cannot open 'rtsp://viewer:{QUOTED}@host/a': refused",
        f"cannot open rtsp://viewer:{CANARY}@host/a",
        "GET http://host/video?user=a&password=canary&x=1",
        "GET http://host/video?access_token=canary",
        "Authorization: Basic Y2FuYXJ5",
        'Authorization: Digest username="viewer", response="canary"',
    ],
)
def test_addresses_and_headers_in_a_text_are_redacted(text: str) -> None:
    assert hidden(redact(text))
    assert "Y2FuYXJ5" not in redact(text)


def test_texts_without_credentials_stay_as_they_are() -> None:
    text = "camera door: rtsp://host:554/a?channel=1 refused; mail me@example.org"
    assert redact(text) == text


def test_an_address_redacts_its_own_secrets_wherever_they_stand() -> None:
    url = Url(f"rtsp://viewer:{QUOTED}@host/a")
    basic = base64.b64encode(f"viewer:{CANARY}".encode()).decode()
    for text in (f"password {CANARY}!", f"quoted {QUOTED}", f"sent {basic}"):
        assert hidden(url.redact(text))
        assert basic not in url.redact(text)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=6, max_size=20))
def test_no_password_shows(password: str) -> None:
    url = Url("rtsp://viewer:${P}@host/a", environment={"P": password})
    assert repr(url) == "Url('rtsp://***@host/a')"
