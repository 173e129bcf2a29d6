"""Streams and buckets on NATS: made where missing, changed for an administrator alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

# Loaded by the bus alone, which loads the client.
from nats.js import api, errors  # noqa: TID253
from nats.js.client import JetStreamContext  # noqa: TID253

from stepvad.errors import ConfigError
from stepvad.fleet.broker import changes
from stepvad.fleet.broker.bus import ConflictError, Entry
from stepvad.fleet.broker.elections import until_led
from stepvad.fleet.broker.nats_errors import answers
from stepvad.fleet.broker.streams import buckets, streams
from stepvad.fleet.settings import BusSettings

logger = logging.getLogger(__name__)

FLEET = "fleet"
"""The key of the settings that a fleet was set up with."""


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
        self._warned: set[str] = set()

    async def ensure(self) -> None:
        """Create what is missing, with the settings that the fleet was set up with.

        What is there stays as it is; a warning says what differs from the settings.
        """
        facts, revision = await self._facts()
        wanted = changes.agreed(self._settings, facts.get("kept", {}))
        for ours, made in zip(configs(self._settings), configs(wanted), strict=True):
            found = changes.changes(ours, await self._made(made))
            changes.check_worker(found)
            self._warn(changes.told(found))
        if not revision:
            with suppress(ConflictError):
                await self._remember(facts, 0)

    async def change(self) -> list[changes.Change]:
        """Make everything as the settings say; return what was changed."""
        await self._facts()
        wanted = configs(self._settings)
        pairs = [(config, await until_led(partial(self._made, config))) for config in wanted]
        for config, found in pairs:
            changes.check_possible(changes.changes(config, found))
        done: list[changes.Change] = []
        for config, found in pairs:
            if differing := changes.changes(config, found):
                await until_led(partial(self._update, changes.updated(config, found)))
                done += changes.told(differing)
        await until_led(self._remember_change)
        return done

    async def compare(self, stream: str) -> None:
        """Warn if a stream is not as the settings say."""
        (config,) = (one for one in streams(self._settings) if one.name == stream)
        with answers():
            found = await self._js.stream_info(stream)
        self._warn(changes.told(changes.changes(config, found.config)))

    async def _facts(self) -> tuple[dict[str, Any], int]:
        """What the fleet was set up with and its revision, 0 if it was not yet."""
        state = f"KV_{self._settings.subjects.state}"
        await self._made(next(one for one in configs(self._settings) if one.name == state))
        entry = await self._states.read(FLEET)
        facts: dict[str, Any] = {} if entry is None else json.loads(entry.value)
        known, ours = facts.get("shards"), self._settings.shards
        if known not in (None, ours):
            raise ConfigError(
                f"bus.shards: expected {known} as this fleet was set up with, got {ours}",
                hint="the number of shards is fixed for a fleet",
            )
        return facts, 0 if entry is None else entry.revision

    async def _remember_change(self) -> None:
        facts, revision = await self._facts()
        if facts.get("kept") != changes.kept_of(self._settings):
            await self._remember(facts, revision)

    async def _remember(self, facts: Mapping[str, Any], revision: int) -> None:
        kept = changes.kept_of(self._settings)
        now = {**facts, "shards": self._settings.shards, "kept": kept}
        await self._states.write(FLEET, json.dumps(now).encode(), revision)

    async def _made(self, config: api.StreamConfig) -> api.StreamConfig:
        """The stream as it is on the broker; it is made if it is missing."""
        name = config.name or ""
        with answers(), changes.making():
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
        with answers(), changes.making():
            await self._js.update_stream(config)

    def _warn(self, found: Sequence[changes.Change]) -> None:
        """Log each difference once."""
        for words in map(str, found):
            if words not in self._warned:
                logger.warning(
                    "%s: the settings differ from the broker, which was not changed; "
                    "correct them, or run stepvad fleet setup as a user who may change it",
                    words,
                )
                self._warned.add(words)


def configs(settings: BusSettings) -> list[api.StreamConfig]:
    """All streams, those of the buckets included."""
    return [*streams(settings), *map(changes.stream_of, buckets(settings))]
