"""A page behind nginx, which ends TLS and says who asks."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from stepvad.site.accounts import Accounts, Role
from tests.browser import IN_CHROMIUM, complaints, log_in, new_page
from tests.pages import ROOT
from tests.video.servers import free_port, wait_until
from tests.web.served import page_process
from tests.web.sites import TOKEN, Certificate, make_certificate

NGINX = shutil.which(
    "nginx",
    path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]),
)
NAME = "cameras.example.org"
CONFIG = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
{example}
}}
"""

GUIDE = "run-a-site"
SIGN_ON_GUIDE = "who-may-see-what"


def example(guide: str = GUIDE) -> str:
    """The configuration that a guide shows."""
    text = (ROOT / f"docs/guides/{guide}.md").read_text("utf-8")
    (shown,) = re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)
    return str(shown)


@contextmanager
def nginx(
    directory: Path,
    port: int,
    page_ports: Sequence[int],
    certificate: Certificate,
    *,
    guide: str = GUIDE,
    more: Sequence[tuple[str, str]] = (),
) -> Iterator[None]:
    """A guide's proxy with other ports and another certificate, until the block ends.

    It asks the pages in turn.
    """
    assert NGINX is not None
    shown = example(guide)
    for old, new in (
        *more,
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("http://127.0.0.1:8080", "http://pages"),
        (f"/etc/letsencrypt/live/{NAME}/fullchain.pem", str(certificate.chain)),
        (f"/etc/letsencrypt/live/{NAME}/privkey.pem", str(certificate.key)),
    ):
        assert old in shown
        shown = shown.replace(old, new)
    pages = " ".join(f"server 127.0.0.1:{one};" for one in page_ports)
    shown = f"upstream pages {{ {pages} }}\n{shown}"
    config = directory / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(CONFIG.format(directory=directory, user=user, example=shown))
    log = directory / "error.log"
    process = subprocess.Popen([NGINX, "-p", directory, "-c", config, "-e", log])
    try:
        wait_until(lambda: (directory / "nginx.pid").exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(20)


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
        nginx(tmp_path_factory.mktemp("nginx"), port, [page.port], certificate),
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


PORTAL = "https://login.example.org/"
ROLES: dict[str, Role] = {"eva": "administer", "ben": "judge"}


class StandIn(BaseHTTPRequestHandler):
    """Answers /api/authz/auth-request as Authelia does; a cookie says who has logged in."""

    gone: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        user = self.headers.get("Cookie", "").partition("sso=")[2].partition(";")[0]
        if user not in (*ROLES, "zoe") or user in self.gone:
            self.send_response(401)
            self.send_header("Location", PORTAL)
        else:
            self.send_response(200)
            self.send_header("Remote-User", user)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Front(NamedTuple):
    """A proxy with single sign-on, and the page behind it."""

    port: int
    page_port: int
    certificate: Certificate
    stand_in: type[StandIn]


@contextmanager
def stand_in() -> Iterator[tuple[int, type[StandIn]]]:
    handler = type("StandIn", (StandIn,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def front(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    port, directory = free_port(), tmp_path_factory.mktemp("front")
    web: dict[str, Any] = {
        "public_url": f"https://{NAME}:{port}",
        "trusted_proxies": ["127.0.0.1"],
        "user_header": "Remote-User",
        "sso_role": "none",
        "accounts": directory / "accounts.db",
    }
    with closing(Accounts(directory / "accounts.db")) as accounts:
        for name, role in ROLES.items():
            accounts.create(name, role)
    for part in ("page", "nginx"):
        (directory / part).mkdir()
    with (
        stand_in() as (portal, handler),
        page_process(directory / "page", **web) as page,
        nginx(
            *(directory / "nginx", port, [page.port], certificate),
            guide=SIGN_ON_GUIDE,
            more=[("http://127.0.0.1:9091", f"http://127.0.0.1:{portal}")],
        ),
    ):
        yield Front(port, page.port, certificate, handler)


def ask_front(front: Front, path: str, **headers: str) -> tuple[int, str]:
    """Status and body, or target, of what the proxy answers to a program."""
    trusting = ssl.create_default_context(cafile=str(front.certificate.chain))
    trusting.check_hostname = False
    line = http.client.HTTPSConnection("127.0.0.1", front.port, timeout=10, context=trusting)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    line.request("GET", path, headers={"Host": f"{NAME}:{front.port}"} | named)
    answer = line.getresponse()
    told = answer.headers.get("Location") or answer.read().decode()
    line.close()
    return answer.status, told


def me(front: Front, **headers: str) -> tuple[str, str]:
    status, body = ask_front(front, "/api/me", **headers)
    assert status == 200, body
    told = json.loads(body)
    assert told["known_by"] == "proxy"
    return told["name"], told["role"]


def test_the_proxy_says_who_it_is_and_a_browser_cannot(front: Front) -> None:
    assert me(front, Cookie="sso=eva") == ("eva", "administer")
    assert me(front, Cookie="sso=ben") == ("ben", "judge")
    assert ask_front(front, "/api/me", Cookie="sso=zoe") == (403, "you have no account here\n")
    # nginx overwrites what a browser sends
    lies = {"Remote_User": "eva"}
    assert me(front, Cookie="sso=ben", **lies) == ("ben", "judge")
    assert ask_front(front, "/api/me", **lies) == (302, PORTAL)
    assert ask_front(front, "/", Cookie="sso=nobody") == (302, PORTAL)


def test_a_stranger_beside_the_proxy_is_not_believed(front: Front) -> None:
    """From an address of this machine that is not the trusted one."""
    for source, status in (("127.0.0.1", 200), ("127.0.0.2", 401)):
        line = http.client.HTTPConnection(
            "127.0.0.1", front.page_port, timeout=10, source_address=(source, 0)
        )
        line.request("GET", "/api/me", headers={"Remote-User": "eva"})
        assert line.getresponse().status == status
        line.close()


def test_a_browser_watches_until_the_proxy_lets_it_no_more(front: Front, chromium: Browser) -> None:
    url, page = f"https://{NAME}:{front.port}/", new_page(chromium)
    page.context.add_cookies([{"name": "sso", "value": "ben", "url": url}])
    page.goto(url)
    expect(page.locator("#link")).to_have_text("Live")
    expect(page.locator("body")).to_have_attribute("data-role", "judge")
    expect(page.locator("#me")).to_have_text("ben")
    expect(page.locator(".bar form")).to_be_hidden()
    assert complaints(page) == []
    front.stand_in.gone = frozenset({"ben"})
    # the page takes up to a minute to find out
    expect(page.locator("#link")).not_to_have_text("Live")
    expect(page.locator("#lost")).to_be_visible()
