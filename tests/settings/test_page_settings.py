"""Settings of the page: its public address, its proxies, its TLS, and --check on them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.errors import ConfigError
from stepvad.intake import demo
from stepvad.settings.file import SiteSettings, describe, load
from stepvad.supervision.limits import raise_file_limit
from tests.web.certificates import make_certificate

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
    ("web", "words"),
    [
        ("", ["The page is at http://127.0.0.1:8080/ and asks for the token in"]),
        ('host = "0.0.0.0"\n', ["http://0.0.0.0:8080/", "without TLS: the token crosses"]),
        (
            'public_url = "https://cam.example.org"\ntrusted_proxies = ["127.0.0.1"]\n',
            [
                "The page is at https://cam.example.org/ and",
                "It listens on 127.0.0.1 port 8080 without TLS, for the proxy at 127.0.0.1.",
            ],
        ),
        (
            'certificate = "chain.pem"\nkey = "key.pem"\n',
            ["The page is at https://127.0.0.1:8080/", "It serves TLS with the certificate"],
        ),
        ("enabled = false\n", ["There is no page."]),
        (
            'trusted_proxies = ["127.0.0.1"]\nuser_header = "Remote-User"\n',
            [
                "It listens on 127.0.0.1 port 8080 without TLS, for the proxy",
                "That proxy passes user names (Remote-User); users without an account may look.",
            ],
        ),
        (
            'trusted_proxies = ["127.0.0.1"]\nuser_header = "Remote-User"\nsso_role = "none"\n',
            ["without TLS", "users without an account are refused."],
        ),
    ],
)
def test_the_page_is_told_in_words(tmp_path: Path, web: str, words: list[str]) -> None:
    told = describe(read(tmp_path, web))
    for part in words:
        assert part in told
    assert ("without TLS" in told) == any("without TLS" in part for part in words)


@pytest.mark.parametrize(
    ("web", "problem"),
    [
        ('user_header = "Remote-User"\n', "expected trusted_proxies with user_header, got none"),
        (
            'trusted_proxies = ["127.0.0.1"]\ngroup_header = "Remote-Groups"\n',
            "expected user_header with group_header, got none",
        ),
        (
            'trusted_proxies = ["127.0.0.1"]\nuser_header = "Remote-User"\nadmin_groups = ["it"]\n',
            "expected group_header with judge_groups or admin_groups, got none",
        ),
        ('user_header = "Remote User"\n', "expected the form"),
        ('sso_role = "boss"\n', "sso_role"),
        ("login_days = 0\n", "login_days: expected greater than 0"),
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


def test_the_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        most = raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
        assert most > 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
