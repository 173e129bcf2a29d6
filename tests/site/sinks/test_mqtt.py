from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepvad.codec import to_plain
from stepvad.events.record import DeliveryError, MarkMessage, message
from stepvad.site.settings.sections import MqttSettings
from stepvad.site.sinks import mqtt as module
from stepvad.site.sinks.mqtt import Mqtt
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import SinkDelivery
from tests.pages import ROOT
from tests.site.receivers import Broker, certificate, start, stop
from tests.site.records import record
from tests.video.servers import CANARY, SLOWER, free_port, shows_nothing, wait_until

pytestmark = pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no Mosquitto")
DOWN_S = 60.0 if os.environ.get("STEPVAD_LONG_TESTS") else 4.0
"""How long the broker is away; a minute if the environment asks for the long tests."""
TOLD = message("new", None, record())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    made = Broker(tmp_path / "broker")
    made.start()
    yield made
    made.stop()


class Listener:
    """Somebody who is subscribed to everything on a broker."""

    def __init__(self, port: int, name: str = "listener") -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.got: list[tuple[str, str, bool]] = []
        client = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        client.on_connect = lambda client, *_: client.subscribe("#", 1)
        client.on_message = lambda client, data, one: self.got.append(
            (one.topic, one.payload.decode(), one.retain)
        )
        client.reconnect_delay_set(1, 1)
        client.connect("127.0.0.1", port)
        client.loop_start()
        self._client = client

    def last(self, topic: str) -> str | None:
        return next((text for name, text, _ in reversed(self.got) if name == topic), None)

    def all(self, topic: str) -> list[Any]:
        return [json.loads(text) for name, text, _ in self.got if name == topic]

    def say(self, topic: str, text: str) -> None:
        self._client.publish(topic, text, 1).wait_for_publish(5.0)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    made = Listener(broker.port)
    yield made
    made.close()


def connect(port: int, **changes: Any) -> Mqtt:
    facts = {"host": "127.0.0.1", "port": port, "prefix": "vad"} | changes
    return Mqtt(MqttSettings(**facts), site="home", cameras=["yard", "gate"])


def test_an_event_is_told_with_the_state_of_its_camera(broker: Broker, listener: Listener) -> None:
    sink = connect(broker.port)
    end = record().ended("calm", 1060.0)
    sink.send("new", TOLD)
    wait_until(lambda: listener.last("vad/yard/anomaly") == "ON")
    sink.send("end", message("end", record(), end))
    wait_until(lambda: listener.last("vad/yard/anomaly") == "OFF")
    late = message("update", end, replace(end, why="lying"))  # opens nothing again
    sink.send("update", late)
    sink.close()
    assert listener.last("vad/yard/anomaly") == "OFF"
    assert listener.all("vad/events") == [
        to_plain(TOLD),
        to_plain(message("end", record(), end)),
        to_plain(late),
    ]


def test_whoever_comes_later_knows_how_things_are(broker: Broker, listener: Listener) -> None:
    sink = connect(broker.port)
    sink.send("new", TOLD)
    sink.status("yard", "online")
    sink.status("gate", "failed")
    sink.load("gate", "not watching")
    wanted = {
        "vad/yard/load": "ok",
        "vad/gate/load": "not watching",
        "vad/available": "online",
        "vad/yard/status": "online",
        "vad/gate/status": "failed",
        "vad/yard/anomaly": "ON",
        "vad/gate/anomaly": "OFF",
    }
    wait_until(lambda: all(listener.last(topic) == text for topic, text in wanted.items()))
    later = Listener(broker.port, "later")
    wait_until(lambda: all(later.last(topic) == text for topic, text in wanted.items()))
    assert all(retained for topic, _, retained in later.got if topic in wanted)
    assert later.all("vad/events") == []  # news is not retained
    sink.close()
    wait_until(lambda: later.last("vad/available") == "offline")
    wait_until(lambda: later.last("vad/yard/status") == "offline")
    later.close()


