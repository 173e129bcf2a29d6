"""Apprise against real servers: mail, ntfy and plain JSON."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from stepvad.errors import ConfigError, MissingExtraError
from stepvad.events.record import DeliveryError
from stepvad.site.notify.people import AppriseTarget, SendingProcess, service_of, without
from stepvad.site.notify.words import Notice
from tests.site.notify.services import mail_server, text_of
from tests.site.receivers import web_server
from tests.video.servers import free_port, wait_until

pytestmark = pytest.mark.slow
NOTICE = Notice(
    "Yard, door",
    "Someone is moving unusually: left leg *bends* <far> more: than usual. 14:03:22",
    "https://mill.example.org/#event/ab-1-2-3",
)


def target(
    monkeypatch: pytest.MonkeyPatch, url: str, process: SendingProcess | None = None
) -> AppriseTarget:
    monkeypatch.setenv("ADDRESS", url)
    return AppriseTarget("env:ADDRESS", process)


def test_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        url = f"mailto://127.0.0.1:{server.port}?to=guard@example.org&from=site@example.org"
        one = target(monkeypatch, url)
        assert one.describe() == "a mailto address"
        assert one.deliver(NOTICE) == "the mailto service took it"
    (mail,) = server.got
    assert mail["Subject"] == "Yard, door"
    assert mail["To"] == "guard@example.org"
    assert "site@example.org" in mail["From"]
    assert text_of(mail).strip().splitlines() == NOTICE.text.splitlines()


def test_mail_that_the_server_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        server.answer = "554 no"
        url = f"mailto://127.0.0.1:{server.port}?to=guard@example.org&from=site@example.org"
        with pytest.raises(DeliveryError, match=r"^mailto of env:ADDRESS: expected the service"):
            target(monkeypatch, url).deliver(NOTICE)
    assert server.got == []


def test_ntfy(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as server:
        server.statuses = [200]
        address = server.address.removeprefix("http://")
        target(monkeypatch, f"ntfy://{address}/topic-of-mill?priority=high").deliver(NOTICE)
    (got,) = server.got
    facts = json.loads(got.body)
    assert facts["topic"] == "topic-of-mill"
    assert (facts["title"], facts["message"]) == (NOTICE.title, NOTICE.text)
    assert "github" not in str(got.headers) + str(facts), "no picture from elsewhere"


def test_what_a_service_says_is_repeated_without_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with web_server() as server:
        server.statuses = [403]
        address = server.address.removeprefix("http://")
        one = target(monkeypatch, f"ntfy://guard:pass-word-7@{address}/topic-of-mill")
        with pytest.raises(DeliveryError) as caught:
            one.deliver(NOTICE)
    said = str(caught.value)
    assert "403" in said
    assert "expected the service to take a message, got: Failed to send ntfy" in said
    for part in ("pass-word-7", "topic-of-mill", "guard", "127.0.0.1"):
        assert part not in said


def test_any_of_a_hundred_services(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as server:
        server.statuses = [200]
        target(monkeypatch, f"json://{server.address.removeprefix('http://')}/hook").deliver(NOTICE)
    facts = json.loads(server.got[0].body)
    assert (facts["title"], facts["message"]) == (NOTICE.title, NOTICE.text)


def test_nobody_who_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    one = target(monkeypatch, f"ntfy://127.0.0.1:{free_port()}/topic-of-mill")
    with pytest.raises(DeliveryError, match="A Connection error"):
        one.deliver(NOTICE)


@pytest.mark.parametrize("url", ["hundred://x", "no-address", "tgram://short"])
def test_an_address_that_apprise_does_not_know(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    one = target(monkeypatch, url)
    with pytest.raises(ConfigError, match="env:ADDRESS: expected an address that Apprise knows"):
        one.describe()


def test_a_service_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"json://127.0.0.1:{port}/?rto=600&cto=600"
        began = time.monotonic()
        with pytest.raises(DeliveryError, match="got: no answer in 3 s"):
            target(monkeypatch, url, SendingProcess(3)).deliver(NOTICE)
        assert time.monotonic() - began < 10


def test_a_send_can_be_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/?rto=600&cto=600"
        one = target(monkeypatch, url)
        caught: list[DeliveryError] = []

        def send() -> None:
            with pytest.raises(DeliveryError) as error:
                one.deliver(NOTICE)
            caught.append(error.value)

        thread = threading.Thread(target=send)
        thread.start()
        with silent.accept()[0]:
            one.cancel()
            assert wait_until(lambda: bool(caught)) < 5
        thread.join()
    with pytest.raises(DeliveryError, match="the site is stopping"):
        one.deliver(NOTICE)


def test_a_child_ends_by_itself_when_its_parent_is_gone(tmp_path: Path) -> None:
    import subprocess

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/?rto=600&cto=600"
        task = {"task": "notify", "url": url, "title": "t", "body": "b", "deadline_s": 1}
        child = [sys.executable, "-m", "stepvad.site.notify.sending_child"]
        done = subprocess.run(child, input=json.dumps(task).encode(), timeout=20, check=False)
    assert done.returncode < 0, "the alarm rang"


def test_every_part_of_an_address_is_hidden() -> None:
    url = "tgram://123456:AbC-def_gh/4711?format=text&x=sec%20ret"
    text = f"no {url} nor bot123456:abc-def_gh nor /4711 nor sec%20ret nor sec ret, format"
    hidden = without(url, text)
    for part in ("123456", "AbC", "abc-def", "4711", "sec"):
        assert part not in hidden
    assert hidden.endswith("format")
    assert service_of(url) == "tgram"
    assert service_of("hunter2") == "unknown"


def test_notifications_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepvad.site.notify.people.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="needs the notify extra"):
        target(monkeypatch, "ntfy://ntfy.sh/x")
