"""The page of notifications in Chromium: its words, its service worker, and a push."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from stepvad.site.notify.push import PushSubscriptions
from stepvad.site.settings.page import NotifySettings
from stepvad.site.settings.sections import Sinks
from tests.browser import IN_CHROMIUM, log_in, resize, until, violations
from tests.site.notify.services import Browser
from tests.web.sites import TOKEN, ServerThread, Site, happen, serve, site

pytestmark = IN_CHROMIUM
OFF = "This browser does not show alerts."
SHOWN = (
    "navigator.serviceWorker.ready.then((one) => one.getNotifications())"
    ".then((all) => all.map(({title, body, tag, data}) => ({title, body, tag, data})))"
)
IS_SHOWN = f"({SHOWN}).then((all) => all.length > 0)"
FAKE = """(() => {
  const keys = %s;
  let made = null;
  PushManager.prototype.getSubscription = async () => made;
  PushManager.prototype.subscribe = async (options) => {
    made = {
      endpoint: 'https://fcm.googleapis.com/1',
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


@pytest.fixture
def page(mill: tuple[Site, ServerThread], blank: Page) -> Page:
    """The page of notifications, which may show them."""
    blank.context.grant_permissions(["notifications"])
    log_in(blank, mill[1].url, TOKEN)
    blank.goto(f"{mill[1].url}notifications")
    expect(blank.locator("#browser-state")).to_have_text(OFF)
    return blank


def test_the_page_says_who_is_notified(page: Page) -> None:
    people = page.locator("#people")
    expect(people.locator("h3")).to_have_text("guards")
    expect(people.locator(".events")).to_have_text("Events of all cameras, sent to browsers.")
    expect(people.locator(".limits")).to_have_text(
        "At most 12 messages an hour, the rest in one; none from 22:00-06:00 (one message after)."
    )


def test_this_browser_is_notified_at_the_press_of_a_button_and_no_more_at_another(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    keys = Browser()
    page.evaluate(FAKE % json.dumps({"p256dh": keys.p256dh, "auth": keys.auth}))
    page.locator("#subscribe").click()
    on = "This browser shows alerts, even while the page is closed."
    expect(page.locator("#browser-state")).to_have_text(on)
    subscriptions = PushSubscriptions(mill[0].settings.data)
    (one,) = subscriptions.all()
    assert (one.endpoint, one.p256dh) == ("https://fcm.googleapis.com/1", keys.p256dh)
    page.locator("#unsubscribe").click()
    expect(page.locator("#browser-state")).to_have_text(OFF)
    assert subscriptions.all() == []


def test_a_push_service_that_refuses_is_said_in_words(page: Page) -> None:
    page.evaluate(
        "PushManager.prototype.subscribe = "
        "() => Promise.reject(new DOMException('', 'AbortError')); true"
    )
    page.locator("#subscribe").click()
    refused = re.compile(r"^The browser's push service refused \(AbortError\)\.")
    expect(page.locator("#browser-state")).to_have_text(refused)
    expect(page.locator("#subscribe")).to_be_visible()  # to try again


def test_a_push_becomes_a_notification_that_leads_to_the_event(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    origin = mill[1].url.rstrip("/")
    workers: dict[str, str] = {}
    debugger = page.context.new_cdp_session(page)
    debugger.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda told: workers.update(
            {one["scopeURL"]: one["registrationId"] for one in told["registrations"]}
        ),
    )
    debugger.send("ServiceWorker.enable")
    page.evaluate(
        "navigator.serviceWorker.register('/sw.js').then(() => navigator.serviceWorker.ready)"
        ".then(() => true)"
    )
    until(page, "navigator.serviceWorker.controller !== null")
    one = happen(mill[0], 1)
    message = {
        "title": "Yard, door",
        "body": "Someone is moving unusually: left arm raised. 14:03:22",
        "link": f"https://cameras.example.org/#event/{one.id}",
        "tag": one.id,
    }
    push = {"origin": origin, "registrationId": workers[f"{origin}/"], "data": json.dumps(message)}
    until(page, IS_SHOWN, again=lambda: debugger.send("ServiceWorker.deliverPushMessage", push))
    assert page.evaluate(SHOWN) == [
        {
            "title": "Yard, door",
            "body": message["body"],
            "tag": one.id,
            "data": {"link": message["link"]},
        }
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits(page: Page, width: int) -> None:
    resize(page, width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []


def test_a_page_that_is_not_secure_is_said_in_words(page: Page) -> None:
    """As on another machine by plain http."""
    said = page.evaluate(
        "import('/static/push.js').then(async (push) => {"
        "  Object.defineProperty(window, 'isSecureContext', { value: false });"
        "  return push.hindrance();"
        "})"
    )
    assert said.startswith(
        "Browsers allow notifications from secure pages only. Open this page over"
    )
