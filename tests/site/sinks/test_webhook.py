"""Webhooks and lines of JSON in a file."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepvad.codec import encode, to_plain
from stepvad.events.record import DeliveryError, RefusedError, message
from stepvad.site.settings.sections import WebhookSettings
from stepvad.site.sinks.webhook import JsonLines, Webhook, cloud_event
from stepvad.site.stages import set_up
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import SinkDelivery
from tests.pages import ROOT
from tests.site.receivers import WebServer, certificate, proxy_process, start, stop, web_server
from tests.site.records import record
from tests.video.servers import CANARY, SLOWER, free_port, shows_nothing, silent_server, wait_until

TOLD = message("new", None, record())


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBHOOK_KEY", CANARY)


MADE: list[Webhook] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


def webhook(address: str, **changes: Any) -> Webhook:
    facts = {"name": "hook", "url": address, "secret": "env:WEBHOOK_KEY"} | changes
    MADE.append(Webhook(WebhookSettings(**facts), site="home", clock=lambda: 1700000000.9))
    return MADE[-1]


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
        "data": to_plain(TOLD),
    }


def test_a_message_that_arrives_leaves_no_line_in_the_log_of_a_site(
    server: WebServer, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before = root.handlers, root.level
    try:
        set_up("text")
        webhook(f"{server.address}/hooks/{CANARY}").send("new", TOLD)
        logging.getLogger("stepvad.site.app").info("watches")
    finally:
        root.handlers, level = before
        root.setLevel(level)
    assert len(server.got) == 1
    (line,) = capsys.readouterr().err.splitlines()  # the path of a webhook may be a secret
    assert line.endswith("info: watches")


def test_the_id_of_a_message_is_the_same_each_time_and_no_other_has_it() -> None:
    update = message("update", record(), record(score=5.0))
    other = message("update", record(), record(version=6))
    again = replace(update, stored=False)
    ids = [cloud_event("update", one, "home")["id"] for one in (update, other, again)]
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


@pytest.mark.parametrize("status", [400, 406, 411, 413, 414, 415, 417, 422, 431])
def test_what_is_wrong_with_a_message_is_refused_at_once(server: WebServer, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(RefusedError, match=f"expected 2xx, got {status}"):
        webhook(server.address).send("new", TOLD)


@pytest.mark.parametrize(
    "status",
    [
        *(401, 402, 403, 404, 405, 407, 409, 410, 418, 426, 451, 501, 505, 301, 302, 307, 308),
        *(408, 421, 423, 425, 429, 500, 502, 503, 504, 599),
    ],
)
def test_other_failures_are_tried_again_for_ever(server: WebServer, status: int) -> None:
    server.statuses = [status]
    server.headers = {"Retry-After": "7", "Location": f"{server.address}/elsewhere"}
    with pytest.raises(DeliveryError, match=f"expected 2xx, got {status}") as caught:
        webhook(server.address).send("new", TOLD)
    assert not isinstance(caught.value, RefusedError)
    assert caught.value.after_s == 7
    assert len(server.got) == 1, "a redirect is not followed"


def test_a_wrong_password_for_a_minute_costs_no_message(server: WebServer, tmp_path: Path) -> None:
    store = Store(tmp_path / "events.db", ["webhook:hook"])
    store.change("new", record())
    server.statuses = [401, 403, 404]
    delivery = SinkDelivery(store.outbox, webhook(server.address), first_s=0.01)
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    assert store.outbox.dead_letters() == []
    assert len(server.got) == 4
    store.close()


def test_a_connection_is_used_again(server: WebServer) -> None:
    sink = webhook(server.address)
    for status in (204, 503, 204, 204):
        server.statuses = [status]
        with nullcontext() if status == 204 else pytest.raises(DeliveryError):
            sink.send("new", TOLD)
    assert len({one.client for one in server.got}) == 1
    server.hang_up()
    sink.send("new", TOLD)
    assert len({one.client for one in server.got}) == 2


@contextmanager
def talking_server(say: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and answers as it likes, until the other side hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                say(connection)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(30)
        assert not thread.is_alive()


def drip(connection: socket.socket, head: bytes, drop: bytes) -> None:
    connection.sendall(head)
    for _ in range(200):
        connection.sendall(drop)
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_an_answer_that_drips_is_an_error_in_time(head: bytes, drop: bytes) -> None:
    with talking_server(lambda connection: drip(connection, head, drop)) as address:
        sink = webhook(address, timeout_s=0.7)
        begun = time.monotonic()
        with pytest.raises(DeliveryError, match="timed out"):
            sink.send("new", TOLD)
        assert time.monotonic() - begun < 1.5 * SLOWER


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    sent = [0]

    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            sent[0] += connection.send(bytes(1 << 16))

    with talking_server(pour) as address:
        webhook(address).send("new", TOLD)
    assert sent[0] < 50e6


def test_a_message_goes_through_the_proxy_of_the_environment(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with proxy_process(tmp_path) as (address, log):
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("no_proxy", "")
        webhook(f"{server.address}/hook").send("new", TOLD)
        assert [one.path for one in server.got] == ["/hook"]
        assert f"POST {server.address}/hook" in log.read_text()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        webhook(f"{server.address}/direct").send("new", TOLD)
        assert "/direct" not in log.read_text()
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(DeliveryError, match="refused"):
        webhook(server.address).send("new", TOLD)


def test_a_receiver_that_is_not_there_or_says_nothing_is_an_error_in_time() -> None:
    with pytest.raises(DeliveryError, match="refused"):
        webhook(f"http://127.0.0.1:{free_port()}/").send("new", TOLD)
    with silent_server() as address:
        port = address.rpartition(":")[2].partition("/")[0]
        sink = webhook(f"http://127.0.0.1:{port}/", timeout_s=0.3)
        with pytest.raises(DeliveryError, match="timed out"):
            sink.send("new", TOLD)


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
    delivery = SinkDelivery(store.outbox, webhook(server.address), first_s=0.01)
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    seen = [json.loads(one.body)["data"]["after"]["frame_seq"] for one in server.got]
    assert seen == [0, 0, 0, 1, 2, 2, 3]
    ids = [json.loads(one.body)["id"] for one in server.got]
    assert len({*ids}) == 4
    assert [dead.message.after.frame_seq for dead in store.outbox.dead_letters()] == [1]
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


def test_every_message_is_a_line(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    second = message("new", None, record("Höf", why="a\nb"))
    sink.send("new", TOLD)
    sink.send("new", second)
    text = (tmp_path / "events.jsonl").read_text("utf-8")
    assert [json.loads(line) for line in text.splitlines()] == [to_plain(TOLD), to_plain(second)]
    assert text.endswith("\n")
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    sink.send("new", TOLD)
    (tmp_path / "events.jsonl").rename(tmp_path / "old")
    sink.send("new", TOLD)
    assert len((tmp_path / "events.jsonl").read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize("whole", [0, 1, 3])
@pytest.mark.parametrize("torn", [1, 20, None])
def test_a_line_that_was_cut_off_is_removed(tmp_path: Path, whole: int, torn: int | None) -> None:
    line = encode(TOLD).decode()
    path = tmp_path / "events.jsonl"
    path.write_text(f"{line}\n" * whole + line[:torn])
    JsonLines(path).send("new", TOLD)
    assert path.read_text("utf-8") == f"{line}\n" * (whole + 1)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"no/events\.jsonl: expected .* No such file"):
        JsonLines(tmp_path / "no" / "events.jsonl").send("new", TOLD)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    sink.send("new", TOLD)
    before = (tmp_path / "events.jsonl").read_bytes()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:30]))
        with pytest.raises(DeliveryError, match="30 of"):
            sink.send("new", TOLD)
    assert (tmp_path / "events.jsonl").read_bytes() == before
    sink.send("new", TOLD)
    assert (tmp_path / "events.jsonl").read_bytes() == before * 2


WRITER = """
import sys
from pathlib import Path
from stepvad.site.sinks import SinkDelivery
from stepvad.site.sinks.webhook import JsonLines
from stepvad.site.store.events import Store

store = Store(Path(sys.argv[1]), ["file"])
print("ready", flush=True)
SinkDelivery(store.outbox, JsonLines(Path(sys.argv[2]))).stage.run()
"""


@pytest.mark.slow
def test_every_event_is_in_the_file_whoever_is_killed(tmp_path: Path) -> None:
    store = Store(tmp_path / "events.db", ["file"])
    path = tmp_path / "events.jsonl"
    for turn in range(5):
        for number in range(20 * turn, 20 * turn + 20):
            store.change("new", record(number=number, why="long " * 500))
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.path), str(path)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.02 * turn)
            process.send_signal(signal.SIGKILL)
    delivery = SinkDelivery(store.outbox, JsonLines(path))
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    got = [json.loads(line)["after"]["frame_seq"] for line in path.read_text().splitlines()]
    assert [*dict.fromkeys(got)] == [*range(100)]
    assert len(got) <= 105  # one may come twice each time somebody is killed
    store.close()
