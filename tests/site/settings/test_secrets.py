"""Settings from a browser send secrets of the machine nowhere new."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.site.settings.file import validate
from stepvad.site.settings.secrets import SecretError, check_secrets, place_of
from stepvad.site.settings.sections import SiteSettings

SAVED = """\
[[cameras]]
name = "door"
url = "rtsps://door.lan/stream1"
credentials = "file:door.secret"
[[cameras]]
name = "yard"
url = "rtsp://${YARD}@192.168.1.9:8554/1"
[[cameras]]
name = "old"
url = "http://192.168.1.7/picture?token=${OLD}"
[[cameras]]
name = "open"
url = "https://open.lan/1"
credentials = "env:OPEN"
tls_insecure = true
[sinks.mqtt]
host = "192.168.1.5"
username = "stepvad"
password = "env:MQTTPW"
[[sinks.webhooks]]
url = "https://example.org/alerts"
secret = "env:HOOK"
[[sinks.notify]]
to = ["file:ntfy.secret", "browsers"]
[web]
token = "env:TOKEN"
"""


def settings(text: str) -> SiteSettings:
    return validate(text, Path("/site/site.toml"), SiteSettings)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # a camera elsewhere, at another port, without TLS, without a check of its certificate
        ("rtsps://door.lan/", "rtsps://evil.example/"),
        ("rtsps://door.lan/", "rtsps://door.lan:8322/"),
        ("rtsps://door.lan/", "rtsp://door.lan/"),
        ("rtsps://door.lan/", "rtsps://door.lan.evil.example/"),
        ('"file:door.secret"', '"file:door.secret"\ntls_insecure = true'),
        # another secret for the same host, or one in the path, the name or the query
        ('"file:door.secret"', '"env:MQTTPW"'),
        ('"file:door.secret"', '"file:ntfy.secret"'),
        ("${YARD}@192.168.1.9", "${YARD}@192.168.1.10"),
        ("${YARD}@192.168.1.9:8554/1", "192.168.1.9:8554/${YARD}"),
        ("${YARD}@192.168.1.9:8554/1", "${YARD}.evil.example/1"),
        ("${YARD}@192.168.1.9:8554/1", "evil.example/${YARD}@192.168.1.9:8554/1"),
        ("${YARD}@192.168.1.9:8554/1", "${MQTTPW}@192.168.1.9:8554/1"),
        ("${YARD}@192.168.1.9:8554/1", "${YARD}:${MQTTPW}@192.168.1.9:8554/1"),
        ("/picture?token=${OLD}", "/other?token=${OLD}"),
        ("token=${OLD}", "token=${OLD}${MQTTPW}"),
        # a broker, a webhook, people, the token
        ('host = "192.168.1.5"', 'host = "evil.example"'),
        ('host = "192.168.1.5"', 'host = "192.168.1.5"\nport = 1884'),
        ('"env:MQTTPW"', '"file:door.secret"'),
        ("https://example.org/", "https://example.com/"),
        ("https://example.org/", "http://example.org/"),
        ('"env:HOOK"', '"env:MQTTPW"'),
        ('"file:ntfy.secret"', '"file:ntfy.secret", "env:MQTTPW"'),
        ('"env:TOKEN"', '"env:MQTTPW"'),
    ],
)
def test_a_secret_goes_nowhere_new(old: str, new: str) -> None:
    assert old in SAVED
    with pytest.raises(SecretError, match="on the machine itself"):
        check_secrets(settings(SAVED.replace(old, new, 1)), settings(SAVED))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("door.lan/stream1", "DOOR.lan:322/stream2"),
        ("@192.168.1.9:8554/1", "@192.168.1.9:8554/2"),
        ('name = "old"', 'name = "older"\nrate = 5'),
        ("tls_insecure = true", 'tls_ca = "open.pem"'),
        ('username = "stepvad"', 'username = "stepvad"\nprefix = "vad"'),
        ("org/alerts", "org/events"),
        (', "browsers"]', ']\ncameras = ["door"]'),
        ('credentials = "env:OPEN"', ""),
        ("[web]", '[[cameras]]\nname = "new"\nurl = "rtsp://192.168.1.30/1"\n[web]'),
        ("[web]", '[[cameras]]\nname = "two"\nurl = "rtsp://${YARD}@192.168.1.9:8554/2"\n[web]'),
    ],
)
def test_whatever_sends_no_secret_elsewhere_may_change(old: str, new: str) -> None:
    assert old in SAVED
    check_secrets(settings(SAVED.replace(old, new, 1)), settings(SAVED))


def test_a_place_has_no_password_and_no_path() -> None:
    assert place_of("rtsp://${A}:${B}@Cam.lan/a?b=c#d") == "rtsp://cam.lan:554"
    assert place_of("https://[::1]:8443/a") == "https://[::1]:8443"
    assert place_of("http://[::1]/a") == "http://[::1]:80"