def test_marks_arrive_if_the_settings_accept_them(
    broker: Broker, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[MarkMessage] = []
    deaf, sink = connect(broker.port), connect(broker.port, marks=True)
    for one in (deaf, sink):
        one.on_mark = taken.append
        one.send("new", TOLD)
    texts = ("{", "[]", '{"id": "a"}', '{"id": "a", "mark": "odd"}', '{"id": 3, "mark": null}')
    # a message that would fill the memory does not leave the broker
    listener.say("vad/marks", '{"id": "large", "mark": "normal"}' + " " * 1_000_000)
    for text in (*texts, '{"id": "a", "mark": "normal"}', '{"id": "b", "mark": null}'):
        listener.say("vad/marks", text)
    wait_until(lambda: MarkMessage("b", None) in taken)
    sink.close()
    deaf.close()
    assert taken == [MarkMessage("a", "normal"), MarkMessage("b", None)]
    assert caplog.text.count("a message on vad/marks is ignored") == 1  # not one line for each


def test_home_assistant_is_told_of_every_camera(broker: Broker) -> None:
    sink = connect(broker.port)
    sink.send("new", TOLD)
    later = Listener(broker.port)
    wait_until(lambda: sum(topic.startswith("homeassistant/") for topic, *_ in later.got) == 6)
    told = {topic: text for topic, text, kept in later.got if topic.startswith("homeassistant/")}
    configs = [json.loads(text) for text in told.values()]
    assert len({config["unique_id"] for config in configs}) == 6
    anomaly = json.loads(told["homeassistant/binary_sensor/stepvad_home_yard/anomaly/config"])
    assert anomaly["state_topic"] == "vad/yard/anomaly"
    assert (anomaly["payload_on"], anomaly["payload_off"]) == ("ON", "OFF")
    assert [one["topic"] for one in anomaly["availability"]] == ["vad/available", "vad/yard/status"]
    assert anomaly["device"]["identifiers"] == ["stepvad_home_yard"]
    published = {topic for topic, *_ in later.got}
    for config in configs:
        assert config["state_topic"] in published
        assert {one["topic"] for one in config["availability"]} <= published
    sink.close()
    later.close()


def test_home_assistant_need_not_be_told(broker: Broker, listener: Listener) -> None:
    sink = connect(broker.port, discovery_prefix="")
    sink.send("new", TOLD)
    wait_until(lambda: listener.last("vad/yard/anomaly") == "ON")
    sink.close()
    assert not any("config" in topic for topic, *_ in listener.got)


SITE = """
import sys, time
from stepvad.site.settings import sections as settings
from stepvad.site.sinks.mqtt import Mqtt
sink = Mqtt(
    settings.MqttSettings(host="127.0.0.1", port=int(sys.argv[1]), prefix="vad"), site="home",
    cameras=["yard"],
)
sink.status("yard", "online")
time.sleep(60)
"""


@pytest.mark.slow
def test_a_site_that_is_killed_is_offline_by_its_last_will(
    broker: Broker, listener: Listener
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SITE, str(broker.port)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    ) as process:
        wait_until(lambda: listener.last("vad/available") == "online")
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: listener.last("vad/available") == "offline", 5)


def test_an_event_that_ended_while_the_site_was_down_leaves_no_sensor_on(
    broker: Broker, listener: Listener, tmp_path: Path
) -> None:
    # killed with an open event: the broker retains that something happens
    store = Store(tmp_path / "events.db", ["mqtt"])
    store.change("new", record())
    killed = connect(broker.port)
    killed.send("new", TOLD)
    wait_until(lambda: listener.last("vad/yard/anomaly") == "ON")
    killed._client.loop_stop()
    store.close()
    # the next start ends the event and has both messages to deliver, the first one again
    store = Store(tmp_path / "events.db", ["mqtt"])
    assert store.end_interrupted(2000.0)
    delivery = SinkDelivery(store.outbox, connect(broker.port))
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    wait_until(lambda: listener.last("vad/yard/anomaly") == "OFF")
    assert [one["type"] for one in listener.all("vad/events")] == ["new", "new", "end"]
    stop(running, delivery)
    store.close()


