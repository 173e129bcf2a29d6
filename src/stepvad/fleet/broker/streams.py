"""The streams and buckets of a fleet on NATS."""

from __future__ import annotations

from typing import Any

# Loaded by the bus alone, which loads the client.
from nats.js import api  # noqa: TID253

from stepvad.fleet.settings import BusSettings
from stepvad.fleet.subjects import DEAD, EDGES, EVENTS, POSES

DAY_S = 86_400.0
MOST_OF_SITE = 20_000
"""Changes of events of one site that wait for the writer."""


def streams(settings: BusSettings) -> list[api.StreamConfig]:
    """Poses in memory, events and unreadable messages on disk; all of bounded size.

    A site that scores by itself has at most `MOST_OF_SITE` changes that are not stored yet; more
    are refused, so no flood pushes out the events of others.
    """

    def stream(name: str, storage: api.StorageType, mb: float, **more: Any) -> api.StreamConfig:
        return api.StreamConfig(
            name=name,
            subjects=[settings.subjects.of_stream(name)],
            storage=storage,
            max_bytes=round(mb * 1e6),
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
            max_age=settings.events_days * DAY_S,
            duplicate_window=settings.duplicates_s,
        ),
        stream(
            EDGES,
            file,
            settings.events_mb,
            max_age=settings.events_days * DAY_S,
            max_msgs_per_subject=MOST_OF_SITE,
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=api.DiscardPolicy.NEW,
            discard_new_per_subject=True,
        ),
        stream(DEAD, file, settings.dead_mb, max_age=settings.events_days * DAY_S),
    ]


def buckets(settings: BusSettings) -> list[api.KeyValueConfig]:
    """Leases, which expire; states and the directory, which do not."""
    return [
        api.KeyValueConfig(
            bucket=settings.subjects.leases,
            ttl=settings.lease_s,
            storage=api.StorageType.MEMORY,
            replicas=settings.replicas,
            direct=True,
        ),
        *(
            api.KeyValueConfig(
                bucket=bucket,
                storage=api.StorageType.FILE,
                replicas=settings.replicas,
                direct=True,
            )
            for bucket in (settings.subjects.state,)
        ),
    ]
