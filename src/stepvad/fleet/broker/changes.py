"""Streams as they are on the broker beside the settings: what differs, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

# Loaded by the bus alone, which loads the client.
from nats.js import api, errors  # noqa: TID253

from stepvad.errors import ConfigError
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.subjects import DEAD, EDGES, EVENTS, POSES

DAY_S = 86_400.0
DUPLICATES_S = 120.0
"""How long the broker recognises a message that comes again, unless told."""
KEPT = (
    *("replicas", "poses_mb", "poses_s", "events_days", "events_mb", "dead_mb"),
    *("duplicates_s", "lease_s"),
)
"""Settings that the streams and buckets are made of."""
_SETTINGS: Mapping[tuple[str, str], tuple[str, float]] = {
    (POSES, "max_bytes"): ("poses_mb", 1e6),
    (POSES, "max_age"): ("poses_s", 1.0),
    (EVENTS, "max_bytes"): ("events_mb", 1e6),
    (EVENTS, "max_age"): ("events_days", DAY_S),
    (EVENTS, "duplicate_window"): ("duplicates_s", 1.0),
    (DEAD, "max_bytes"): ("dead_mb", 1e6),
    (DEAD, "max_age"): ("events_days", DAY_S),
    (EDGES, "max_bytes"): ("events_mb", 1e6),
    (EDGES, "max_age"): ("events_days", DAY_S),
}
"""The setting behind a field of a stream, and how many of the field's units are one of its own."""
_FOLLOWING = ("duplicate_window",)
"""Fields that follow another one where no setting is behind them."""
_REFUSED = {
    10028: ("bus.poses_mb: expected less than the broker's max_memory_store", "poses_mb"),
    10047: ("bus: expected less than the broker's max_file_store", "events_mb or dead_mb"),
    10052: (
        "bus: expected settings that go together",
        "duplicates_s, which has to fit events_days",
    ),
    10074: ("bus.replicas: expected 1 with one broker", "replicas, or run a cluster"),
}
"""Answers to the making of a stream that stay the same until the settings change."""
NO_PEERS = 10005


class Change(NamedTuple):
    """One difference between the broker and the settings."""

    stream: str
    field: str
    setting: str
    has: float | str
    wants: float | str
    unit: float = 1.0

    def __str__(self) -> str:
        """Both values, in the unit of the setting."""
        has, wants = (
            value if isinstance(value, str) else f"{value / self.unit:g}"
            for value in (self.has, self.wants)
        )
        return f"{self.stream}: {self.setting} {has} -> {wants}"


def stream_of(bucket: api.KeyValueConfig) -> api.StreamConfig:
    """What a bucket's stream shares with the settings."""
    return api.StreamConfig(
        name=f"KV_{bucket.bucket}",
        subjects=[f"$KV.{bucket.bucket}.>"],
        storage=bucket.storage,
        max_age=bucket.ttl,
        num_replicas=bucket.replicas,
    )


def changes(wanted: api.StreamConfig, found: api.StreamConfig) -> list[Change]:
    """What has to change on the broker to make a stream as wanted."""
    name = wanted.name or ""
    before, after = _facts(found, found), _facts(wanted, found)
    return [
        Change(name, field, *_named(name, field, before[field], value))
        for field, value in after.items()
        if not _same(before[field], value)
    ]


def updated(wanted: api.StreamConfig, found: api.StreamConfig) -> api.StreamConfig:
    """The stream as it is on the broker, with what the settings say of it."""
    fields = {change.field for change in changes(wanted, found)}
    facts = {**_facts(wanted, found), "subjects": wanted.subjects}
    return found.evolve(**{name: facts[name] for name in fields})


def told(found: list[Change]) -> list[Change]:
    """Those that have a setting; the others follow them."""
    return [one for one in found if one.setting not in _FOLLOWING]


def check_possible(found: list[Change]) -> None:
    """Reject what the broker cannot change about a stream that exists."""
    for one in found:
        if one.setting == "prefix":
            raise ConfigError(
                f"bus.prefix: expected that of the stream {one.stream}, {one.has}, got {one.wants}",
                hint="an account of the broker holds one fleet: use its prefix, or another account",
            )
        if one.setting == "storage":
            raise ConfigError(
                f"stream {one.stream}: expected storage {one.wants}, got {one.has}",
                hint="stop the fleet, delete the stream with the NATS CLI, run setup again",
            )


def check_worker(found: list[Change]) -> None:
    """Reject settings with which a worker cannot work on streams as they are."""
    check_possible(found)
    for one in found:
        if one.setting == "lease_s" and _number(one.wants) > _number(one.has):
            raise ConfigError(
                f"bus.lease_s: expected at most {one.has:g} as the broker has it, "
                f"got {one.wants:g}: leases would expire before they are renewed",
                hint="run stepvad fleet setup with the same settings first, as a user who may",
            )


def agreed(settings: BusSettings, kept: Mapping[str, Any]) -> BusSettings:
    """The settings with those that the fleet was set up with, which others may not know yet."""
    known = {name: kept[name] for name in KEPT if name in kept}
    return settings.model_copy(update=known)


def kept_of(settings: BusSettings) -> dict[str, Any]:
    """What to remember of the settings that a fleet is set up with."""
    return {name: getattr(settings, name) for name in KEPT}


@contextmanager
def making() -> Iterator[None]:
    """Tell settings that the broker will never accept from a broker that is away."""
    try:
        yield
    except errors.APIError as error:
        code, words = error.err_code or 0, error.description
        if code in _REFUSED:
            expected, change = _REFUSED[code]
            raise ConfigError(f"{expected}, got: {words}", hint=f"change {change}") from None
        if code == NO_PEERS:
            raise UnavailableError(
                f"bus: expected as many brokers as bus.replicas, got: {words}",
                hint="start the others, or lower bus.replicas or poses_mb",
            ) from None
        raise


def _facts(config: api.StreamConfig, found: api.StreamConfig) -> dict[str, Any]:
    """The compared fields; those that `config` leaves open are as in `found`."""
    age = config.max_age or 0.0
    window = config.duplicate_window
    if not window:
        window = min(DUPLICATES_S, age) if age else found.duplicate_window
    return {
        "subjects": " ".join(sorted(config.subjects or [])),
        "storage": api.StorageType(config.storage or found.storage).value,
        "max_bytes": found.max_bytes if config.max_bytes is None else config.max_bytes,
        "max_age": age,
        "duplicate_window": window or 0.0,
        "num_replicas": config.num_replicas or 1,
    }


def _named(stream: str, field: str, has: Any, wants: Any) -> tuple[str, Any, Any, float]:
    """The setting behind a field, both values, and the unit."""
    if field == "subjects":
        theirs, ours = ({word.partition(".")[0] for word in text.split()} for text in (has, wants))
        return ("subjects" if theirs & ours else "prefix"), has, wants, 1.0
    if field == "num_replicas":
        return "replicas", has, wants, 1.0
    if field == "max_age" and stream.startswith("KV_"):
        return "lease_s", has, wants, 1.0
    setting, unit = _SETTINGS.get((stream, field), (field, 1.0))
    return setting, has, wants, unit


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return math.isclose(one or 0.0, other or 0.0, rel_tol=1e-6)


def _number(value: float | str) -> float:
    return float(value)
