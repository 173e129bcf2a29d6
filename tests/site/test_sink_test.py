"""A test event for a sink: it goes where events go and leaves the site's own topics alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepvad.site.intake import demo
from stepvad.site.settings.sections import (
    CameraSettings,
    MqttSettings,
    Sinks,
    SiteSettings,
    WebhookSettings,
)
from stepvad.site.sinks import names, send_test
from tests.site.receivers import Broker
from tests.site.sinks.test_mqtt import Listener
from tests.video.servers import wait_until


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