@pytest.mark.slow
def test_a_broker_that_was_away_gets_everything_in_order(
    broker: Broker, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    store = Store(tmp_path / "events.db", ["mqtt"])
    sink = connect(broker.port)
    delivery = SinkDelivery(store.outbox, sink)
    running = start(delivery)
    wanted = []

    def happen(number: int) -> None:
        store.change("new", record(number=number))
        store.change("end", record(number=number).ended("calm", 2000.0))
        wanted.extend([("new", number), ("end", number)])

    def got() -> list[tuple[str, int]]:
        events = listener.all("vad/events")
        return [*dict.fromkeys((one["type"], one["after"]["frame_seq"]) for one in events)]

    happen(0)
    wait_until(lambda: got() == wanted and store.outbox.lag("mqtt") == 0)
    broker.stop()
    began = time.monotonic()
    for number in range(1, 30):
        happen(number)
        sink.status("gate", "online" if number % 2 else "offline")
    time.sleep(max(DOWN_S - (time.monotonic() - began), 0))
    assert delivery.failures > 0
    assert store.outbox.lag("mqtt") == 58
    broker.start()
    took = wait_until(lambda: delivery.is_idle)
    wait_until(lambda: got() == wanted)
    wait_until(lambda: listener.last("vad/gate/status") == "online")
    assert listener.last("vad/yard/anomaly") == "OFF"
    assert took < 3 * SLOWER
    stop(running, delivery)
    store.close()


@pytest.mark.slow
def test_a_broker_that_hangs_gets_everything_once_it_goes_on(
    broker: Broker, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    store = Store(tmp_path / "events.db", ["mqtt"])
    delivery = SinkDelivery(store.outbox, connect(broker.port))
    running = start(delivery)
    store.change("new", record(number=0))
    wait_until(lambda: delivery.sent == 1)
    broker.process.send_signal(signal.SIGSTOP)
    store.change("new", record(number=1))
    wait_until(lambda: delivery.failures > 1)
    assert store.outbox.lag("mqtt") == 1
    assert "expected an acknowledgement" in str(delivery.last_error)
    broker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    numbers = [one["after"]["frame_seq"] for one in listener.all("vad/events")]
    assert [*dict.fromkeys(numbers)] == [0, 1]
    store.close()


def test_nobody_waits_for_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    sink = connect(free_port())
    begin = time.monotonic()
    sink.status("yard", "online")
    assert time.monotonic() - begin < 0.05 * SLOWER
    with pytest.raises(DeliveryError, match="expected a connection, got: nobody who answers"):
        sink.send("new", TOLD)
    sink.close()


def test_a_broker_asks_for_user_and_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-c", "-b", users, "site", CANARY], check=True)
    users.chmod(0o600)
    broker = Broker(tmp_path, "allow_anonymous false", f"password_file {users}")
    broker.start()
    monkeypatch.setenv("BROKER_PASSWORD", CANARY)
    sink = connect(broker.port, username="site", password="env:BROKER_PASSWORD")
    sink.send("new", TOLD)
    sink.close()
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    monkeypatch.setenv("BROKER_PASSWORD", f"{CANARY}-wrong")
    sink = connect(broker.port, username="site", password="env:BROKER_PASSWORD")
    with pytest.raises(DeliveryError, match="Not authorized") as caught:
        sink.send("new", TOLD)
    assert shows_nothing(caught.value)
    sink.close()
    broker.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's socket
def test_a_broker_is_spoken_to_in_secret_and_only_if_its_certificate_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate(tmp_path)
    lines = [f"certfile {tmp_path}/certificate", f"keyfile {tmp_path}/key", "allow_anonymous true"]
    broker = Broker(tmp_path, *lines)
    broker.start()
    monkeypatch.setattr(module, "ANSWER_S", 1.0)
    stranger = connect(broker.port, tls=True)
    with pytest.raises(DeliveryError, match="trusted certificate"):
        stranger.send("new", TOLD)
    stranger.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate"))
    sink = connect(broker.port, tls=True)
    sink.send("new", TOLD)
    sink.close()
    broker.stop()
