"""The sinks that a site's settings name, for machines and for people: made, listed, tested."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Sequence

from stepvad.errors import ConfigError
from stepvad.events.record import Record, Sink, event_id, message
from stepvad.site.notify import plan
from stepvad.site.notify.people import AppriseTarget, Target
from stepvad.site.notify.push import BrowserTarget, PushSubscriptions
from stepvad.site.notify.words import NoticeWords, page_address
from stepvad.site.settings.page import BROWSERS, NotifySettings, Section
from stepvad.site.settings.sections import Sinks, SiteSettings
from stepvad.site.store.events import Store

LABEL = "test"
TEST_TOPIC = "test"
"""Below the prefix of a broker: a second client must not end the retained states of the site."""


def sections(sinks: Sinks) -> dict[str, Section]:
    """The settings of each configured sink by its name in the store."""
    found: dict[str, Section] = {}
    if sinks.mqtt:
        found["mqtt"] = sinks.mqtt
    found |= {f"webhook:{webhook.name}": webhook for webhook in sinks.webhooks}
    if sinks.file:
        found["file"] = sinks.file
    return found | {name: people for name, people, _ in people_sinks(sinks)}


def names(sinks: Sinks) -> tuple[str, ...]:
    """The names of the configured sinks, as used in the store."""
    return tuple(sections(sinks))


def people_sinks(sinks: Sinks) -> Iterator[tuple[str, NotifySettings, str]]:
    """The sinks for people: name in the store, settings and target. Each target has its own.

    So a service that is down delays no other, and nobody gets a message twice because of it.
    """
    for settings in sinks.notify:
        for number, to in enumerate(settings.to, start=1):
            more = f":{number}" if number > 1 else ""
            yield f"notify:{settings.name}{more}", settings, to


def connect(
    settings: SiteSettings, chosen: Collection[str], opened: Sequence[Record] = ()
) -> Iterator[Sink]:
    """Create the sinks for machines with these names, in the order of `names`.

    `opened`: events that are open, of which a sink that keeps the state of cameras has to know.
    """
    sinks = settings.sinks
    # the clients of a broker and of webhooks are imported only where the settings name one
    if sinks.mqtt and "mqtt" in chosen:
        from stepvad.site.sinks.mqtt import Mqtt

        cameras = [camera.name for camera in settings.cameras]
        yield Mqtt(sinks.mqtt, site=settings.name, cameras=cameras, opened=opened)
    for webhook in sinks.webhooks:
        from stepvad.site.sinks.webhook import Webhook

        if f"webhook:{webhook.name}" in chosen:
            yield Webhook(webhook, site=settings.name)
    if sinks.file and "file" in chosen:
        from stepvad.site.sinks.webhook import JsonLines

        yield JsonLines(sinks.file.path)


def connect_people(
    settings: SiteSettings, chosen: Collection[str], events: Store
) -> Iterator[plan.Notify]:
    """Create the sinks for people with these names, which follow in `names`."""
    for name, people, to in people_sinks(settings.sinks):
        if name in chosen:
            scheduler = plan.Scheduler(people)
            target, file = target_named(to, settings), plan.plan_file(settings.data, name)
            yield plan.Notify(name, target, scheduler, words_for(settings), events, file)


def target_named(to: str, settings: SiteSettings) -> Target:
    """The target that a name in `to` stands for; read its secret."""
    if to != BROWSERS:
        return AppriseTarget(to)
    subscriptions = PushSubscriptions(settings.data, settings.web.accounts)
    return BrowserTarget(subscriptions, contact=page_address(settings.web))


def words_for(settings: SiteSettings) -> NoticeWords:
    """The words of messages about this site."""
    return NoticeWords(settings.name, page_address(settings.web))


def send_test(settings: SiteSettings, name: str) -> str:
    """Send a new event and its end through a connection of its own; to people, a message.

    Returns what came back; raises a StepvadError that says what went wrong.
    """
    for found, people, to in people_sinks(settings.sinks):
        if found == name:
            return target_named(to, settings).deliver(words_for(settings).test(people.name))
    sink = _connected_alone(settings, name)
    try:
        opened = _test_event(settings.cameras[0].name, time.time())
        over = opened.ended("calm", opened.start_time + 1.0)
        sink.send("new", message("new", None, opened))
        sink.send("end", message("end", opened, over))
        return f"{name} accepted a test event and its end"
    finally:
        sink.close()


def _connected_alone(settings: SiteSettings, name: str) -> Sink:
    """A connection to one sink of a site, with none of its cameras."""
    sinks = settings.sinks
    if name not in names(sinks):
        known = ", ".join(names(sinks)) or "none"
        raise ConfigError(
            f"sink: expected one of the site, got {name!r}", hint=f"its sinks: {known}"
        )
    if sinks.mqtt is not None:  # topics apart from those of the site
        topics = {"prefix": f"{sinks.mqtt.prefix}/{TEST_TOPIC}", "discovery_prefix": ""}
        sinks = sinks.model_copy(update={"mqtt": sinks.mqtt.model_copy(update=topics)})
    return next(connect(settings.model_copy(update={"sinks": sinks, "cameras": []}), (name,)))


def _test_event(camera: str, now: float) -> Record:
    return Record(
        id=event_id(f"test {camera}", secrets.randbelow(2**31), 1, 0),
        camera=camera,
        label=LABEL,
        score=1.0,
        top_score=1.0,
        start_time=now,
        model_id=LABEL,
        model_sha256="0" * 64,
        track_id=1,
        tracks=(1,),
        epoch=0,
        frame_seq=0,
        confidence=1.0,
        threshold=1.0,
        why="a test of this sink, sent from the settings page",
    )
