"""Events that wait, of all shards, stored by the broker in one write.

A broker syncs every message to its disk: a thousand events, one after the other, take seconds. As a
batch they are stored at once or not at all, each as a message of its own, and only if the fence of
every subject in it holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

# Loaded by the bus alone, which loads the client.
from nats.js import api  # noqa: TID253

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import NewEvent, UnavailableError
from stepvad.fleet.broker.nats_errors import answers
from stepvad.fleet.subjects import EVENTS
from stepvad.fleet.tasks import end

if TYPE_CHECKING:
    from nats.js.client import JetStreamContext

    from stepvad.fleet.broker.nats import NatsBus

logger = logging.getLogger(__name__)

LEAST, LEAST_REPLICATED = 32, 8
"""Fewest messages in a batch: one alone costs as much as some ten; less where it is replicated."""
MOST, MOST_BYTES = 1000, 2**23
"""Most messages in a batch, as the broker limits them, and about how many bytes."""
TIMEOUT_S, EACH_S = 2.0, 0.005
"""Timeout of a batch, and more for each of its messages."""
ID, NUMBER, COMMIT = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"


@dataclass(slots=True, eq=False)
class _Group:
    """Events of one subject, in order, and the sequence of the last message before them."""

    subject: str
    events: Sequence[NewEvent]
    expect: int
    last: asyncio.Future[int | None]
    """Sequence of the last of them; None if they have to be published one at a time."""

    def answer(self, last: int | None) -> None:
        if not self.last.done():
            self.last.set_result(last)


@dataclass(slots=True, eq=False)
class EventBatches:
    """Collects the events of all shards of a worker while the broker stores others."""

    bus: NatsBus
    _waiting: list[_Group] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _allowed_at: int = -1
    """The connection on which the broker was found to take batches."""

    async def publish(self, subject: str, events: Sequence[NewEvent], expect: int) -> int | None:
        """Store events together with those of other subjects; see `Bus.publish_together`."""
        loop = asyncio.get_running_loop()
        group = _Group(subject, events, expect, loop.create_future())
        self._waiting.append(group)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await group.last

    async def close(self) -> None:
        """Store nothing more."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> None:
        await asyncio.sleep(0)  # shards that have something to say now say it together
        while self._waiting:
            groups = [group for group in self._taken() if not group.last.done()]
            try:
                await self._store(groups)
            except Exception as error:  # whoever waits has to know
                for group in groups:
                    if not group.last.done():
                        group.last.set_exception(error)

    def _taken(self) -> list[_Group]:
        """The first groups that fit into a batch, one at least."""
        n = size = end = 0
        for group in self._waiting:
            n += len(group.events)
            size += sum(len(event.data) for event in group.events)
            if end and (n > MOST or size > MOST_BYTES):
                break
            end += 1
        taken, self._waiting = self._waiting[:end], self._waiting[end:]
        return taken

    async def _store(self, groups: Sequence[_Group]) -> None:
        """Store groups at once; if the broker refuses one of them, each by itself."""
        least = LEAST if self.bus.settings.replicas == 1 else LEAST_REPLICATED
        if sum(len(group.events) for group in groups) < least or not await self._is_allowed():
            for group in groups:
                group.answer(None)
        elif not await self._commit(groups):
            for group in groups:
                is_large = len(groups) > 1 and len(group.events) >= least
                if not (is_large and await self._commit([group])):
                    # they are there if they were stored and the broker's answer was lost
                    sent = _headers(group.events[-1])
                    group.answer(await self.bus.is_last(group.subject, sent))

    async def _commit(self, groups: Sequence[_Group]) -> bool:
        """Store groups at once; return whether the broker did."""
        bus = self.bus
        if not bus.client.is_connected:  # the client would buffer it until it reconnects
            raise UnavailableError("bus: expected a connection, got none for now")
        messages = _messages(groups)
        with answers():
            for subject, data, headers in messages[:-1]:
                await bus.client.publish(subject, data, headers=headers)
            subject, data, headers = messages[-1]
            wait_s = TIMEOUT_S + EACH_S * len(messages)
            answer = await bus.client.request(subject, data, timeout=wait_s, headers=headers)
        told: dict[str, Any] = json.loads(answer.data)
        if "error" in told or told.get("count") != len(messages):
            logger.debug("broker: refused %d events at once: %s", len(messages), told)
            return False
        last = told["seq"] - len(messages)
        for group in groups:
            last += len(group.events)
            group.answer(last)
        return True

    async def _is_allowed(self) -> bool:
        """Whether the broker takes batches; another one, of another version, may answer now."""
        if self._allowed_at != self.bus.connections:
            try:
                with answers():
                    facts = await self.bus.client.jetstream().stream_info(EVENTS)
            except StepvadError:
                return False
            if not facts.config.allow_atomic:
                return False
            self._allowed_at = self.bus.connections
        return True


def _headers(event: NewEvent) -> dict[str, str]:
    return {**(event.headers or {}), api.Header.MSG_ID.value: event.id}


def _messages(groups: Sequence[_Group]) -> list[tuple[str, bytes, dict[str, str]]]:
    """Subject, data and headers of each message of a batch; its subjects are fenced once each."""
    name = uuid4().hex
    found: list[tuple[str, bytes, dict[str, str]]] = []
    for group in groups:
        for i, event in enumerate(group.events):
            headers = _headers(event)
            headers |= {ID: name, NUMBER: str(len(found) + 1)}
            if i == 0:
                headers[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value] = str(group.expect)
            found.append((group.subject, event.data, headers))
    found[-1][2][COMMIT] = "1"
    return found


async def allow_batches(stream: JetStreamContext) -> None:
    """Have the broker take batches of events, on a stream that was made without them."""
    with answers():
        facts = await stream.stream_info(EVENTS)
        if not facts.config.allow_atomic:
            await stream.update_stream(facts.config.evolve(allow_atomic=True))
