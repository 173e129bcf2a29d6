"""The page in Chromium through nginx with TLS, by another name, as the guide describes it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from stepvad.web.attempts import MOST_WRONG_EACH
from tests.browser import CHROMIUM, Page, browser
from tests.video.servers import free_port
from tests.web.certificates import Certificate, make_certificate
from tests.web.nginx import NAME, NGINX, nginx
from tests.web.served import page_process
from tests.web.sites import TOKEN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="needs nginx"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"), NAME)


@pytest.fixture(scope="module")
def port(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a proxy with a page behind it."""
    port = free_port()
    directory = tmp_path_factory.mktemp("page")
    web: dict[str, Any] = {"public_url": f"https://{NAME}:{port}", "trusted_proxies": ["127.0.0.1"]}
    with (
        page_process(directory, **web) as page,
        nginx(tmp_path_factory.mktemp("nginx"), port, page.port, certificate),
    ):
        yield port


def flags(certificate: Certificate) -> list[str]:
    """Chromium that finds the name on this machine and trusts the certificate."""
    key = subprocess.run(
        ["openssl", "x509", "-in", certificate.chain, "-pubkey", "-noout"],
        check=True, capture_output=True,
    ).stdout  # fmt: skip
    der = base64.b64decode(b"".join(key.splitlines()[1:-1]))
    pin = base64.b64encode(hashlib.sha256(der).digest()).decode()
    return [
        f"--host-resolver-rules=MAP {NAME} 127.0.0.1",
        f"--ignore-certificate-errors-spki-list={pin}",
    ]


@pytest.fixture(scope="module")
def chromium(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser in which nobody is logged in."""
    with browser(tmp_path_factory.mktemp("profile"), *flags(certificate)) as page:
        yield page


def ask(certificate: Certificate, port: int, method: str, path: str, **headers: str) -> int:
    """What the proxy answers to a program."""
    trusting = ssl.create_default_context(cafile=str(certificate.chain))
    trusting.check_hostname = False
    line = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trusting)
    line.request(method, path, headers={"Host": f"{NAME}:{port}"} | headers)
    status = line.getresponse().status
    line.close()
    return status


def log_in(page: Page, url: str, token: str = TOKEN) -> None:
    page.call("Page.navigate", url=url)
    page.wait("location.pathname === '/login' && document.readyState === 'complete'")
    page.run("window.old = true")
    page.call("Input.insertText", text=token)
    page.press("Enter", "Enter", "\r")
    page.wait("!window.old && document.readyState === 'complete'")


def test_a_browser_logs_in_watches_and_logs_out_by_another_name(
    certificate: Certificate, port: int, chromium: Page
) -> None:
    url = f"https://{NAME}:{port}/"
    log_in(chromium, url)
    chromium.wait("location.pathname === '/'")
    chromium.wait("document.getElementById('link').textContent === 'Live'")
    chromium.wait("document.querySelectorAll('.camera').length === 2")
    (cookie,) = chromium.call("Network.getCookies", urls=[url])["cookies"]
    assert cookie["secure"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    held = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    assert ask(certificate, port, "GET", "/api/site", **held) == 200
    chromium.run("document.querySelector('.bar form button').click()")
    chromium.wait("location.pathname === '/login'")
    assert chromium.call("Network.getCookies", urls=[url])["cookies"] == []
    assert ask(certificate, port, "GET", "/api/site", **held) == 401
    assert chromium.complaints == []


def test_other_names_and_origins_are_refused_behind_the_proxy_too(
    certificate: Certificate, port: int
) -> None:
    assert ask(certificate, port, "GET", "/login", Host="evil.example") == 400
    assert ask(certificate, port, "POST", "/login", Origin="https://evil.example") == 403
    assert ask(certificate, port, "GET", "/healthz") == 200


def test_who_guesses_in_the_form_is_told_how_long_to_wait(port: int, chromium: Page) -> None:
    problem = "document.getElementById('problem').textContent"
    for _ in range(MOST_WRONG_EACH):
        log_in(chromium, f"https://{NAME}:{port}/login", "not the token")
        assert "not the token" in chromium.run(problem)
    log_in(chromium, f"https://{NAME}:{port}/login")
    assert "Too many" in chromium.run(problem)
