"""The page of notifications in Chromium: its words, its service worker, and a push."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from stepvad.settings.file import Sinks
from stepvad.settings.notify import NotifySettings
from stepvad.site.notifications.push_subscriptions import PushSubscriptions
from stepvad.web import ServerThread, serve
from tests.accessibility import violations
from tests.browser import CHROMIUM, Page, browser
from tests.site.notifications.pushes import Browser
from tests.web.sites import TOKEN, Site, happen, site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
STATE = "document.getElementById('browser-state').textContent"
SHOWN = "(id) => !document.getElementById(id).hidden"
FAKE = """(() => {
  const keys = %s;
  let made = null;
  PushManager.prototype.getSubscription = async () => made;
  PushManager.prototype.subscribe = async (options) => {
    made = {
      endpoint: 'https://push.example.org/1',
      options: { applicationServerKey: options.applicationServerKey.buffer },
      toJSON: () => ({ endpoint: made.endpoint, expirationTime: null, keys }),
      unsubscribe: async () => { made = null; return true; },
    };
    return made;
  };
})()"""
"""There is no push service here: what Chromium would get from one."""


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, ServerThread]]:
    with site(tmp_path_factory.mktemp("site")) as made:
        people = NotifySettings(name="guards", to=["browsers"], quiet_hours=["22:00-06:00"])
        made.settings = made.settings.model_copy(update={"sinks": Sinks(notify=[people])})
        server = serve(made.app(), "127.0.0.1", 0)
        try:
            yield made, server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def chromium(
    mill: tuple[Site, ServerThread], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        go(page, mill[1].url)
        page.wait("location.pathname === '/login'")
        page.call("Input.insertText", text=TOKEN)
        page.press("Enter", "Enter", "\r")
        page.wait("location.pathname === '/'")
        yield page


@pytest.fixture
def page(chromium: Page, mill: tuple[Site, ServerThread]) -> Iterator[Page]:
    origin = mill[1].url.rstrip("/")
    chromium.call("Browser.grantPermissions", origin=origin, permissions=["notifications"])
    chromium.complaints.clear()
    go(chromium, f"{origin}/notifications")
    chromium.wait(f"{STATE} !== 'Checking…'")
    yield chromium
    assert chromium.complaints == []


def go(page: Page, url: str, *, width: int = 1280) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=url)
    page.wait(f"location.href.startsWith('{url}') && document.readyState === 'complete'")


def test_the_page_says_who_is_notified_and_tests_it(page: Page) -> None:
    assert page.run(STATE) == "This browser does not show alerts."
    assert page.run("document.querySelector('#people h3').textContent") == "guards"
    told = page.run("document.querySelector('#people .events').textContent")
    assert told == "Events of all cameras, sent to browsers."
    told = page.run("document.querySelector('#people .limits').textContent")
    assert told == (
        "At most 12 messages an hour, the rest in one; none from 22:00-06:00 (one message after)."
    )
    page.run("document.querySelector('#people button').click()")
    page.wait("document.querySelector('.results .taken')?.textContent.includes('no browser')")


def test_this_browser_is_notified_at_the_press_of_a_button_and_no_more_at_another(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    keys = Browser()
    page.run(FAKE % json.dumps({"p256dh": keys.p256dh, "auth": keys.auth}))
    page.run("document.getElementById('subscribe').click()")
    page.wait(f"{STATE} === 'This browser shows alerts, even while the page is closed.'")
    subscriptions = PushSubscriptions(mill[0].settings.data)
    (one,) = subscriptions.all()
    assert (one.endpoint, one.p256dh) == ("https://push.example.org/1", keys.p256dh)
    page.run("document.getElementById('unsubscribe').click()")
    page.wait(f"{STATE} === 'This browser does not show alerts.'")
    assert subscriptions.all() == []


def test_a_push_service_that_refuses_is_said_in_words(page: Page) -> None:
    page.run(
        "PushManager.prototype.subscribe = () => Promise.reject(new DOMException('', 'AbortError'))"
    )
    page.run("document.getElementById('subscribe').click()")
    page.wait(f'{STATE}.startsWith("The browser\'s push service refused (AbortError).")')
    assert page.run(f"({SHOWN})('subscribe')"), "to try again"


def test_a_push_becomes_a_notification_that_leads_to_the_event(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    origin = mill[1].url.rstrip("/")
    page.call("ServiceWorker.enable")
    page.run(
        "navigator.serviceWorker.register('/sw.js').then(() => navigator.serviceWorker.ready)",
        wait=True,
    )
    page.wait("navigator.serviceWorker.controller !== null")
    one = happen(mill[0], 1)
    message = {
        "title": "Yard, door",
        "body": "Someone is moving unusually: left arm raised. 14:03:22",
        "link": f"https://cameras.example.org/#event/{one.id}",
        "tag": one.id,
    }
    page.call(
        "ServiceWorker.deliverPushMessage",
        origin=origin,
        registrationId=page.workers[f"{origin}/"],
        data=json.dumps(message),
    )
    shown = (
        "navigator.serviceWorker.ready.then((one) => one.getNotifications())"
        ".then((all) => all.map(({title, body, tag, data}) => ({title, body, tag, data})))"
        ".then(JSON.stringify)"
    )
    for _ in range(50):
        found = json.loads(page.run(shown, wait=True))
        if found:
            break
        page.run("new Promise((done) => setTimeout(done, 100))", wait=True)
    assert found == [
        {
            "title": "Yard, door",
            "body": message["body"],
            "tag": one.id,
            "data": {"link": message["link"]},
        }
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits(page: Page, mill: tuple[Site, ServerThread], width: int) -> None:
    go(page, f"{mill[1].url.rstrip('/')}/notifications", width=width)
    page.wait(f"{STATE} === 'This browser does not show alerts.'")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []


def test_a_page_that_is_not_secure_is_said_in_words(page: Page) -> None:
    """As on another machine by plain http."""
    said = page.run(
        "import('/static/push.js').then(async (push) => {"
        "  Object.defineProperty(window, 'isSecureContext', { value: false });"
        "  return push.hindrance();"
        "})",
        wait=True,
    )
    assert said.startswith(
        "Browsers allow notifications from secure pages only. Open this page over"
    )
