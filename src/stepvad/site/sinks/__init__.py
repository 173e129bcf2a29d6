"""Event sinks: MQTT broker, webhooks and file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepvad.incidents.sink import Sink

if TYPE_CHECKING:
    from stepvad.settings.file import Sinks, SiteSettings


def names(sinks: Sinks) -> tuple[str, ...]:
    """The names of the configured sinks, as used in the store."""
    found = ["mqtt"] if sinks.mqtt else []
    found += [f"webhook:{webhook.name}" for webhook in sinks.webhooks]
    return (*found, *(["file"] if sinks.file else []))


def connect(settings: SiteSettings) -> Iterator[Sink]:
    """Create the configured sinks, in the order of `names`."""
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
