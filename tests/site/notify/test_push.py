"""Web Push to a push service on localhost, read as a browser reads it."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from stepvad.errors import ConfigError, DataError
from stepvad.events.record import DeliveryError
from stepvad.site.accounts import Accounts
from stepvad.site.notify.push import (
    MOST_EACH,
    MOST_PLAIN,
    MOST_TRIES,
    BrowserTarget,
    PushSubscriptions,
    authorization,
    check_endpoint,
    outcome,
    payload,
)
from stepvad.site.notify.words import Notice
from tests.processes import REASON, unreadable
from tests.site.notify.services import Browser, PushService, push_service, unpadded

NOTICE = Notice(
    "Yard, Tür", "Someone is moving unusually. 14:03:22", "https://m.example/#event/1", "1"
)


@pytest.fixture
def subscriptions(tmp_path: Path) -> PushSubscriptions:
    return PushSubscriptions(tmp_path / "data", clock=lambda: 1000.0)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushService]:
    """A push service whose certificate is trusted."""
    with push_service(tmp_path) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "chain.pem"))
        yield made


def subscribe(subscriptions: PushSubscriptions, endpoint: str) -> Browser:
    browser = Browser()
    subscriptions.subscribe(endpoint, browser.p256dh, browser.auth)
    return browser


@pytest.mark.slow
def test_every_browser_reads_the_message(
    subscriptions: PushSubscriptions, service: PushService
) -> None:
    browsers = {
        f"/send/{n}": subscribe(subscriptions, f"{service.address}/send/{n}") for n in range(3)
    }
    target = BrowserTarget(subscriptions, contact="https://m.example")
    assert target.describe() == "3 browsers"
    assert target.deliver(NOTICE) == "3 of 3 browsers got it"
    assert {path for path, _, _ in service.got} == {*browsers}
    for path, headers, body in service.got:
        assert json.loads(browsers[path].read(body)) == {
            "title": "Yard, Tür",
            "body": "Someone is moving unusually. 14:03:22",
            "link": "https://m.example/#event/1",
            "tag": "1",
        }
        assert headers["Content-Encoding"] == "aes128gcm"
        assert int(headers["TTL"]) > 3600, "a phone may be off for a while"
        assert headers["Urgency"] == "high"
        assert len(headers["Topic"]) == 32
        assert headers["Authorization"].endswith(f", k={subscriptions.key().x962_str}")


@pytest.mark.slow
def test_ended_subscriptions_are_removed_and_failures_tried_again_for_those_only(
    subscriptions: PushSubscriptions, service: PushService
) -> None:
    for path in ("fine", "gone", "lost", "busy", "odd"):
        subscribe(subscriptions, f"{service.address}/{path}")
    service.statuses = {"/gone": 410, "/lost": 404, "/busy": 503, "/odd": 413}
    target = BrowserTarget(subscriptions)
    with pytest.raises(DeliveryError, match="1 push services that refused it: localhost"):
        target.deliver(NOTICE)
    left = [one.endpoint.rpartition("/")[2] for one in subscriptions.all()]
    assert left == ["fine", "busy", "odd"]
    service.got.clear()
    service.statuses = {}
    assert target.deliver(NOTICE) == "1 of 3 browsers got it"
    assert [path for path, _, _ in service.got] == ["/busy"], "the others have it"
    service.got.clear()
    assert target.deliver(NOTICE) == "3 of 3 browsers got it", "a new message goes to all"


@pytest.mark.slow
def test_one_broken_service_does_not_stop_messages_for_ever(
    subscriptions: PushSubscriptions, service: PushService
) -> None:
    subscribe(subscriptions, f"{service.address}/fine")
    subscribe(subscriptions, f"{service.address}/busy")
    service.statuses = {"/busy": 503}
    target = BrowserTarget(subscriptions)
    for _ in range(MOST_TRIES - 1):
        with pytest.raises(DeliveryError, match="localhost answered 503"):
            target.deliver(NOTICE)
    assert "1 could not be reached" in target.deliver(NOTICE)
    assert [path for path, _, _ in service.got].count("/fine") == 1


@pytest.mark.slow
def test_a_site_that_is_offline_keeps_its_message_until_it_is_back(
    subscriptions: PushSubscriptions, service: PushService
) -> None:
    subscribe(subscriptions, f"{service.address}/one")
    subscribe(subscriptions, f"{service.address}/two")
    service.statuses = {"/one": 503, "/two": 503}
    target = BrowserTarget(subscriptions)
    for _ in range(MOST_TRIES + 1):
        with pytest.raises(DeliveryError, match="got 2 push services"):
            target.deliver(NOTICE)
    service.statuses = {}
    assert target.deliver(NOTICE) == "2 of 2 browsers got it"


def test_without_browsers_there_is_nothing_to_do(subscriptions: PushSubscriptions) -> None:
    target = BrowserTarget(subscriptions)
    assert target.describe() == "none yet"
    assert target.deliver(NOTICE) == "no browser has asked for notifications yet"


@pytest.mark.parametrize(
    ("status", "what"),
    [(201, "taken"), (404, "gone"), (410, "gone"), (403, "gone"), (429, "failed"), (0, "failed"),
     (502, "failed"), (413, "refused"), (301, "refused")],
)  # fmt: skip
def test_what_an_answer_means(status: int, what: str) -> None:
    assert outcome(status) == what


def test_a_long_message_is_cut_to_what_a_push_holds() -> None:
    raw = payload(Notice("t", "ü" * 5000, "https://x.y", "z"))
    assert MOST_PLAIN - 50 < len(raw) <= MOST_PLAIN
    assert json.loads(raw)["link"] == "https://x.y"


def test_the_longest_message_fits_into_one_record_that_one_browser_can_read(
    subscriptions: PushSubscriptions,
) -> None:
    browser = subscribe(subscriptions, "https://push.example/1")
    (one,) = subscriptions.all()
    sent = subscriptions.key().encrypt_webpush(b"x" * MOST_PLAIN, *one.keys)
    assert len(sent) == 4096
    assert browser.read(sent) == b"x" * MOST_PLAIN
    with pytest.raises(InvalidTag):
        Browser().read(sent)


def test_the_browser_of_these_tests_reads_the_example_of_the_standard() -> None:
    """RFC 8291, appendix A."""
    browser = Browser("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "BTBZMqHH6r4Tts7J_aSIgg")
    sent = (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmY"
        "WAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexS"
        "gSxsj_Qulcy4a-fN"
    )
    assert browser.read(unpadded(sent)) == b"When I grow up, I want to be a watermelon"


def test_the_signature_names_the_service_and_the_site_and_holds(
    subscriptions: PushSubscriptions,
) -> None:
    key = subscriptions.key()
    header = authorization("https://push.example:444/send/x", key, 1000.0, "https://mill.example")
    token, _, public = header.removeprefix("vapid t=").partition(", k=")
    signed, _, signature = token.rpartition(".")
    head, claims = (json.loads(unpadded(part)) for part in signed.split("."))
    assert head == {"typ": "JWT", "alg": "ES256"}
    assert claims == {
        "aud": "https://push.example:444",
        "exp": 1000 + 12 * 3600,
        "sub": "https://mill.example",
    }
    raw = unpadded(signature)
    r, s = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unpadded(public))
    point.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
    without = authorization("https://a.b/c", key, 0, "")
    assert "sub" not in json.loads(unpadded(without.removeprefix("vapid t=").split(".")[1]))


def test_files_are_for_the_owner_only_and_survive(
    subscriptions: PushSubscriptions, tmp_path: Path
) -> None:
    browser = subscribe(subscriptions, "https://push.example/1")
    key = subscriptions.key().x962_str
    again = PushSubscriptions(tmp_path / "data")
    assert again.key().x962_str == key
    (one,) = again.all()
    assert (one.endpoint, one.p256dh, one.since) == ("https://push.example/1", browser.p256dh, 1e3)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "data" / "notifications").iterdir()
    }
    assert modes == {"browsers.json": 0o600, "browser-key.pem": 0o600}


def test_a_users_new_browser_replaces_an_own_one_and_nobody_elses(
    subscriptions: PushSubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(user: str, n: int) -> None:
        own = Browser()
        address = f"https://push.example/{user}/{n}"
        subscriptions.subscribe(address, own.p256dh, own.auth, user=user)

    monkeypatch.setattr("stepvad.site.notify.push.MOST_BROWSERS", MOST_EACH + 2)
    add("token", 1)
    for n in range(MOST_EACH + 2):
        add("lena", n)
    add("lena", 5)
    found = [one.endpoint.rpartition("example/")[2] for one in subscriptions.all()]
    kept = ["lena/2", "lena/3", "lena/4", *(f"lena/{n}" for n in range(6, MOST_EACH + 2))]
    assert found == ["token/1", *kept, "lena/5"]
    add("jan", 1)
    add("lena", 99)  # a full site still renews and replaces
    with pytest.raises(DataError, match="end the notifications of another browser"):
        add("eva", 1)
    assert [one.user for one in subscriptions.all()].count("token") == 1
    assert subscriptions.remove(["https://push.example/token/1", "https://other.example"]) == 1


def test_threads_lose_no_subscription(subscriptions: PushSubscriptions, tmp_path: Path) -> None:
    def add(n: int) -> None:
        own = PushSubscriptions(tmp_path / "data")
        for m in range(2):
            subscribe(own, f"https://push.example/{n}/{m}")

    threads = [threading.Thread(target=add, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(subscriptions.all()) == 8


@pytest.mark.parametrize("text", ["", "[]", '{"browsers": [{}]}'])
def test_a_damaged_file_notifies_nobody_and_stops_nothing(
    subscriptions: PushSubscriptions, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(subscriptions, "https://push.example/1")
    file = tmp_path / "data" / "notifications" / "browsers.json"
    file.write_text(text)
    assert subscriptions.all() == []
    assert "damaged, so every browser must subscribe again" in caplog.text
    subscribe(subscriptions, "https://push.example/2")
    assert len(subscriptions.all()) == 1
    assert file.with_name("browsers.json.damaged").read_text() == text


def test_browsers_that_cannot_be_read_now_are_not_forgotten(
    subscriptions: PushSubscriptions, tmp_path: Path
) -> None:
    for n in range(5):
        subscribe(subscriptions, f"https://push.example/{n}")
    with unreadable(tmp_path / "data" / "notifications" / "browsers.json"):
        with pytest.raises(OSError, match=REASON):
            subscribe(subscriptions, "https://push.example/5")
        with pytest.raises(OSError, match=REASON):
            _ = BrowserTarget(subscriptions).has_people
    subscribe(subscriptions, "https://push.example/5")
    assert len(subscriptions.all()) == 6


def test_a_damaged_key_is_said(subscriptions: PushSubscriptions, tmp_path: Path) -> None:
    subscriptions.key()
    (tmp_path / "data" / "notifications" / "browser-key.pem").write_text("x")
    with pytest.raises(ConfigError, match="expected a private key"):
        BrowserTarget(subscriptions).describe()


@pytest.mark.parametrize(
    "endpoint",
    ["http://fcm.googleapis.com/x", "https://127.1/", "https://0x7f.1/", "https://10.0.0.1./x",
     "https://10.0.0.1.nip.io/x", "https://metadata.google.internal./x", "https://push.example/x",
     "https://me@fcm.googleapis.com/x", "https://fcm.googleapis.com:8443/x", "https://[::1",
     "https://fcm.googleapis.com.evil.example/", "https://evil.example\\.push.apple.com/",
     "https://fcm.googleapis.com/" + "x" * 2000],
)  # fmt: skip
def test_an_address_that_is_none_of_a_browsers_maker_is_refused(endpoint: str) -> None:
    with pytest.raises(DataError, match="subscription: expected"):
        check_endpoint(endpoint)


def test_the_push_services_of_browsers_are_accepted() -> None:
    for host in ("fcm.googleapis.com", "updates.push.services.mozilla.com", "web.push.apple.com",
                 "wns2-par02p.notify.windows.com"):  # fmt: skip
        check_endpoint(f"https://{host}/a/b?c")


def test_whoever_has_no_account_any_more_gets_no_message(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path / "accounts.db")
    subscriptions = PushSubscriptions(tmp_path)
    for name in ("ada", "bob"):
        accounts.create(name, "look")
        keys = Browser()
        subscriptions.subscribe(f"https://push.example.org/{name}", keys.p256dh, keys.auth, name)
    keys = Browser()
    subscriptions.subscribe("https://push.example.org/token", keys.p256dh, keys.auth)
    assert len(subscriptions.all()) == 3
    accounts.remove("bob")
    accounts.close()
    assert [one.account for one in subscriptions.all()] == ["ada", ""]
    assert [one.account for one in subscriptions._read()] == ["ada", ""]  # for good
