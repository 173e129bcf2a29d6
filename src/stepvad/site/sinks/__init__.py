"""Event sinks: MQTT broker, webhooks, file and messages to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepvad.incidents.sink import Sink
from stepvad.site.notifications.people import sink_names, target_of, words_of
from stepvad.site.notifications.plan import NotificationRules, Scheduler, plan_file
from stepvad.site.sinks.notify import Notify

if TYPE_CHECKING:
    from stepvad.settings.file import Sinks, SiteSettings
    from stepvad.site.store.eventstore import Store


def names(sinks: Sinks) -> tuple[str, ...]:
    """The names of the configured sinks, as used in the store."""
    found = ["mqtt"] if sinks.mqtt else []
    found += [f"webhook:{webhook.name}" for webhook in sinks.webhooks]
    found += ["file"] if sinks.file else []
    return (*found, *(name for name, _, _ in sink_names(sinks)))


def connect(settings: SiteSettings) -> Iterator[Sink]:
    """Create the configured sinks for machines, in the order of `names`."""
    sinks = settings.sinks
    if sinks.mqtt:
        from stepvad.site.sinks.mqtt import Mqtt

        cameras = [camera.name for camera in settings.cameras]
        yield Mqtt(sinks.mqtt, site=settings.name, cameras=cameras)
    for webhook in sinks.webhooks:
        from stepvad.site.sinks.webhook import Webhook

        yield Webhook(webhook, site=settings.name)
    if sinks.file:
        from stepvad.site.sinks.jsonl import JsonLines

        yield JsonLines(sinks.file.path)


def to_people(settings: SiteSettings, events: Store) -> Iterator[Notify]:
    """Create the sinks for people, which follow in `names`."""
    for name, people, to in sink_names(settings.sinks):
        scheduler = Scheduler(NotificationRules.of(people))
        target, file = target_of(to, settings), plan_file(settings.data, name)
        yield Notify(name, target, scheduler, words_of(settings), events, file)
