"""The streams and buckets of a fleet on NATS."""

from __future__ import annotations

from typing import Any

# Loaded by the bus alone, which loads the client.
from nats.js import api  # noqa: TID253

from stepvad.fleet.settings import BusSettings
from stepvad.fleet.subjects import DEAD, EVENTS, POSES, edge_stream_of, stream_of
from stepvad.fleet.tenants import Tenant

DAY_S = 86_400.0


def streams(settings: BusSettings) -> list[api.StreamConfig]:
    """Poses in memory, events and unreadable messages on disk; all of bounded size."""

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
            max_age=settings.events_days * DAY_S,
            duplicate_window=settings.duplicates_s,
        ),
        stream(DEAD, file, settings.dead_mb, max_age=settings.events_days * DAY_S),
    ]


def tenant_streams(settings: BusSettings, tenant: Tenant) -> list[api.StreamConfig]:
    """Streams that belong to one tenant, beyond those that every fleet has.

    A full stream of a tenant refuses what is new, so no flood pushes out what was acknowledged; a
    camera fills no more than its own part.
    """
    return [_poses(settings, tenant), _edge_events(settings, tenant)] if tenant.name else []


def _poses(settings: BusSettings, tenant: Tenant) -> api.StreamConfig:
    limits = tenant.limits
    per_camera = max(round(limits.messages_s * settings.poses_s), 1)
    return api.StreamConfig(
        name=stream_of(tenant.partition),
        subjects=[settings.subjects.poses_of(tenant.partition)],
        storage=api.StorageType.MEMORY,
        max_age=settings.poses_s,
        num_replicas=settings.replicas,
        max_bytes=round(limits.poses_mb * 1e6),
        max_msg_size=round(limits.message_kb * 1e3),
        max_msgs=per_camera * limits.cameras,
        max_msgs_per_subject=per_camera,
        discard=api.DiscardPolicy.NEW,
        discard_new_per_subject=True,
    )


def _edge_events(settings: BusSettings, tenant: Tenant) -> api.StreamConfig:
    return api.StreamConfig(
        name=edge_stream_of(tenant.name),
        subjects=[f"{settings.subjects.of_tenant(tenant.name)}.edge-events.*"],
        storage=api.StorageType.FILE,
        max_bytes=round(tenant.limits.events_mb * 1e6),
        max_age=settings.events_days * DAY_S,
        max_msg_size=round(tenant.limits.message_kb * 1e3),
        duplicate_window=settings.duplicates_s,
        retention=api.RetentionPolicy.WORK_QUEUE,
        discard=api.DiscardPolicy.NEW,
        num_replicas=settings.replicas,
    )


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
            for bucket in (settings.subjects.state, settings.subjects.directory)
        ),
    ]
