"""Settings of the page and of messages to people."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.errors import ConfigError
from stepvad.site import demo
from stepvad.site.checking import check
from stepvad.site.settings.file import load
from stepvad.site.settings.page import concern_of, limits_of
from stepvad.site.settings.sections import SiteSettings
from tests.web.sites import make_certificate

SITE = 'model = "m.safetensors"\n[[cameras]]\nname = "yard"\nurl = "demo:"\n[web]\n'


def read(directory: Path, web: str) -> SiteSettings:
    path = directory / "site.toml"
    path.write_text(SITE + web)
    return load(path)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://Cameras.Example.org/", "https://cameras.example.org"),
        ("https://cameras.example.org:443", "https://cameras.example.org"),
        ("https://cameras.example.org:8443", "https://cameras.example.org:8443"),
        ("https://[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_a_public_url_is_kept_as_browsers_write_it(tmp_path: Path, given: str, kept: str) -> None:
    site = read(tmp_path, f'public_url = "{given}"\ntrusted_proxies = ["127.0.0.1"]\n')
    assert site.web.public_url == kept


@pytest.mark.parametrize(
    "given",
    [
        "cameras.example.org",
        "ftp://cameras.example.org",
        "https://",
        "https://example.org/cameras",
        "https://example.org/?a=b",
        "https://example.org/#a",
        "https://user:canary@example.org",
        "https://example.org:port",
        "https://[::1",
        "https://kämeras.example",
    ],
)
def test_what_is_no_public_url_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(
        ConfigError, match=r"line 6: web\.public_url: expected https://NAME"
    ) as error:
        read(tmp_path, f'public_url = "{given}"\ntrusted_proxies = ["127.0.0.1"]\n')
    assert "canary" not in str(error.value)


def test_proxies_are_addresses_or_networks(tmp_path: Path) -> None:
    site = read(tmp_path, 'trusted_proxies = ["127.0.0.1", "172.18.5.6/16", "2001:DB8::1"]\n')
    assert site.web.trusted_proxies == ["127.0.0.1", "172.18.0.0/16", "2001:db8::1"]
    for wrong in ("*", "proxy", "10.0.0.300", ""):
        with pytest.raises(ConfigError, match=r"web\.trusted_proxies: expected an address"):
            read(tmp_path, f'trusted_proxies = ["{wrong}"]\n')


def test_an_https_url_needs_a_proxy_or_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected trusted_proxies with an https public_url"):
        read(tmp_path, 'public_url = "https://cameras.example.org"\n')
    files = 'certificate = "chain.pem"\nkey = "key.pem"\n'
    site = read(tmp_path, 'public_url = "https://cameras.example.org"\n' + files)
    assert site.web.certificate == tmp_path / "chain.pem"
    with pytest.raises(ConfigError, match="expected certificate and key, got one of them"):
        read(tmp_path, 'certificate = "chain.pem"\n')


@pytest.mark.parametrize(
    ("web", "url", "is_clear"),
    [
        ("", "http://127.0.0.1:8080/", False),
        ('host = "0.0.0.0"\n', "http://0.0.0.0:8080/", True),
        (
            'public_url = "https://cam.example.org"\ntrusted_proxies = ["127.0.0.1"]\n',
            "https://cam.example.org/",
            False,
        ),
    ],
)
def test_check_says_where_the_page_is(tmp_path: Path, web: str, url: str, is_clear: bool) -> None:
    settings = read(tmp_path, web).model_copy(update={"model": demo.MODEL})
    lines = [*check(settings)]
    assert any(f"ok: the page is at {url} and asks for the token in" in line for line in lines)
    assert any("without TLS" in line for line in lines) == is_clear


@pytest.mark.parametrize(
    ("web", "problem"),
    [
        ('user_header = "Remote-User"\n', "expected trusted_proxies with user_header, got none"),
        ('user_header = "Remote User"\n', "expected the form"),
        ('sso_role = "boss"\n', "sso_role"),
    ],
)
def test_single_sign_on_is_whole_or_refused(tmp_path: Path, web: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(tmp_path, web)


def test_check_tries_the_certificate(tmp_path: Path) -> None:
    settings = tmp_path / "site.toml"
    settings.write_text(
        f'data = "data"\nmodel = "{demo.MODEL}"\n'
        '[[cameras]]\nname = "yard"\nurl = "demo:"\nthreshold = 3.0\n'
        '[web]\ncertificate = "chain.pem"\nkey = "key.pem"\n'
    )
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert done.exit_code != 0
    made = make_certificate(tmp_path, "localhost")
    done = CliRunner().invoke(app, ["watch", str(settings), "--check"])
    assert f"ok: the page can use the certificate {made.chain}" in done.stdout, done.output


WITH_ZONES = """
name = "mill"
model = "model.safetensors"
[[cameras]]
name = "yard"
url = "demo:"
zones.door = [[0, 0], [1, 0], [1, 1]]
[[sinks.notify]]
"""


def site(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(WITH_ZONES + text)
    return path


def test_what_may_be_said(tmp_path: Path) -> None:
    path = site(
        tmp_path,
        'name = "guards"\nto = ["browsers", "env:NTFY", "file:mail"]\n'
        'cameras = ["yard"]\nzones = ["door"]\nquiet_hours = ["22:00-06:00"]\n'
        "repeat_minutes = 5\n",
    )
    settings = load(path)
    (people,) = settings.sinks.notify
    assert people.to == ["browsers", "env:NTFY", f"file:{tmp_path}/mail"]
    assert people.browsers
    assert (people.most_per_hour, people.repeat_times) == (12, 3)
    assert concern_of(people) == "camera yard in zone door"
    assert limits_of(people) == [
        "at most 12 messages an hour, the rest in one",
        "none from 22:00-06:00 (one message after)",
        "again every 5 minutes until someone has seen the event, at most 3 times",
    ]


def test_the_least_that_must_be_said(tmp_path: Path) -> None:
    (people,) = load(site(tmp_path, 'to = ["browsers"]')).sinks.notify
    assert people.name == "people"
    assert people.repeat_minutes is None


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "line 8: sinks.notify.to: expected a value, got none", '"browsers"'),
        ("to = []", "to: expected", "browsers"),
        (
            'to = ["ntfy://ntfy.sh/canary"]',
            "to: expected browsers, env:NAME or file:PATH",
            "secret",
        ),
        ('to = ["env:A", "env:A"]', "expected distinct names, got 'env:A' twice", "rename"),
        (
            'to = ["browsers"]\nquiet_hours = ["22-6"]',
            "expected hours as HH:MM-HH:MM, got '22-6'",
            "over midnight",
        ),
        ('to = ["browsers"]\nquiet_hours = ["25:00-06:00"]', "got '25:00-06:00'", "such as"),
        ('to = ["browsers"]\nquiet_hours = ["06:00-06:00"]', "got '06:00-06:00'", "00:00-24:00"),
        ('to = ["browsers"]\nmost_per_hour = 0', "most_per_hour: expected greater", "Messages"),
        ('to = ["browsers"]\ncameras = ["yrad"]', "got 'yrad'", "its cameras: yard"),
        ('to = ["browsers"]\nzones = ["gate"]', "got 'gate'", "its zones: door"),
        ('to = ["browsers"]\n[[sinks.notify]]\nto = ["env:A"]', "'people' twice", "rename"),
    ],
)
def test_what_is_wrong_is_said_with_a_hint(
    tmp_path: Path, text: str, problem: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(site(tmp_path, text))
    assert problem in caught.value.problem
    assert hint in caught.value.hint
    assert "canary" not in str(caught.value)
