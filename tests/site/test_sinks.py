from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepvad.errors import MissingExtraError
from stepvad.settings import file as settings
from stepvad.site.sinks import connect, names, to_people
from stepvad.site.store.eventstore import Store
from tests.video.servers import free_port


def site(text: str) -> settings.Sinks:
    import tomllib

    return settings.Sinks.model_validate(tomllib.loads(text))


def whole_site(sinks: settings.Sinks) -> settings.SiteSettings:
    camera = settings.CameraSettings(name="yard", url="demo:")
    return settings.SiteSettings(model=Path("model"), cameras=[camera], sinks=sinks)


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
    made = [*connect(whole_site(sinks)), *to_people(whole_site(sinks), store)]
    found = [sink.name for sink in made]
    for sink in made:
        sink.close()
    people = ["notify:guards", "notify:guards:2", "notify:boss"]
    assert found == [*names(sinks)] == ["mqtt", "webhook:mqtt", "webhook:file", "file", *people]


def test_a_site_may_have_no_sinks() -> None:
    sinks = settings.Sinks()
    assert names(sinks) == ()
    assert [*connect(whole_site(sinks))] == []


def test_a_broker_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingExtraError, match="MQTT needs the live extra"):
        next(connect(whole_site(site('[mqtt]\nhost = "127.0.0.1"'))))
