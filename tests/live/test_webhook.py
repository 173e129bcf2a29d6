from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepvad.live import settings
from stepvad.live.courier import Courier
from stepvad.live.record import message
from stepvad.live.sinks import DeliveryError, RefusedError
from stepvad.live.sinks.webhook import Webhook, cloud_event
from stepvad.live.store import Store
from tests.live.receivers import WebServer, certificate, web_server
from tests.live.records import record
from tests.video.servers import CANARY, free_port, shows_nothing, silent_server, wait_until

TOLD = message("new", None, record())


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBHOOK_KEY", CANARY)


def webhook(address: str, **changes: Any) -> Webhook:
    facts = {"name": "hook", "url": address, "secret": "env:WEBHOOK_KEY"} | changes
    return Webhook(settings.Webhook(**facts), site="home", clock=lambda: 1700000000.9)


def test_a_message_is_a_cloud_event(server: WebServer) -> None:
    webhook(f"{server.address}/hooks/a?b=c").send("new", TOLD)
    (got,) = server.got
    assert got.path == "/hooks/a?b=c"
    assert got.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    event = json.loads(got.body)
    assert event.pop("id").startswith(f"{record().id}-new-")
    assert event == {
        "specversion": "1.0",
        "source": "/stepvad/home/yard",
        "type": "dev.stepvad.event.new",
        "subject": record().id,
        "time": "1970-01-01T00:16:40+00:00",
        "datacontenttype": "application/json",
        "data": TOLD,
    }


def test_the_id_of_a_message_is_the_same_each_time_and_no_other_has_it() -> None:
    update = message("update", record(), record(score=5.0))
    other = message("update", record(), record(score=6.0))
    ids = [cloud_event("update", one, "home")["id"] for one in (update, other, update)]
    assert ids[0] == ids[2] != ids[1]
    end = record().ended("calm", 1060.5)
    told = cloud_event("end", message("end", record(), end), "home")
    assert told["time"] == "1970-01-01T00:17:40.500000+00:00"
    assert "time" not in cloud_event("update", update, "home")


def test_the_signature_is_what_openssl_makes_of_time_and_body(
    server: WebServer, tmp_path: Path
) -> None:
    webhook(server.address).send("new", TOLD)
    (got,) = server.got
    assert got.headers["Stepvad-Timestamp"] == "1700000000"
    made = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", CANARY, "-hex"],
        input=b"1700000000." + got.body,
        capture_output=True,
        check=True,
    )
    assert got.headers["Stepvad-Signature"] == f"v1={made.stdout.split()[-1].decode()}"


def test_without_a_key_nothing_is_signed(server: WebServer) -> None:
    webhook(server.address, secret=None).send("new", TOLD)
    assert "Stepvad-Signature" not in server.got[0].headers


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422])
def test_what_is_refused_is_refused_for_good(server: WebServer, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(RefusedError, match=f"expected 2xx, got {status}"):
        webhook(server.address).send("new", TOLD)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 302, 307])
def test_other_failures_may_be_tried_again(server: WebServer, status: int) -> None:
    server.statuses = [status]
    server.headers = {"Retry-After": "7", "Location": f"{server.address}/elsewhere"}
    with pytest.raises(DeliveryError, match=f"expected 2xx, got {status}") as caught:
        webhook(server.address).send("new", TOLD)
    assert not isinstance(caught.value, RefusedError)
    assert caught.value.after_s == (0 if status < 400 else 7)
    assert len(server.got) == 1  # a redirect is not followed


def test_a_receiver_that_is_not_there_or_says_nothing_is_an_error_in_time() -> None:
    with pytest.raises(DeliveryError, match="refused"):
        webhook(f"http://127.0.0.1:{free_port()}/").send("new", TOLD)
    with silent_server() as address:
        port = address.rpartition(":")[2].partition("/")[0]
        sink = webhook(f"http://127.0.0.1:{port}/", timeout_s=0.3)
        with pytest.raises(DeliveryError, match="timed out"):
            sink.send("new", TOLD)


def test_a_receiver_that_talks_nonsense_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(f"{CANARY} /secret-path\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        sink = webhook(f"http://127.0.0.1:{listener.getsockname()[1]}/secret-path?token=abc")
        with pytest.raises(DeliveryError) as caught:
            sink.send("new", TOLD)
        thread.join()
    assert "secret-path" not in str(caught.value)
    assert shows_nothing(caught.value)


def test_no_error_shows_the_key_or_the_path_of_an_address(server: WebServer) -> None:
    for statuses in ([404], [500], [301]):
        server.statuses = statuses
        sink = webhook(f"{server.address}/T0/{CANARY}?token={CANARY}")
        with pytest.raises(DeliveryError) as caught:
            sink.send("new", TOLD)
        assert shows_nothing(caught.value)
        assert server.address in str(caught.value)


def test_a_receiver_that_recovers_gets_everything_in_order(
    server: WebServer, tmp_path: Path
) -> None:
    store = Store(tmp_path / "events.db", ["webhook:hook"])
    server.statuses = [503, 500, 204, 400, 429]
    for number in range(4):
        store.change("new", record(number=number))
    courier = Courier(store, webhook(server.address), first_s=0.01)
    courier.start()
    wait_until(lambda: courier.is_idle)
    courier.stop()
    seen = [json.loads(one.body)["data"]["after"]["frame_seq"] for one in server.got]
    assert seen == [0, 0, 0, 1, 2, 2, 3]
    ids = [json.loads(one.body)["id"] for one in server.got]
    assert len({*ids}) == 4
    assert [dead.message["after"]["frame_seq"] for dead in store.dead_letters()] == [1]
    store.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with pytest.raises(ssl.SSLError), context.wrap_socket(connection, server_side=True):
                pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DeliveryError, match="certificate verify failed"):
            webhook(f"https://localhost:{listener.getsockname()[1]}/").send("new", TOLD)
        thread.join()
