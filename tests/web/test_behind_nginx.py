"""The page in Chromium through nginx with TLS, by another name, as the guide describes it."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stepvad.web.attempts import MOST_WRONG_EACH
from tests.browser import IN_CHROMIUM, log_in, new_page
from tests.video.servers import free_port
from tests.web.certificates import Certificate, make_certificate
from tests.web.nginx import NAME, NGINX, nginx
from tests.web.served import page_process
from tests.web.sites import TOKEN

pytestmark = [*IN_CHROMIUM, pytest.mark.skipif(NGINX is None, reason="needs nginx")]


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


def ask(certificate: Certificate, port: int, method: str, path: str, **headers: str) -> int:
    """What the proxy answers to a program."""
    trusting = ssl.create_default_context(cafile=str(certificate.chain))
    trusting.check_hostname = False
    line = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trusting)
    line.request(method, path, headers={"Host": f"{NAME}:{port}"} | headers)
    status = line.getresponse().status
    line.close()
    return status


def test_a_browser_logs_in_watches_and_logs_out_by_another_name(
    certificate: Certificate, port: int, blank: Page
) -> None:
    url = f"https://{NAME}:{port}/"
    log_in(blank, url, TOKEN)
    expect(blank.locator("#link")).to_have_text("Live")
    expect(blank.locator(".camera")).to_have_count(2)
    (cookie,) = blank.context.cookies(url)
    assert cookie["secure"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    held = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    assert ask(certificate, port, "GET", "/api/site", **held) == 200
    blank.locator(".bar form button").click()
    blank.wait_for_url("**/login")
    assert ask(certificate, port, "GET", "/api/site", **held) == 401


def test_other_names_and_origins_are_refused_behind_the_proxy_too(
    certificate: Certificate, port: int
) -> None:
    assert ask(certificate, port, "GET", "/login", Host="evil.example") == 400
    assert ask(certificate, port, "POST", "/login", Origin="https://evil.example") == 403
    assert ask(certificate, port, "GET", "/healthz") == 200


def test_who_guesses_in_the_form_is_told_how_long_to_wait(port: int, chromium: Browser) -> None:
    page = new_page(chromium)
    for _ in range(MOST_WRONG_EACH):
        log_in(page, f"https://{NAME}:{port}/login", "not the token")
        expect(page.locator("#problem")).to_contain_text("not the token")
    log_in(page, f"https://{NAME}:{port}/login", TOKEN)
    expect(page.locator("#problem")).to_contain_text("Too many")
