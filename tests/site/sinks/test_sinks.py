"""The sinks that settings name, and tests of one of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepvad.errors import MissingExtraError
from stepvad.events.record import MarkMessage, SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.site import demo
from stepvad.site.app import Site
from stepvad.site.settings.sections import (
    CameraSettings,
    MqttSettings,
    Sinks,
    SiteSettings,
    WebhookSettings,
)
from stepvad.site.sinks import connect, connect_people, names, send_test
from stepvad.site.store.events import Store
from tests.site.receivers import Broker
from tests.site.sinks.test_mqtt import Listener
from tests.video.servers import free_port, wait_until


def settings(sinks: Sinks) -> SiteSettings:
    camera = CameraSettings(name="gate", url="demo:")
    return SiteSettings(model=demo.MODEL, cameras=[camera], sinks=sinks)


@pytest.mark.slow
def test_a_broker_hears_of_a_test_below_a_topic_of_its_own(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    listener = Listener(broker.port)
    try:
        mqtt = MqttSettings(host="127.0.0.1", port=broker.port, prefix="vad")
        send_test(settings(Sinks(mqtt=mqtt)), "mqtt")
        wait_until(lambda: len(listener.all("vad/test/events")) == 2)
        new, end = listener.all("vad/test/events")
        assert (new["type"], end["type"], new["after"]["label"]) == ("new", "end", "test")
        assert listener.last("vad/test/gate/anomaly") == "OFF"
        topics = {topic for topic, _, _ in listener.got}
        assert all(topic.startswith("vad/test/") for topic in topics), topics
        assert "homeassistant" not in json.dumps([*topics])
    finally:
        listener.close()
        broker.stop()


def test_each_sink_is_found_by_its_name_alone(tmp_path: Path) -> None:
    hooks = [WebhookSettings(name=name, url="http://127.0.0.1:9/") for name in ("a", "b")]
    sinks = Sinks.model_validate({"webhooks": hooks, "file": {"path": tmp_path / "events.jsonl"}})
    assert names(sinks) == ("webhook:a", "webhook:b", "file")
    send_test(settings(sinks), "file")
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2


def site(text: str) -> Sinks:
    import tomllib

    return Sinks.model_validate(tomllib.loads(text))


def whole_site(sinks: Sinks) -> SiteSettings:
    camera = CameraSettings(name="yard", url="demo:")
    return SiteSettings(model=Path("model"), cameras=[camera], sinks=sinks)


def test_the_store_is_told_the_names_that_the_sinks_have(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = site(
        f"""
        [mqtt]
        host = "127.0.0.1"
        port = {free_port()}
        [[webhooks]]
        name = "mqtt"
        url = "http://127.0.0.1/a"
        [[webhooks]]
        name = "file"
        url = "http://127.0.0.1/b"
        [file]
        path = "{tmp_path}/events.jsonl"
        [[notify]]
        name = "guards"
        to = ["browsers", "env:ADDRESS"]
        [[notify]]
        name = "boss"
        to = ["env:ADDRESS"]
        """
    )
    monkeypatch.setenv("ADDRESS", "ntfy://ntfy.sh/x")
    chosen = names(sinks)
    made = [
        *connect(whole_site(sinks), chosen),
        *connect_people(whole_site(sinks), chosen, store),
    ]
    found = [sink.name for sink in made]
    for sink in made:
        sink.close()
    people = ["notify:guards", "notify:guards:2", "notify:boss"]
    assert found == [*names(sinks)] == ["mqtt", "webhook:mqtt", "webhook:file", "file", *people]


def test_a_site_may_have_no_sinks() -> None:
    sinks = Sinks()
    assert names(sinks) == ()
    assert [*connect(whole_site(sinks), names(sinks))] == []


def test_a_broker_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingExtraError, match="MQTT needs the live extra"):
        next(connect(whole_site(site('[mqtt]\nhost = "127.0.0.1"')), ["mqtt"]))


class Connecting:
    """A sink that connects again by itself and takes marks."""

    name = "mqtt"

    def __init__(self) -> None:
        self.on_connected: Callable[[], None] = lambda: None
        self.on_mark: Callable[[MarkMessage], None] = lambda mark: None

    def send(self, kind: ChangeKind, message: SinkMessage) -> None: ...

    def close(self) -> None: ...


def test_a_broker_that_is_back_is_served_at_once_and_its_marks_are_heard(tmp_path: Path) -> None:
    made, broker = Site(settings(Sinks()).model_copy(update={"data": tmp_path})), Connecting()
    delivery = made._connect(broker)
    assert broker.on_connected == delivery.wake
    broker.on_mark(MarkMessage("one", "normal"))
    assert len(made.pipeline.tasks) == 1
    made.store.close()
