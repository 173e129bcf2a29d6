"""The routes for messages to people."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from stepvad.settings.file import Sinks
from stepvad.settings.notify import NotifySettings
from stepvad.site.notifications.push_subscriptions import PushSubscriptions
from tests.site.notifications.pushes import Browser, push_service
from tests.web.sites import BEARER, HERE, Site, site

ENDPOINT = "https://updates.push.services.mozilla.com/wpush/v2/abc"
PATH = "/api/notifications/subscriptions"


def with_people(mill: Site, *to: str) -> Site:
    people = NotifySettings(name="guards", to=[*to])
    settings = mill.settings.model_copy(update={"sinks": Sinks(notify=[people])})
    return replace(mill, settings=settings)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Of a site that notifies browsers and env:PEOPLE."""
    monkeypatch.setenv("PEOPLE", "json://127.0.0.1:9/canary")
    with site(tmp_path) as mill:
        app = with_people(mill, "browsers", "env:PEOPLE").app()
        yield TestClient(app, base_url=HERE, headers=BEARER, follow_redirects=False)


def subscription(browser: Browser, endpoint: str = ENDPOINT) -> dict[str, object]:
    """As a browser sends it, with a field that we do not use."""
    keys = {"p256dh": browser.p256dh, "auth": browser.auth}
    return {"endpoint": endpoint, "expirationTime": None, "keys": keys}


def test_who_gets_messages(client: TestClient, tmp_path: Path) -> None:
    found = client.get("/api/notifications").json()
    (people,) = found["people"]
    assert people["name"] == "guards"
    assert people["to"] == ["browsers", "env:PEOPLE"]
    assert people["events"] == "all cameras"
    assert people["limits"] == ["at most 12 messages an hour, the rest in one"]
    assert people["browsers"] is True
    assert found["browsers"] == 0
    assert found["public_key"] == PushSubscriptions(tmp_path).key().x962_str
    assert "canary" not in str(found)


def test_a_browser_comes_and_goes(client: TestClient, tmp_path: Path) -> None:
    browser = Browser()
    assert client.put(PATH, json=subscription(browser)).status_code == 204
    assert client.put(PATH, json=subscription(browser)).status_code == 204
    assert client.get("/api/notifications").json()["browsers"] == 1
    (one,) = PushSubscriptions(tmp_path).all()
    assert (one.endpoint, one.auth) == (ENDPOINT, browser.auth)
    for _ in range(2):
        gone = client.request("DELETE", PATH, json={"endpoint": ENDPOINT})
        assert gone.status_code == 204
    assert client.get("/api/notifications").json()["browsers"] == 0


@pytest.mark.parametrize(
    "endpoint", ["http://push.example/x", "https://127.0.0.1/x", "https://localhost:8080/api"]
)
def test_a_site_posts_to_public_push_services_only(client: TestClient, endpoint: str) -> None:
    answer = client.put(PATH, json=subscription(Browser(), endpoint))
    assert answer.status_code == 422
    assert "expected the https address of a push service" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [("x", ""), ("", ""), (None, "ö"), (None, ""), ("BAAA", None), ("B" + "A" * 86, None)],
)
def test_keys_that_are_none_are_refused(
    client: TestClient, p256dh: str | None, auth: str | None
) -> None:
    browser = Browser()
    keys = {
        "p256dh": browser.p256dh if p256dh is None else p256dh,
        "auth": browser.auth if auth is None else auth,
    }
    answer = client.put(PATH, json={"endpoint": ENDPOINT, "keys": keys})
    assert answer.status_code == 422
    assert "expected the keys of a browser" in answer.json()["detail"]


def test_a_site_that_notifies_no_browser_says_so(tmp_path: Path) -> None:
    with site(tmp_path) as mill:
        client = TestClient(mill.app(), base_url=HERE, headers=BEARER)
        found = client.get("/api/notifications").json()
        assert found == {"people": [], "browsers": 0, "public_key": None}
        answer = client.put(PATH, json=subscription(Browser()))
        assert answer.status_code == 409
        assert 'to = ["browsers"]' in answer.json()["detail"]
        answer = client.post("/api/notifications/test", json={"name": "guards"})
        assert answer.status_code == 404
    assert not (tmp_path / "notifications").exists(), "no key is made in vain"


@pytest.mark.slow
def test_a_test_message_says_what_came_back(client: TestClient) -> None:
    answer = client.post("/api/notifications/test", json={"name": "guards"})
    assert answer.status_code == 200
    first, second = answer.json()
    assert first == {
        "to": "browsers",
        "ok": True,
        "words": "no browser has asked for notifications yet",
    }
    assert second["ok"] is False
    assert "json of env:PEOPLE: expected the service to take a message, got:" in second["words"]
    assert "canary" not in str(second)
    answer = client.post("/api/notifications/test", json={"name": "bob"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        "sinks.notify: expected one of guards, got 'bob'; name one of them"
    )


@pytest.mark.slow
def test_one_test_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, release = threading.Event(), threading.Event()

    def slowly(*_: object) -> Iterator[object]:
        going.set()
        release.wait(30)
        return iter(())

    monkeypatch.setattr("stepvad.web.notifications.send_test", slowly)
    with site(tmp_path) as mill:
        client = TestClient(with_people(mill, "browsers").app(), base_url=HERE, headers=BEARER)
        statuses: list[int] = []

        def ask() -> None:
            answer = client.post("/api/notifications/test", json={"name": "guards"})
            statuses.append(answer.status_code)

        first = threading.Thread(target=ask)
        first.start()
        assert going.wait(30)
        ask()
        release.set()
        first.join()
        assert statuses == [409, 200]
        ask()
        assert statuses[-1] == 200


@pytest.mark.slow
def test_from_the_button_to_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribe at the site, send a test, and read it as the browser does."""
    monkeypatch.setattr("stepvad.web.notifications.check_endpoint", lambda endpoint: None)
    browser = Browser()
    with push_service(tmp_path) as service, site(tmp_path / "data") as mill:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "chain.pem"))
        client = TestClient(with_people(mill, "browsers").app(), base_url=HERE, headers=BEARER)
        client.put(PATH, json=subscription(browser, f"{service.address}/send/1"))
        (said,) = client.post("/api/notifications/test", json={"name": "guards"}).json()
        assert said == {"to": "browsers", "ok": True, "words": "1 of 1 browsers got it"}
        assert b'"title": "mill: test"' in browser.read(service.got[0][2])


def test_strangers_get_nothing(tmp_path: Path) -> None:
    with site(tmp_path) as mill:
        stranger = TestClient(with_people(mill, "browsers").app(), base_url=HERE)
        assert stranger.get("/api/notifications").status_code == 401
        assert stranger.put(PATH, json=subscription(Browser())).status_code == 401
        assert stranger.post("/api/notifications/test", json={"name": "guards"}).status_code == 401


def test_the_service_worker_is_at_the_root_and_may_run(client: TestClient) -> None:
    answer = client.get("/sw.js")
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "showNotification" in answer.text
    assert "Notify this browser" in client.get("/notifications").text
