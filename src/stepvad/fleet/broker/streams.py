"""The streams and buckets of a fleet on NATS."""

from __future__ import annotations

from typing import Any

# Loaded by the bus alone, which loads the client.
from nats.js import api  # noqa: TID253

from stepvad.fleet.settings import BusSettings
from stepvad.fleet.subjects import DEAD, EVENTS, POSES


def streams(settings: BusSettings) -> list[api.StreamConfig]:
    """Poses in memory, events and unreadable messages on disk; all of bounded size."""
    day_s = 86_400.0

    def stream(name: str, storage: api.StorageType, mb: float, **more: Any) -> api.StreamConfig:
        return api.StreamConfig(
            name=name,
            subjects=settings.subjects.of_stream(name),
            storage=storage,
            max_bytes=round(mb * 1e6),
            discard=api.DiscardPolicy.OLD,
            num_replicas=settings.replicas,
            **more,
        )

    memory, file = api.StorageType.MEMORY, api.StorageType.FILE
    return [
        stream(POSES, memory, settings.poses_mb, max_age=settings.poses_s),
        stream(
            EVENTS,
            file,
            settings.events_mb,
            max_age=settings.events_days * day_s,
            duplicate_window=settings.duplicates_s,
            allow_atomic=True,
        ),
        stream(DEAD, file, settings.dead_mb, max_age=settings.events_days * day_s),
    ]


def buckets(settings: BusSettings) -> list[api.KeyValueConfig]:
    """Leases, which expire, and states, which do not."""
    return [
        api.KeyValueConfig(
            bucket=settings.subjects.leases,
            ttl=settings.lease_s,
            storage=api.StorageType.MEMORY,
            replicas=settings.replicas,
            direct=True,
        ),
        api.KeyValueConfig(
            bucket=settings.subjects.state,
            storage=api.StorageType.FILE,
            replicas=settings.replicas,
            direct=True,
        ),
    ]
