"""The sinks that a site's settings name, for machines and for people: made, listed, tested."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

from stepvad.errors import ConfigError, StepvadError
from stepvad.events.record import Record, Sink, event_id, message
from stepvad.site.notify import plan
from stepvad.site.notify.people import AppriseTarget, Target
from stepvad.site.notify.push import BrowserTarget, PushSubscriptions
from stepvad.site.notify.words import NoticeWords, page_address
from stepvad.site.settings.page import BROWSERS, NotifySettings
from stepvad.site.settings.sections import Sinks, SiteSettings
from stepvad.site.store.events import Store

LABEL = "test"
TEST_TOPIC = "test"
"""Below the prefix of a broker: a second client must not end the retained states of the site."""


def names(sinks: Sinks) -> tuple[str, ...]:
    """The names of the configured sinks, as used in the store."""
    found = ["mqtt"] if sinks.mqtt else []
    found += [f"webhook:{webhook.name}" for webhook in sinks.webhooks]
    found += ["file"] if sinks.file else []
    return (*found, *(name for name, _, _ in people_sinks(sinks)))


def people_sinks(sinks: Sinks) -> Iterator[tuple[str, NotifySettings, str]]:
    """The sinks for people: name in the store, settings and target. Each target has its own.

    So a service that is down delays no other, and nobody gets a message twice because of it.
    """
    for settings in sinks.notify:
        for number, to in enumerate(settings.to, start=1):
            more = f":{number}" if number > 1 else ""
            yield f"notify:{settings.name}{more}", settings, to


def connect(settings: SiteSettings) -> Iterator[Sink]:
    """Create the configured sinks for machines, in the order of `names`."""
    sinks = settings.sinks
    # the clients of a broker and of webhooks are imported only where the settings name one
    if sinks.mqtt:
        from stepvad.site.sinks.mqtt import Mqtt

        cameras = [camera.name for camera in settings.cameras]
        yield Mqtt(sinks.mqtt, site=settings.name, cameras=cameras)
    for webhook in sinks.webhooks:
        from stepvad.site.sinks.webhook import Webhook

        yield Webhook(webhook, site=settings.name)
    if sinks.file:
        from stepvad.site.sinks.webhook import JsonLines

        yield JsonLines(sinks.file.path)


def connect_people(settings: SiteSettings, events: Store) -> Iterator[plan.Notify]:
    """Create the sinks for people, which follow in `names`."""
    for name, people, to in people_sinks(settings.sinks):
        scheduler = plan.Scheduler(plan.NotificationRules.from_settings(people))
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


def find_people(settings: SiteSettings, name: str | None) -> NotifySettings:
    """The people of this name; without a name, those of the only section."""
    found = settings.sinks.notify
    if not found:
        raise ConfigError(
            "sinks.notify: expected people to notify, got none in the settings",
            hint='add [[sinks.notify]] with to = ["browsers"]; see the guide "Alerts on phones"',
        )
    if name is None and len(found) == 1:
        return found[0]
    for one in found:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in found)
    got = "no name" if name is None else repr(name[:64])
    raise ConfigError(f"sinks.notify: expected one of {known}, got {got}", hint="name one of them")


@dataclass(frozen=True, slots=True)
class TestResult:
    """The reply to a test message to one target."""

    __test__ = False  # no test class of pytest

    to: str
    ok: bool
    words: str


def send_tests(settings: SiteSettings, people: NotifySettings) -> Iterator[TestResult]:
    """Send a test message to each target, at once and whatever the hour; yield the replies."""
    notice = words_for(settings).test(people.name)
    for to in people.to:
        try:
            yield TestResult(to, True, target_named(to, settings).deliver(notice))
        except StepvadError as error:
            yield TestResult(to, False, str(error))


def send_test(settings: SiteSettings, name: str) -> None:
    """Send a new event and its end through a connection of its own; to people, a message.

    Raises a StepvadError that says what went wrong.
    """
    for found, people, to in people_sinks(settings.sinks):
        if found == name:
            target_named(to, settings).deliver(words_for(settings).test(people.name))
            return
    sink = _connected_alone(settings, name)
    try:
        opened = _test_event(settings.cameras[0].name, time.time())
        over = opened.ended("calm", opened.start_time + 1.0)
        sink.send("new", message("new", None, opened))
        sink.send("end", message("end", opened, over))
    finally:
        sink.close()


def _connected_alone(settings: SiteSettings, name: str) -> Sink:
    """A connection to one sink of a site, with none of its cameras."""
    for sinks in _one_by_one(settings.sinks):
        if names(sinks) == (name,):
            if sinks.mqtt is not None:  # topics apart from those of the site
                topics = {"prefix": f"{sinks.mqtt.prefix}/{TEST_TOPIC}", "discovery_prefix": ""}
                sinks = sinks.model_copy(update={"mqtt": sinks.mqtt.model_copy(update=topics)})
            return next(connect(settings.model_copy(update={"sinks": sinks, "cameras": []})))
    known = ", ".join(names(settings.sinks)) or "none"
    raise ConfigError(f"sink: expected one of the site, got {name!r}", hint=f"its sinks: {known}")


def _one_by_one(sinks: Sinks) -> Iterator[Sinks]:
    """The sinks one by one, each in settings of its own."""
    for field in type(sinks).model_fields:
        value = getattr(sinks, field)
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                update = {field: [one] if isinstance(value, list) else one}
                yield Sinks().model_copy(update=update)


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
