"""Streams and buckets on NATS: made where missing, changed for an administrator alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

# Loaded by the bus alone, which loads the client.
from nats.js import api, errors  # noqa: TID253
from nats.js.client import JetStreamContext  # noqa: TID253

from stepvad.errors import ConfigError
from stepvad.fleet.broker.bus import ConflictError, Entry, UnavailableError
from stepvad.fleet.broker.nats_errors import answers, until_led
from stepvad.fleet.broker.streams import buckets, streams
from stepvad.fleet.settings import BusSettings

FLEET = "fleet"
"""The key of the settings that a fleet was set up with."""
DUPLICATES_S = 120.0
"""How long the broker recognises a message that comes again, unless told."""
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


class States(Protocol):
    """The small states of a bus."""

    async def read(self, key: str) -> Entry | None:
        """Read a state."""

    async def write(self, key: str, value: bytes, revision: int) -> int:
        """Replace the state of this revision."""


class StreamArrangement:
    """The streams and buckets that a fleet needs."""

    def __init__(self, js: JetStreamContext, settings: BusSettings, states: States) -> None:
        self._js, self._settings, self._states = js, settings, states

    async def ensure(self) -> None:
        """Create what is missing; what is there stays as it is."""
        await self._check_shards()
        leases, ours = f"KV_{self._settings.subjects.leases}", self._settings.lease_s
        for config in configs(self._settings):
            found = await self._made(config)
            if config.name == leases and found.max_age and ours > found.max_age:
                raise ConfigError(
                    f"bus.lease_s: expected at most {found.max_age:g} as the broker has it, "
                    f"got {ours:g}: leases would expire before they are renewed",
                    hint="run stepvad fleet setup with the same settings first, as a user who may",
                )

    async def change(self) -> list[str]:
        """Make everything as the settings say; return what was changed."""
        await until_led(self._check_shards)
        wanted = configs(self._settings)
        pairs = [(config, await until_led(partial(self._made, config))) for config in wanted]
        for config, found in pairs:
            _check_possible(config, found)
        done: list[str] = []
        for config, found in pairs:
            fields = {
                name: value
                for name, value in _fields(config).items()
                if not math.isclose(getattr(found, name) or 0, value, rel_tol=1e-6)
            }
            if fields:
                await until_led(partial(self._update, found.evolve(**fields)))
                done += [
                    f"{config.name}: {name} {getattr(found, name) or 0:.15g} -> {value:.15g}"
                    for name, value in fields.items()
                ]
        return done

    async def _check_shards(self) -> None:
        """Reject another number of shards than that of the fleet; note it in a new one."""
        state = f"KV_{self._settings.subjects.state}"
        await self._made(next(one for one in configs(self._settings) if one.name == state))
        entry, ours = await self._states.read(FLEET), self._settings.shards
        if entry is None:
            with suppress(ConflictError):  # somebody else did
                await self._states.write(FLEET, json.dumps({"shards": ours}).encode(), 0)
            return
        known = json.loads(entry.value)["shards"]
        if known != ours:
            raise ConfigError(
                f"bus.shards: expected {known} as this fleet was set up with, got {ours}",
                hint="the number of shards is fixed for a fleet",
            )

    async def _made(self, config: api.StreamConfig) -> api.StreamConfig:
        """The stream as it is on the broker; it is made if it is missing."""
        name = config.name or ""
        with answers(), _making():
            try:
                return (await self._js.stream_info(name)).config
            except errors.NotFoundError:
                bucket = name.removeprefix("KV_")
                if bucket == name:
                    return (await self._js.add_stream(config)).config
                await self._js.create_key_value(
                    bucket=bucket,
                    ttl=config.max_age,
                    storage=config.storage,
                    replicas=config.num_replicas,
                    direct=True,
                )
                return (await self._js.stream_info(name)).config

    async def _update(self, config: api.StreamConfig) -> None:
        with answers(), _making():
            await self._js.update_stream(config)


def configs(settings: BusSettings) -> list[api.StreamConfig]:
    """All streams, those of the buckets included."""
    of_buckets = [
        api.StreamConfig(
            name=f"KV_{bucket.bucket}",
            subjects=[f"$KV.{bucket.bucket}.>"],
            storage=bucket.storage,
            max_age=bucket.ttl,
            num_replicas=bucket.replicas,
        )
        for bucket in buckets(settings)
    ]
    return [*streams(settings), *of_buckets]


def _fields(config: api.StreamConfig) -> dict[str, float]:
    """What the settings say of a stream that can be changed."""
    age = config.max_age or 0.0
    window = config.duplicate_window or (min(DUPLICATES_S, age) if age else None)
    facts = {
        "max_bytes": config.max_bytes,
        "max_age": age,
        "duplicate_window": window,
        "num_replicas": config.num_replicas or 1,
        "max_msgs_per_subject": config.max_msgs_per_subject,
    }
    return {name: value for name, value in facts.items() if value not in (None, -1)}


def _check_possible(wanted: api.StreamConfig, found: api.StreamConfig) -> None:
    """Reject what the broker cannot change about a stream that exists."""
    (theirs, *_), (ours, *_) = ((one.subjects or [""])[0].split(".") for one in (found, wanted))
    if theirs != ours:
        raise ConfigError(
            f"bus.prefix: expected that of the stream {found.name}, {theirs}, got {ours}",
            hint="an account of the broker holds one fleet: use its prefix, or another account",
        )
    if found.storage != wanted.storage:
        raise ConfigError(
            f"stream {found.name}: expected storage {wanted.storage}, got {found.storage}",
            hint="stop the fleet, delete the stream with the NATS CLI, run setup again",
        )


@contextmanager
def _making() -> Iterator[None]:
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
