"""`stepvad fleet serve` in processes: one log-in on two replicas, and a browser that looks."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from stepvad.codec import encode
from stepvad.fleet import streams
from stepvad.fleet.connection import connected
from stepvad.fleet.event_store import EventStore
from stepvad.fleet.outbox import EventMessage
from stepvad.fleet.registry import Status
from stepvad.site import demo
from tests.browser import CHROMIUM, complaints, log_in, violations
from tests.fleet.served import Put, ServeProcess, serving
from tests.fleet.servers import Broker, broker_settings
from tests.fleet.test_event_store import FAR, happened
from tests.pages import ROOT
from tests.site.sites import Running, write_site
from tests.video.servers import SLOWER, free_port, wait_until
from tests.web.sites import TOKEN, Certificate, make_certificate
from tests.web.test_behind_nginx import NAME, NGINX, nginx

REQUESTS = 1000
pytestmark = pytest.mark.slow


class Visitor:
    """A browser, as far as it keeps one connection and a cookie."""

    def __init__(self, port: int, certificate: Certificate) -> None:
        trusting = ssl.create_default_context(cafile=str(certificate.chain))
        trusting.check_hostname = False
        self._line = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=trusting)
        self._host, self.cookie = f"{NAME}:{port}", ""

    def ask(self, method: str, path: str, **fields: str) -> int:
        headers = {"Host": self._host, "Origin": f"https://{self._host}", "Cookie": self.cookie}
        self._line.request(method, path, urlencode(fields), headers)
        answer = self._line.getresponse()
        answer.read()
        if given := answer.headers.get("Set-Cookie"):
            self.cookie = given.partition(";")[0]
        return answer.status

    def close(self) -> None:
        self._line.close()


def direct(page: ServeProcess, cookie: str) -> int:
    """What a replica itself answers."""
    line = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    line.request("GET", "/api/me", headers={"Cookie": cookie})
    status = line.getresponse().status
    line.close()
    return status


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_one_log_in_holds_on_all_replicas_and_ends_on_all(
    server: Broker, dsn: str, put: Put, tmp_path: Path
) -> None:
    put("north", happened(1))
    port, certificate = free_port(), make_certificate(tmp_path, NAME)
    web = f'public_url = "https://{NAME}:{port}"\ntrusted_proxies = ["127.0.0.1"]\n'
    with ExitStack() as stack:
        pages = [
            stack.enter_context(serving(tmp_path / name, server, dsn, "--only", "page", web=web))
            for name in ("a", "b")
        ]
        (tmp_path / "nginx").mkdir()
        ports = [page.port for page in pages]
        stack.enter_context(nginx(tmp_path / "nginx", port, ports, certificate))
        visitor = stack.enter_context(closing(Visitor(port, certificate)))
        assert visitor.ask("GET", "/api/events") == 401
        assert visitor.ask("POST", "/login", token=TOKEN) == 303
        statuses = Counter(visitor.ask("GET", "/api/events?limit=1") for _ in range(REQUESTS))
        assert statuses == {200: REQUESTS}
        held = visitor.cookie
        assert [direct(page, held) for page in pages] == [200, 200]
        assert visitor.ask("POST", "/logout") == 303
        assert [direct(page, held) for page in pages] == [401, 401]


def write_north(directory: Path, server: Broker) -> Path:
    """Settings of a site that watches the bundled scene."""
    directory.mkdir()
    camera = f'[[cameras]]\nname = "door"\nurl = "demo:"\nrate = {demo.RATE}\n'
    fleet = f'[web]\nenabled = false\n[fleet]\nservers = ["{server.address}"]\n'
    path = write_site(directory, camera, more=fleet)
    path.write_text(path.read_text().replace('name = "test"', 'name = "north"'))
    return path


@pytest.fixture
def fleet(
    server: Broker, dsn: str, put: Put, tmp_path: Path
) -> Iterator[tuple[ServeProcess, Running]]:
    """A centre, and a site that watches; another one has spoken once and is away."""
    put("south", FAR)
    with (
        serving(tmp_path / "centre", server, dsn) as centre,
        Running(write_north(tmp_path / "north", server)) as north,
    ):
        asyncio.run(_say_of_south(server))
        wait_until(lambda: any(not one.is_open for one in north.events()), 120 * SLOWER)
        yield centre, north


async def _say_of_south(server: Broker) -> None:
    cameras, troubles = {"online": 11, "offline": 1}, ("camera gate is offline: no route to it",)
    status = Status(site="south", group="sites", cameras=cameras, troubles=troubles)
    async with connected(broker_settings([server]), "south") as broker:
        await broker.publish(streams.status("south"), encode(status))


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_sees_all_sites_and_explains_and_marks_their_events(
    fleet: tuple[ServeProcess, Running], blank: Page
) -> None:
    centre, north = fleet
    log_in(blank, centre.url, TOKEN)
    rows = blank.locator("#sites tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("11 online, 1 offline")
    expect(rows.first).to_contain_text("Camera gate is offline")
    expect(blank.locator("#sites-count")).to_have_text("2 sites, 1 with a problem")
    expect(rows.last.locator(".state")).to_have_text("online")
    expect(blank.locator("#cameras")).to_be_hidden()
    assert violations(blank) == []

    # the events of one site
    blank.locator("#sites a", has_text="south").click()
    events = blank.locator("#list li")
    expect(events).to_have_count(1)
    expect(events.first).to_contain_text("south/yard")
    events.first.locator("a").click()
    expect(blank.locator("dialog .motion")).to_have_text(
        "The site south is away; ask again when it is back."
    )
    assert {said.partition(":")[0] for said in complaints(blank)} == {"error"}  # of the network
    blank.keyboard.press("Escape")

    # what the site of an event says of it, and what it hears
    blank.locator("#sites a", has_text="north").click()
    expect(events.first).to_contain_text("north/door")
    id = next(one.id for one in north.events() if not one.is_open)
    blank.goto(f"{centre.url}#event/north:{id}")
    expect(blank.locator("dialog .words li").first).to_be_visible()
    expect(blank.locator("dialog .scene canvas")).to_be_visible()
    blank.keyboard.press("r")
    expect(blank.locator("dialog .said")).to_have_text("Marked as right.")

    def has_arrived() -> bool:
        with north.store() as store:
            said = store.reviews([id]).get(id)
        return said is not None and (said.mark, said.by) == ("right", "fleet:token")

    wait_until(has_arrived)


def test_the_writer_alone_stores_what_sites_send(
    server: Broker, dsn: str, put: Put, tmp_path: Path
) -> None:
    message = encode(EventMessage(type="end", site="south", event=FAR))

    async def send() -> None:
        async with connected(broker_settings([server]), "south") as broker:
            await broker.publish(streams.events("south"), message)

    with (
        serving(tmp_path / "centre", server, dsn, "--only", "writer") as writer,
        closing(EventStore(dsn)) as store,
    ):
        asyncio.run(send())
        wait_until(lambda: store.event(f"south:{FAR.id}") is not None)
        assert "the page is at" not in writer.log.read_text()


@pytest.mark.parametrize(
    ("web", "expected"),
    [
        ("", "web.token: expected env:NAME or file:PATH, got none"),
        ('token = "file:token"', "database: relation"),
    ],
)
def test_a_page_that_cannot_work_says_so_at_once(
    dsn: str, tmp_path: Path, web: str, expected: str
) -> None:
    for name, text in (("token", TOKEN), ("dsn", dsn)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    settings = tmp_path / "fleet.toml"
    settings.write_text(f'[events]\ndsn = "file:dsn"\n[web]\nport = 0\n{web}\n')
    command = [sys.executable, "-m", "stepvad", "fleet", "serve", str(settings), "--only", "page"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
