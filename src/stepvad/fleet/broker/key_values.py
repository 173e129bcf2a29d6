"""Key-value buckets on NATS; all keys are read in one request, without creating a consumer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

# Loaded by the bus alone.
from nats.js import errors  # noqa: TID253
from nats.js.client import JetStreamContext  # noqa: TID253
from nats.js.kv import KeyValue  # noqa: TID253

from stepvad.fleet.broker.bus import Entry, UnavailableError
from stepvad.fleet.broker.nats_errors import answers

if TYPE_CHECKING:
    from nats.aio.client import Client

END, NOTHING = "204", "404"
"""Status after the last key, and for an empty bucket."""


async def latest(client: Client, bucket: str, timeout_s: float) -> dict[str, bytes]:
    """Values of a bucket that are neither deleted nor expired, by key.

    A watcher would leave a consumer behind for minutes, and brokers handle only some hundreds.
    """
    found: dict[str, bytes] = {}
    prefix, inbox = f"$KV.{bucket}.", client.new_inbox()
    answers = await client.subscribe(inbox)
    try:
        question = json.dumps({"multi_last": [f"{prefix}>"]}).encode()
        await client.publish(f"$JS.API.DIRECT.GET.KV_{bucket}", question, reply=inbox)
        while True:
            answer = await answers.next_msg(timeout_s)
            headers = answer.headers or {}
            status = headers.get("Status")
            if status in (END, NOTHING):
                return found
            if status is not None:
                said = headers.get("Description", status)
                raise UnavailableError(f"bus: expected all keys of {bucket}, got: {said}")
            if "KV-Operation" not in headers:  # it was not deleted
                found[headers["Nats-Subject"].removeprefix(prefix)] = answer.data
    finally:
        await answers.unsubscribe()


class Bucket:
    """One bucket; a value that others may write as well is replaced by its revision."""

    def __init__(self, client: Client, js: JetStreamContext, name: str, timeout_s: float) -> None:
        self._client, self._name, self._timeout_s = client, name, timeout_s
        self._keys = KeyValue(
            name=name, stream=f"KV_{name}", pre=f"$KV.{name}.", js=js, direct=True
        )

    async def get(self, key: str) -> Entry | None:
        """A value and its revision; None if there is none."""
        with answers():
            try:
                entry = await self._keys.get(key)
            except errors.KeyNotFoundError:
                return None
        return Entry(entry.value or b"", entry.revision or 0)

    async def all(self) -> dict[str, bytes]:
        """All values by key."""
        with answers():
            return await latest(self._client, self._name, self._timeout_s)

    async def put(self, key: str, value: bytes) -> None:
        """Write a value, whoever wrote the last one."""
        with answers():
            await self._keys.put(key, value)

    async def replace(self, key: str, value: bytes, revision: int) -> int:
        """Replace the value of a revision, 0 for none; return the new revision."""
        with answers():
            if revision:
                return await self._keys.update(key, value, last=revision)
            return await self._keys.create(key, value)

    async def delete(self, key: str) -> None:
        """Delete a value."""
        with answers():
            await self._keys.delete(key)
