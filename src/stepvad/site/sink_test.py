"""A test event for one sink of a site."""

from __future__ import annotations

import secrets
import time

from stepvad.errors import ConfigError
from stepvad.incidents.record import Record, event_id, message
from stepvad.incidents.sink import Sink
from stepvad.settings.sections import Sinks, SiteSettings
from stepvad.site.notify.people import sink_names, target_of, words_of
from stepvad.site.sinks.delivery import connect, names

LABEL = "test"
WHY = "a test of this sink, sent from the settings page"
LASTS_S = 1.0
TEST_TOPIC = "test"
"""Below the prefix of a broker: a second client must not end the retained states of the site."""


def send_test(settings: SiteSettings, name: str) -> None:
    """Send a new event and its end through a connection of its own; to people, a message.

    Raises a StepvadError that says what went wrong.
    """
    for found, people, to in sink_names(settings.sinks):
        if found == name:
            target_of(to, settings).send(words_of(settings).test(people.name))
            return
    sink = _connected(settings, name)
    try:
        began = time.time()
        opened = _record(settings, began)
        over = opened.ended("calm", began + LASTS_S)
        sink.send("new", message("new", None, opened))
        sink.send("end", message("end", opened, over))
    finally:
        sink.close()


def _connected(settings: SiteSettings, name: str) -> Sink:
    for sinks in _each(settings.sinks):
        if names(sinks) == (name,):
            alone = settings.model_copy(update={"sinks": _apart(sinks), "cameras": []})
            return next(iter(connect(alone)))
    known = ", ".join(names(settings.sinks)) or "none"
    raise ConfigError(f"sink: expected one of the site, got {name!r}", hint=f"its sinks: {known}")


def _each(sinks: Sinks) -> list[Sinks]:
    """The sinks one by one, each in settings of its own."""
    found = []
    for field in type(sinks).model_fields:
        value = getattr(sinks, field)
        many = value if isinstance(value, list) else [value]
        for one in many:
            if one is not None:
                update = {field: [one] if isinstance(value, list) else one}
                found.append(Sinks().model_copy(update=update))
    return found


def _apart(sinks: Sinks) -> Sinks:
    """The same sink; a broker with topics apart from those of the site."""
    if sinks.mqtt is None:
        return sinks
    prefix = f"{sinks.mqtt.prefix}/{TEST_TOPIC}"
    mqtt = sinks.mqtt.model_copy(update={"prefix": prefix, "discovery_prefix": ""})
    return sinks.model_copy(update={"mqtt": mqtt})


def _record(settings: SiteSettings, began: float) -> Record:
    camera = settings.cameras[0].name
    return Record(
        id=event_id(f"test {camera}", secrets.randbelow(2**31), 1, 0),
        camera=camera,
        label=LABEL,
        score=1.0,
        top_score=1.0,
        start_time=began,
        model_id=LABEL,
        model_sha256="0" * 64,
        track_id=1,
        tracks=(1,),
        epoch=0,
        frame_seq=0,
        confidence=1.0,
        threshold=1.0,
        why=WHY,
    )
